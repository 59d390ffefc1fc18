"""Room: node. The data folder: made, checked, and held by one node at a time.

    moorline-data/
        lock       held by flock while a node runs; holds its process id
        format     which formats the folder has (node/data_format.py)
        node.id    drawn once: the same node, whatever its name and address
        node.home  the number of its home, which the ids of its queues end with
        node.moves  how often that has moved from node to node; missing where it never has
        clock.json when the node was last seen running, by which clock
        node.starts  the last starts of this folder (node/identity.py)
        node.stores  which of the stores below it has had (node/stores.py)
        node.json  addresses of the node that runs, for `moor status`
        catalog/   the embedded Postgres
        queues/    the journals
        streams/   the messages of topics
        staging/   what Spark has written and not committed yet
        homes/     homes that moved to this process, each in a data folder of its own
        moved/     what homes left here that moved away

The lock is the kernel's: it goes with the process, so a killed node leaves nothing to clean up.
"""

import contextlib
import errno
import fcntl
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from moorline.config.addresses import Address
from moorline.errors import DiskFull, FolderInUse, FolderUnusable, Malformed
from moorline.ids import HOME_BYTES, ID_BYTES, NO_HOME, id_of, text_of
from moorline.limits import DISK_FREE_BYTES_MIN, LOCK_LOOK_MS, LOCK_LOOKS, MIB
from moorline.node.data_format import NAME as FORMAT
from moorline.node.data_format import NEWEST, check_format, text_of_format

IDENTITY = "node.id"
HOME = "node.home"
NOTE = "node.json"
MOVES = "node.moves"

HOME_FILES = (IDENTITY, HOME, "node.starts", "node.stores", "clock.json", "format")
"""The files of a home: what goes with it to another node, besides its folders."""
HOME_FOLDERS = ("queues", "streams", "staging")
HOME_ENTRIES = (IDENTITY, HOME, MOVES, "node.starts", "node.stores", *HOME_FOLDERS)
"""What a home leaves behind where it was."""

log = logging.getLogger("moorline.node")


class HeldFolder(NamedTuple):
    """A data folder, and the open file whose lock is held on it."""

    path: Path
    descriptor: int


@contextlib.contextmanager
def held(folder: Path) -> Iterator[Path]:
    """The folder, made if it was missing, with its lock held."""
    with locked(folder) as found:
        yield found.path


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[HeldFolder]:
    """The same, with the lock itself."""
    folder = Path(os.path.abspath(folder))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        _lock(descriptor, folder)
        _check_rights(folder)
        check_format(folder)
        _sign(descriptor)
        yield HeldFolder(folder, descriptor)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise no_room(folder) from error
        raise
    finally:
        os.close(descriptor)


