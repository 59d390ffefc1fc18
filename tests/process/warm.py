"""Commands of `moor`, and nodes, without the wait for Python: a process that imported them forks for each.

    done = run_warm(["queue", "list", "--json"], environment, stdin=b"", timeout_s=60)
    node = WarmProcess(["serve", f"--data={data}"], environment, errors)

Most of what a short command costs is imports, and half of what a node's start does. A fork is a process as
any other: it has pipes, an environment and an exit code of its own, is killed and stopped by its own id, and
ends as Python ends. What is about Python's start starts Python.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

ROOT = Path(__file__).parents[2]
REQUEST_BYTES_MAX = 1 << 17
NUMBER = struct.Struct("i")

ALWAYS = ("moorline", "moorline.cli.main", "rich.table", "typer._adapters", "typer.rich_utils")
SERVE = "serve"
OF_NOUNS = {
    SERVE: ("uvloop", "moorline.node.serving", "moorline.node.node"),
    "journal": ("moorline.journal.queues.check", "moorline.journal.queues.transfer"),
    "pipeline": ("pyspark.sql", "moorline.spark.jobs.archive", "moorline.spark.jobs.verify"),
}
"""What commands import when they are called; that of a noun at its first command."""
CALLING = ("moorline.client.connecting",)
"""Others call a node."""


def run_warm(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    timeout_s: float,
    stdin: bytes = b"",
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Runs one command to its end. It is killed when the time is over."""
    given_in, stdin_end = os.pipe()
    (stdout_end, given_out), (stderr_end, given_err), (status_end, given_status) = (
        os.pipe() for _ in range(3)
    )
    given = [given_in, given_out, given_err, given_status]
    request = {
        "arguments": list(arguments),
        "environment": dict(environment),
        "cwd": str(cwd or Path.cwd()),
    }
    try:
        socket.send_fds(_server("commands"), [json.dumps(request).encode()], given)
    finally:
        for descriptor in given:
            os.close(descriptor)
    with (
        os.fdopen(stdin_end, "wb") as to_stdin,
        os.fdopen(stdout_end, "rb") as from_stdout,
        os.fdopen(stderr_end, "rb") as from_stderr,
        os.fdopen(status_end, "rb") as from_status,
    ):
        process = NUMBER.unpack(from_status.read(NUMBER.size))[0]
        over = threading.Timer(timeout_s, os.kill, (process, signal.SIGKILL))
        said: list[bytes] = []
        threads = [
            threading.Thread(target=_write, args=(to_stdin, stdin)),
            threading.Thread(target=lambda: said.append(from_stderr.read())),
        ]
        for thread in (over, *threads):
            thread.start()
        printed = from_stdout.read()
        status = NUMBER.unpack(from_status.read(NUMBER.size))[0]
        over.cancel()
        for thread in threads:
            thread.join()
    code = os.waitstatus_to_exitcode(status)
    return subprocess.CompletedProcess(["moor", *arguments], code, printed, said[0])


class WarmProcess:
    """A process that runs on, as far as `subprocess.Popen` of its parent would show it."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        errors: BinaryIO,
        prepared_by: Sequence[str] = (),
    ) -> None:
        """`prepared_by` is a module and words for its `prepare`, which the process calls before all else."""
        self.args = ["moor", *arguments]
        self.returncode: int | None = None
        stdout_end, given_out = os.pipe()
        self._status, given_status = os.pipe()
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "cwd": str(Path.cwd()),
            "prepared_by": list(prepared_by),
        }
        with open(os.devnull, "rb") as nothing:
            given = [nothing.fileno(), given_out, errors.fileno(), given_status]
            socket.send_fds(_server("nodes"), [json.dumps(request).encode()], given)
        os.close(given_out)
        os.close(given_status)
        self.stdout: BinaryIO = os.fdopen(stdout_end, "rb")
        self.pid: int = NUMBER.unpack(os.read(self._status, NUMBER.size))[0]

    def poll(self) -> int | None:
        return self.returncode if self._is_over(0) else None

    def wait(self, timeout: float | None = None) -> int:
        if not self._is_over(timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _is_over(self, within_s: float | None) -> bool:
        """Whoever forked it waits for it, and says how it ended."""
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._status, selectors.EVENT_READ)
                if not selector.select(within_s):
                    return False
            status = NUMBER.unpack(os.read(self._status, NUMBER.size))[0]
            os.close(self._status)
            self.returncode = os.waitstatus_to_exitcode(status)
        return True


def sockets() -> tuple[socket.socket, socket.socket]:
    """Whom to ask for commands, and whom for nodes: for a process of ours that asks by itself."""
    return _server("commands"), _server("nodes")


@functools.cache
def _server(_forks: str) -> socket.socket:
    """The process to ask; it ends when this end of the socket is closed, and so with the tests. That of nodes
    is one of its own: what commands import would count as memory of nodes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.process.warm", str(theirs.fileno())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            # As many threads as are left behind by a fork: none.
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )
    atexit.register(ours.close)
    return ours


def _write(stream: BinaryIO, content: bytes) -> None:
    try:
        stream.write(content)
        stream.close()
    except BrokenPipeError:
        pass  # it read no more than it wanted


def _serve(channel: socket.socket) -> None:
    """Forks for each request; the fork forks once more, so that somebody can wait for the command."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _load(ALWAYS)
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, REQUEST_BYTES_MAX, 4)
        if not data:
            return
        request = json.loads(data)
        _load_noun(request["arguments"][0])
        if os.fork() == 0:
            channel.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            process = os.fork()
            if process == 0:
                _become(request, *descriptors)
            _wait(process, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _load(modules: Sequence[str]) -> None:
    """And sets it apart: a collection writes to all that it looks at, so that each fork would copy what was
    ever imported, and most walk over it more than once before they end."""
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


@functools.cache
def _load_noun(noun: str) -> None:
    from moorline.cli.main import NOUNS

    if noun in NOUNS:
        _load((f"moorline.cli.{NOUNS[noun]}", *OF_NOUNS.get(noun, CALLING)))
    else:
        _load(OF_NOUNS.get(noun, CALLING))


def _wait(process: int, stdin: int, stdout: int, stderr: int, status: int) -> NoReturn:
    for descriptor in (stdin, stdout, stderr):
        os.close(descriptor)
    os.write(status, NUMBER.pack(process))
    os.write(status, NUMBER.pack(os.waitpid(process, 0)[1]))
    os._exit(0)


def _become(request: dict[str, Any], stdin: int, stdout: int, stderr: int, status: int) -> NoReturn:
    """The command itself; it leaves as `moor` does, through the end of Python."""
    from moorline.cli.main import main

    for descriptor, place in ((stdin, 0), (stdout, 1), (stderr, 2)):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.close(status)
    # New ones: those of before know what they were opened on.
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.argv = ["moor", *request["arguments"]]
    if request.get("prepared_by"):
        module, *words = request["prepared_by"]
        importlib.import_module(module).prepare(*words)
    main()
    raise AssertionError("it exits")


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
