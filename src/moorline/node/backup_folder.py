"""Room: node. A backup as it lies on a disk: written beside a running node, proven, and read again.

    backup.json      what it is of, the catalog's tables, the digest of all files; written last: without it
                     the backup is unfinished, and nothing takes it
    files            a line of JSON for each file: [path, bytes, XXH3-128 of what is in it]
    data/…           the files of the data folder
    catalog/…        the texts of the catalog's tables (catalog/copying.py)

The digest is that of the lines of `files`: how many, and the XOR of their hashes. Two backups, or a backup
and what was restored from it, with the same digest have the same files with the same bytes.

Steps, each told to `at_step`: COPIED (all files are written), SYNCED (they are durable), PROVEN (read again
from the disk, and the same), DONE (`backup.json` is there).
"""

import os
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import msgspec
import xxhash

from moorline.catalog.copying import digest_of
from moorline.core.sets.digest import Digest
from moorline.errors import BackupDamaged, BackupRefused, DiskFull, FormatTooNew
from moorline.journal.disk import FileDisk
from moorline.journal.held_files import held_list
from moorline.limits import BACKUP_LIST_BYTES_MAX, BACKUP_PART_BYTES, DISK_FREE_BYTES_MIN, MIB
from moorline.node.backup import CATALOG, FACTS, CutFacts
from moorline.node.folder import write_durably

VERSION = 1
MANIFEST = "backup.json"
LIST = "files"
DATA = "data"

Seen = Callable[[int, int], None]
"""Hears how many bytes are done, and of how many."""


class Step(Enum):
    COPIED = "copied"
    SYNCED = "synced"
    PROVEN = "proven"
    CATALOG = "catalog"
    AHEAD = "ahead"
    DONE = "done"


AtStep = Callable[[Step], None]


class Manifest(msgspec.Struct, frozen=True):
    """`backup.json`."""

    version: int
    files: int
    bytes: int
    digest: str
    of: CutFacts
    check: str = ""
    """XXH3-128 of all that is before it."""

    def encoded(self) -> str:
        check = xxhash.xxh3_128_hexdigest(
            msgspec.json.encode(msgspec.structs.replace(self, check=""))
        )
        return msgspec.json.encode(msgspec.structs.replace(self, check=check)).decode()


class Kept(NamedTuple):
    """A line of `files`."""

    path: str
    size: int
    hash: str

    def encoded(self) -> bytes:
        return msgspec.json.encode(tuple(self))


class Version(msgspec.Struct, frozen=True):
    """What every version of a backup has, whatever else changes."""

    version: int


def write_backup(
    held: Path,
    target: Path,
    bytes_total: int,
    seen: Seen,
    at_step: AtStep,
    given_up: Callable[[], bool],
) -> Manifest:
    """Copies what a node holds, and proves it. Raises `BackupRefused` where something stands in its place."""
    facts = msgspec.json.decode((held / FACTS).read_bytes(), type=CutFacts)
    _check_outside(target, Path(facts.data))
    make_empty(target)
    check_room(target, bytes_total)
    # Twice the bytes: they are written, and read again.
    progress = Progress(seen, 2 * bytes_total)
    with (target / LIST).open("wb") as out:
        for path, source, size in held_list(held):
            inside = path if path.startswith(f"{CATALOG}/") else f"{DATA}/{path}"
            kept = Kept(inside, size, copied(source, target / inside, size, progress))
            out.write(kept.encoded() + b"\n")
            if given_up():
                raise BackupRefused(
                    f"the backup in {target} was given up, and is not whole: remove it"
                )
    at_step(Step.COPIED)
    FileDisk(target).sync_all()
    at_step(Step.SYNCED)
    manifest = prove(target, facts, progress, given_up)
    at_step(Step.PROVEN)
    write_durably(target / MANIFEST, manifest.encoded())
    at_step(Step.DONE)
    return manifest


def prove(
    target: Path, facts: CutFacts, seen: "Progress", given_up: Callable[[], bool] = lambda: False
) -> Manifest:
    """Reads all of it again, from the disk, and compares it with the list; what the manifest is to say."""
    digest, size, texts = Digest.empty(), 0, set[str]()
    for kept in listed(target):
        check_file(target / kept.path, kept, seen)
        digest, size = digest.add(kept.encoded()), size + kept.size
        if kept.path.startswith(f"{CATALOG}/"):
            texts.add(kept.path)
        if given_up():
            raise BackupRefused(f"the backup in {target} was given up, and is not whole: remove it")
    # Behind that: a text that is cut within a line is damaged, and no mistake of ours.
    tables = []
    for table in facts.catalog.tables:
        path = f"{CATALOG}/{table.name}.copy"
        if path not in texts:
            raise BackupDamaged(f"{target}: its list of files does not have {path}")
        rows = digest_of(target / path)
        tables.append(msgspec.structs.replace(table, rows=rows.count, digest=str(rows)))
    facts = msgspec.structs.replace(
        facts, catalog=msgspec.structs.replace(facts.catalog, tables=tables)
    )
    return Manifest(VERSION, digest.count, size, str(digest), facts)


