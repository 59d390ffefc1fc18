"""Room: journal. What retention took from a shard: one line a generation, in `dropped.log`.

    generation=7 first=1200 upto=1900 count=700 bytes=81234 reason=AGE check=5f0c…

A line that does not check is no line: files are removed because of them.

The line is written before the files are removed. So a start knows what it has to finish, and how far
offsets had come even if nothing else is left.
"""

import msgspec
import xxhash

from moorline.journal.disk import Disk
from moorline.limits import DROPPED_LOG_READ_BYTES_MAX

AGE = "AGE"
BYTES = "BYTES"

_NAME = "dropped.log"


class Dropped(msgspec.Struct, frozen=True):
    """Messages `first` to before `upto` are gone; `count` of them could be read until then."""

    shard: int
    generation: int
    first: int
    upto: int
    count: int
    bytes: int
    reason: str


def log_dropped(disk: Disk, folder: str, gone: Dropped) -> None:
    """Durable in any case: it happens rarely."""
    fields = msgspec.structs.asdict(gone)
    line = " ".join(f"{name}={value}" for name, value in fields.items() if name != "shard")
    path = f"{folder}/{_NAME}"
    file = disk.open(path, create=True)
    try:
        file.append(f"{line} check={_check(line)}\n".encode())
        file.sync()
    finally:
        file.close()
    disk.sync_folder(folder)


def read_dropped(disk: Disk, folder: str, shard: int) -> dict[int, Dropped]:
    """The last lines, by generation. A torn last line is cut off: its files are still there."""
    path = f"{folder}/{_NAME}"
    if not disk.exists(path):
        return {}
    file = disk.open(path, create=False)
    try:
        size = file.size()
        start = max(0, size - DROPPED_LOG_READ_BYTES_MAX)
        data = file.read_at(start, size - start)
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            file.truncate(start + whole)
        # It may have been only in the system's memory; now files are removed because of it.
        file.sync()
    finally:
        file.close()
    found = (_parsed(line, shard) for line in data[:whole].decode(errors="replace").splitlines())
    return {gone.generation: gone for gone in found if gone is not None}


def _check(line: str) -> str:
    return xxhash.xxh3_64_hexdigest(line.encode())


def _parsed(line: str, shard: int) -> Dropped | None:
    line, _, check = line.rpartition(" check=")
    if check != _check(line):
        return None
    fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
    try:
        return Dropped(
            shard,
            int(fields["generation"]),
            int(fields["first"]),
            int(fields["upto"]),
            int(fields["count"]),
            int(fields["bytes"]),
            fields["reason"],
        )
    except (KeyError, ValueError):
        return None
