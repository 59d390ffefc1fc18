"""Real nodes for tests: started as a user starts them, stopped by their own process id."""

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from tests.process.template import copy_catalog
from tests.process.warm import SERVE, WarmProcess, run_warm

READY_S_MAX = 60
MEASURES_COVERAGE = {"COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"}
MOOR = [sys.executable, "-m", "moorline.cli.main"]


class NodeProcess:
    """One `moor serve` on free ports in a folder of its own."""

    def __init__(
        self,
        data: Path,
        *flags: str,
        wait: bool = True,
        before: Sequence[str] = (),
        is_first_start: bool = False,
    ) -> None:
        """Its catalog is a copy, unless the start itself is what is tested."""
        self.data = data
        has_own = not any(flag.startswith("--catalog") for flag in flags)
        if has_own and not is_first_start and not data.exists():
            copy_catalog(data / "catalog")
        arguments = [
            SERVE,
            f"--data={data}",
            "--listen=tcp://127.0.0.1:0",
            "--http=127.0.0.1:0",
            "--mqtt=mqtt://127.0.0.1:0",
            *flags,
        ]
        with (data.parent / f"{data.name}.stderr").open("ab") as errors:
            self.process = self._started([*before], arguments, errors, is_cold=is_first_start)
        self.ready_line = self._wait_ready() if wait else ""

    def _started(
        self, before: list[str], arguments: list[str], errors: BinaryIO, *, is_cold: bool
    ) -> subprocess.Popen[bytes] | WarmProcess:
        """A fork that has imported all, or where that could matter a Python of its own."""
        environment = clean_environment()
        if is_cold or before or MEASURES_COVERAGE & environment.keys():
            return subprocess.Popen(
                [*before, *MOOR, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
            )
        return WarmProcess(arguments, environment, errors)

    @property
    def address(self) -> str:
        return self._found(r"(tcp://\S+)")

    @property
    def mqtt(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self._found(r"mqtt://(\S+)").rpartition(":")
        return host, int(port)

    @property
    def http(self) -> str:
        return self._found(r"(http://\S+)")

    @property
    def errors(self) -> str:
        return (self.data.parent / f"{self.data.name}.stderr").read_text()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def __enter__(self) -> "NodeProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGCONT)
            self.stop()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _found(self, pattern: str) -> str:
        match = re.search(pattern, self.ready_line)
        assert match is not None, self.ready_line
        return match[1]

    def _wait_ready(self) -> str:
        stream = self.process.stdout
        assert stream is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            assert selector.select(READY_S_MAX), f"not ready after {READY_S_MAX} s: {self.errors}"
        line = stream.readline().decode()
        assert " ready: " in line, f"ended with {self.process.wait(10)}: {self.errors}"
        return line


def clean_environment() -> dict[str, str]:
    """Ours, without settings of whoever runs the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MOOR_")}


def run_moor(
    *arguments: str,
    timeout_s: float = 60,
    cwd: Path | None = None,
    variables: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """A command of `moor` that ends by itself."""
    environment = clean_environment() | (variables or {})
    if arguments[0] == "serve":
        return subprocess.run(
            [*MOOR, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=environment,
            cwd=cwd,
            check=False,
        )
    done = run_warm(arguments, environment, timeout_s=timeout_s, cwd=cwd)
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def processes_in(folder: Path) -> list[int]:
    """Processes that were started on a folder: its Postgres, mostly."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                if os.fsencode(folder) in command and int(entry.name) != os.getpid():
                    found.append(int(entry.name))
    return found