def is_held(folder: Path) -> bool:
    """Whether a node runs on it."""
    try:
        with (folder / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def is_new(folder: Path) -> bool:
    """Whether no node has ever run to its start here."""
    return not (folder / IDENTITY).exists()


def note_format(folder: Path) -> None:
    """Before anything else is written: from now on an earlier program knows that this is not for it."""
    if (folder / FORMAT).exists() and check_format(folder) == NEWEST:
        return
    try:
        write_durably(folder / FORMAT, text_of_format())
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        log.warning("no room to note the formats of the data folder: the next start does")


def identity(folder: Path) -> bytes:
    """The id of the node that owns this folder, drawn at its first start."""
    file = folder / IDENTITY
    if not file.exists():
        write_durably(file, text_of(secrets.token_bytes(ID_BYTES)) + "\n")
    try:
        return id_of(file.read_text("ascii").strip())
    except (UnicodeDecodeError, Malformed) as error:
        raise FolderUnusable(
            f"{file} holds no id: put it back from a backup, or remove it"
        ) from error


def home_number(folder: Path) -> bytes:
    """The number of this folder's home; empty if it has none yet: it is new, or of a version without them."""
    file = folder / HOME
    try:
        number = bytes.fromhex(file.read_text("ascii").strip())
    except FileNotFoundError:
        return b""
    except (OSError, ValueError) as error:
        raise _no_home(file) from error
    if len(number) != HOME_BYTES or number == NO_HOME:
        raise _no_home(file)
    return number


def note_home_number(folder: Path, number: bytes) -> None:
    """Behind the claim, which made it durable in the catalog; on a full disk the next start notes it."""
    if home_number(folder) == number:
        return
    try:
        write_durably(folder / HOME, number.hex() + "\n")
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        log.warning("no room to note the number of this node's home: the catalog alone has it")


def home_moves(folder: Path) -> int:
    """How often the home of this folder had moved when it came here."""
    file = folder / MOVES
    try:
        text = file.read_text("ascii").strip()
    except FileNotFoundError:
        return 0
    except (OSError, UnicodeDecodeError) as error:
        raise FolderUnusable(f"{file} cannot be read: put it back from a backup") from error
    if not text.isdecimal() or len(text) > 9:
        raise FolderUnusable(f"{file} holds no number of moves: put it back from a backup")
    return int(text)


def note_home_moves(folder: Path, moves: int) -> None:
    write_durably(folder / MOVES, f"{moves}\n")


def _no_home(file: Path) -> FolderUnusable:
    return FolderUnusable(
        f"{file} holds no number of a home: put it back from a backup, or remove it; the catalog has it too"
    )


def write_durably(file: Path, text: str) -> None:
    """A small file, whole or as it was before, also after a power cut."""
    fresh = file.with_name(file.name + ".new")
    with fresh.open("w", encoding="ascii") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def opening(folder: Path) -> Iterator[None]:
    """While files of ours are opened for the first time: what stands in their place is told by its name."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise no_room(folder) from error
        found = f"{error.strerror or error}: {error.filename or folder}"
        if error.errno == errno.EIO:
            raise FolderUnusable(f"the disk cannot be read: {found}") from error
        raise FolderUnusable(
            f"{found}: a file of this node should be there, which it can read and write. Move what stands "
            f"in its place out of {folder}, or give this user the right to it, and start again"
        ) from error


def no_room(folder: Path) -> DiskFull:
    return DiskFull(f"no room left on the disk of {folder}: free some, or choose another --data")


def _lock(descriptor: int, folder: Path) -> None:
    for looks_left in reversed(range(LOCK_LOOKS)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if looks_left:
                # A command that looks whether a node runs holds it for a moment (cli/endpoint.py).
                time.sleep(LOCK_LOOK_MS / 1_000)
                continue
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            raise FolderInUse(
                f"a node (process {holder or 'unknown'}) runs on {folder}: "
                "stop it, or choose another --data"
            ) from error
    try:
        is_here = os.path.samestat(os.fstat(descriptor), os.stat(folder / "lock"))
    except FileNotFoundError:
        is_here = False
    if not is_here:
        # Removed between our opening and our locking: the next who comes would hold another lock.
        raise FolderInUse(f"{folder / 'lock'} was removed while a node started: start again")


def _sign(descriptor: int) -> None:
    """Leaves our process id for whoever finds the lock held; on a full disk that is done without."""
    text = f"{os.getpid()}\n".encode()
    try:
        # In the place of the one before: cut first, the file would need a block anew.
        os.pwrite(descriptor, text, 0)
        os.ftruncate(descriptor, len(text))
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise


def _check_rights(folder: Path) -> None:
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise _unusable(folder, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def check_room(folder: Path) -> None:
    """Refuses to begin something new in a folder without room; what is there already is used without it."""
    free = shutil.disk_usage(folder).free
    if free < DISK_FREE_BYTES_MIN:
        raise DiskFull(
            f"only {free // MIB} MiB left on the disk of {folder}, a new node and an import need "
            f"{DISK_FREE_BYTES_MIN // MIB}: free some, or choose another --data"
        )


def _unusable(folder: Path, error: OSError) -> Exception:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return no_room(folder)
    return FolderUnusable(
        f"the data folder {folder} cannot be used: {error.strerror}: "
        "give this user rights to it, or choose another --data"
    )


def leave_note(
    stack: contextlib.AsyncExitStack,
    folder: Path,
    node: str,
    home: str,
    addresses: Iterable[Address],
    http: Address | None,
) -> None:
    """A file that tells other commands on this machine where the node listens; removed at the end."""
    note = folder / NOTE
    note.write_bytes(
        msgspec.json.encode(
            {
                "node": node,
                "home": home,
                "addresses": [str(address) for address in addresses],
                "http": str(http or ""),
                "process": os.getpid(),
            }
        )
    )
    stack.callback(note.unlink, missing_ok=True)
