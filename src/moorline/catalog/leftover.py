"""Room: catalog. What a killed node left behind: a Postgres that still ends, or its pid file.

Processes are known by what /proc shows to everybody (owner and command line), so that it works in
containers that may not look deeper. The node's lock on its data folder is held before we come here:
whatever Postgres still runs on the catalog folder has lost its node.
"""

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from moorline.errors import CatalogUnreachable
from moorline.limits import CATALOG_KILL_MS_MAX, CATALOG_LEFTOVER_MS_MAX, CATALOG_POLL_MS

PROC = Path("/proc")
PID_FILE = "postmaster.pid"


def cluster_name(folder: Path) -> str:
    """Stands in the title of every Postgres process of this folder, wherever the folder moves."""
    found = folder.stat()
    return f"moorline-{found.st_dev:x}-{found.st_ino:x}"


async def end_leftover(folder: Path) -> None:
    """Returns when no process works on the folder and no pid file bars the way."""
    ladder = (
        # Told to end by its death signal, most likely; it writes its checkpoint.
        (None, CATALOG_LEFTOVER_MS_MAX),
        (signal.SIGINT, CATALOG_LEFTOVER_MS_MAX),
        (signal.SIGQUIT, CATALOG_KILL_MS_MAX),
        (signal.SIGKILL, CATALOG_KILL_MS_MAX),
    )
    for sign, wait_ms in ladder:
        if sign is not None:
            _signal(folder, sign)
        if await _ended(folder, wait_ms):
            _remove_stale_pid_file(folder)
            return
    raise CatalogUnreachable(
        f"a Postgres of an earlier node still runs on {folder} and does not end: "
        f"end the processes {processes_on(folder)}, then start again."
    )


def processes_on(folder: Path) -> list[int]:
    """The Postgres processes on this folder, the postmaster first if it lives."""
    owner = folder.stat().st_uid
    name = cluster_name(folder).encode()
    postmaster = _pid_in_file(folder)
    found: list[int] = []
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if not entry.name.isdecimal():
            continue
        pid = int(entry.name)
        # It may end between any two looks.
        with suppress(OSError):
            if entry.stat().st_uid != owner:
                continue
            command = (entry / "cmdline").read_bytes()
            if _is_ours(command, name) or (pid == postmaster and _serves(command, folder)):
                found.append(pid)
    return sorted(found, key=lambda pid: (pid != postmaster, pid))


def _is_ours(command: bytes, name: bytes) -> bool:
    """The postmaster carries the name as an argument, its children in their titles."""
    if command.startswith(b"postgres: " + name + b": "):
        return True
    arguments = command.split(b"\0")
    return arguments[0].endswith(b"/postgres") and b"cluster_name=" + name in arguments


def _serves(command: bytes, folder: Path) -> bool:
    """Whether this is the command line of a postmaster that somebody else started on the folder."""
    arguments = command.split(b"\0")
    if Path(os.fsdecode(arguments[0])).name != "postgres" or b"-D" not in arguments[:-1]:
        return False
    served = os.fsdecode(arguments[arguments.index(b"-D") + 1])
    return Path(served).resolve() == folder.resolve()


def _pid_in_file(folder: Path) -> int | None:
    try:
        return int((folder / PID_FILE).read_text().partition("\n")[0])
    except (FileNotFoundError, ValueError):
        # An empty file is what a full disk or a crash in the middle of its making leaves.
        return None


def _signal(folder: Path, sign: signal.Signals) -> None:
    pids = processes_on(folder)
    # The postmaster tells its children. Only the last signal goes to all: a busy child notices
    # late that its postmaster is gone.
    everybody = sign is signal.SIGKILL or _pid_in_file(folder) not in pids
    for pid in pids if everybody else pids[:1]:
        with suppress(ProcessLookupError):
            os.kill(pid, sign)


async def _ended(folder: Path, wait_ms: int) -> bool:
    deadline = time.monotonic() + wait_ms / 1000
    while processes_on(folder):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(CATALOG_POLL_MS / 1000)
    return True


def _remove_stale_pid_file(folder: Path) -> None:
    """Removes a pid file whose number now belongs to nobody, or to another program.

    Postgres would refuse to start if that other program is of the same user. If it is a Postgres
    that we cannot place, the file stays and Postgres decides.
    """
    pid = _pid_in_file(folder)
    if pid is not None:
        with suppress(OSError):
            arguments = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
            is_postmaster = Path(os.fsdecode(arguments[0])).name == "postgres"
            if is_postmaster and b"-D" not in arguments:
                return
    (folder / PID_FILE).unlink(missing_ok=True)
