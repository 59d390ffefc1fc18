"""A real node for benchmarks: `moor serve` in its own process, and the CPU that it and Postgres used."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import TracebackType

TICKS = os.sysconf("SC_CLK_TCK")


class BenchNode:
    """Started on entering, stopped on leaving."""

    def __init__(self, folder: Path, flags: list[str], program: str = "moorline.cli.main") -> None:
        self.data = folder / "data"
        self._flags = flags
        self._program = program
        self._process: subprocess.Popen[str] | None = None
        self.ready_line = ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def address(self) -> str:
        return self._found("tcp")

    @property
    def tls_address(self) -> str:
        return self._found("tls")

    @property
    def http_address(self) -> str:
        return self._found("http")

    def _found(self, scheme: str) -> str:
        match = re.search(rf"({scheme}://\S+)", self.ready_line)
        assert match is not None, self.ready_line
        return match[1]

    def __enter__(self) -> "BenchNode":
        command = [sys.executable, "-m", self._program, "serve", f"--data={self.data}"]
        command += ["--listen=tcp://127.0.0.1:0", "--http=off", "--log-level=warning", *self._flags]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.ready_line = self._process.stdout.readline()
        if "ready" not in self.ready_line:
            raise SystemExit("bench: the node did not get ready")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait()


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and all below it, those that have ended included."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    total, waiting = 0.0, [pid]
    while waiting:
        one = waiting.pop()
        waiting += parents.get(one, [])
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(fields[place]) for place in (11, 12, 13, 14)) / TICKS
    return total