def check_backup(folder: Path, seen: Seen) -> Manifest:
    """Whether all that was written is there, and as it was."""
    manifest = read_manifest(folder)
    found = prove(folder, manifest.of, Progress(seen, manifest.bytes))
    if (found.digest, found.of.catalog) != (manifest.digest, manifest.of.catalog):
        raise BackupDamaged(f"{folder}: its list of files is not the one that was written")
    return manifest


def read_manifest(folder: Path) -> Manifest:
    file = folder / MANIFEST
    try:
        data = file.read_bytes()
    except OSError as error:
        unfinished = (folder / LIST).exists()
        raise BackupRefused(
            f"{folder} holds a backup that did not come to its end: make another one"
            if unfinished
            else f"{folder} holds no backup: {file.name}: {error.strerror}"
        ) from error
    try:
        version = msgspec.json.decode(data, type=Version).version
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BackupDamaged(f"{file} is damaged") from error
    if version > VERSION:
        raise FormatTooNew(
            f"{folder} was written by a newer Moorline (format {version}, this one knows up to {VERSION}): "
            "restore it with that one"
        )
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BackupDamaged(f"{file} is damaged") from error
    if found.encoded().encode() != data:
        raise BackupDamaged(f"{file} is damaged: its check is not that of what it says")
    return found


def listed(folder: Path) -> Iterator[Kept]:
    """The lines of `files`; each names a file within the backup."""
    decoder = msgspec.json.Decoder(tuple[str, int, str])
    try:
        with (folder / LIST).open("rb") as lines:
            while line := lines.readline(BACKUP_LIST_BYTES_MAX):
                kept = Kept(*decoder.decode(line))
                parts = kept.path.split("/")
                if parts[0] not in (DATA, CATALOG) or {"", ".", ".."} & set(parts):
                    raise BackupDamaged(f"{folder / LIST} names a file that cannot be in a backup")
                yield kept
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BackupDamaged(f"{folder / LIST} cannot be read: {error}") from error


def copied(source: Path, target: Path, size: int, seen: "Progress") -> str:
    """The hash of the first `size` bytes, which are in the target then."""
    found = xxhash.xxh3_128()
    left = size
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with source.open("rb", buffering=0) as reading, open(descriptor, "wb", buffering=0) as out:
            while left:
                part = reading.read(min(left, BACKUP_PART_BYTES))
                if not part:
                    raise BackupDamaged(f"{source} has {left} bytes less than it should")
                found.update(part)
                rest = memoryview(part)
                while rest:
                    rest = rest[out.write(rest) :]
                left -= len(part)
                seen.add(len(part))
    except OSError as error:
        raise _failed(target, error) from error
    return found.hexdigest()


def check_file(file: Path, kept: Kept, seen: "Progress") -> None:
    """Whether what is on the disk is what was listed."""
    found, size = xxhash.xxh3_128(), 0
    try:
        with file.open("rb", buffering=0) as reading:
            # Not what memory has of it: what was written is durable, and is read back.
            os.posix_fadvise(reading.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while part := reading.read(BACKUP_PART_BYTES):
                found.update(part)
                size += len(part)
                seen.add(len(part))
    except OSError as error:
        raise BackupDamaged(f"{file} cannot be read: {error.strerror}") from error
    if (size, found.hexdigest()) != (kept.size, kept.hash):
        raise BackupDamaged(f"{file} is not as it was written: do not restore from this backup")


def make_empty(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = os.listdir(folder)
    except OSError as error:
        raise BackupRefused(f"{folder} cannot be used: {error.strerror}") from error
    if names:
        raise BackupRefused(f"{folder} is not empty: give the name of a new folder")


def _check_outside(folder: Path, data: Path) -> None:
    """A backup within the folder that it is of would go with it, and be a part of the next one."""
    if folder.resolve().is_relative_to(data.resolve()):
        raise BackupRefused(
            f"{folder} is inside of the data folder {data}: give a folder outside, best on another disk"
        )


def check_room(folder: Path, wanted_bytes: int) -> None:
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if free < wanted_bytes + DISK_FREE_BYTES_MIN:
        raise DiskFull(
            f"{folder} has {free // MIB} MiB left, and {wanted_bytes // MIB} are to be written: "
            "choose another disk"
        )


def _failed(where: Path, error: OSError) -> Exception:
    return BackupRefused(f"{where}: {error.strerror}: the copy is not whole, remove it")


class Progress:
    def __init__(self, seen: Seen, total: int) -> None:
        self._seen, self._total, self._done = seen, total, 0

    def add(self, count: int) -> None:
        self._done += count
        self._seen(self._done, self._total)
