"""Room: journal/streams. What retention took from a shard: one line a generation, in `dropped.log`.

    generation=7 first=1200 upto=1900 count=700 bytes=81234 reason=AGE seed=81985529216486895 check=5f0c…

Files are removed because of them, so a line says of which segment it is, and its check covers the store and
the shard: a line of another node or shard is no line here, and a segment with another seed is not removed.

The line is written before the files are removed. So a start knows what it has to finish, and how far
offsets had come even if nothing else is left.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from moorline.journal.disk import Disk
from moorline.journal.streams.manifest import line_check
from moorline.limits import DROPPED_LOG_READ_BYTES_MAX

AGE = "AGE"
BYTES = "BYTES"

DROPPED_LOG = "dropped.log"


class Dropped(msgspec.Struct, frozen=True):
    """Messages `first` to before `upto` are gone; `count` of them could be read until then."""

    shard: int
    generation: int
    first: int
    upto: int
    count: int
    bytes: int
    reason: str
    seed: int
    """That of its segment; 0 if the segment could not tell."""


class DroppedReading(NamedTuple):
    """What a `dropped.log` says."""

    dropped: dict[int, Dropped]
    bad_lines: int
    """Whole lines that are damaged, or not of this shard of this node."""


def log_dropped(disk: Disk, folder: str, store: bytes, gone: Dropped) -> None:
    """Durable in any case: it happens rarely."""
    file = disk.open(f"{folder}/{DROPPED_LOG}", create=True)
    try:
        file.append(_line(gone, folder, store))
        file.sync()
    finally:
        file.close()
    disk.sync_folder(folder)


def write_dropped(disk: Disk, folder: str, store: bytes, dropped: Iterable[Dropped]) -> None:
    """All of it anew, whole or not at all."""
    lines = [_line(gone, folder, store) for gone in dropped]
    disk.write_whole(f"{folder}/{DROPPED_LOG}", b"".join(lines))


def read_dropped(disk: Disk, folder: str, shard: int, store: bytes) -> DroppedReading:
    """The last lines, by generation. A torn last line is cut off: its files are still there."""
    path = f"{folder}/{DROPPED_LOG}"
    if not disk.exists(path):
        return DroppedReading({}, 0)
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
    # What is read may begin in the middle of a line.
    begin = data.find(b"\n") + 1 if start else 0
    lines = data[begin:whole].decode(errors="replace").splitlines()
    found = [_parsed(line, folder, shard, store) for line in lines]
    dropped = {gone.generation: gone for gone in found if gone is not None}
    return DroppedReading(dropped, found.count(None))


def _line(gone: Dropped, folder: str, store: bytes) -> bytes:
    fields = msgspec.structs.asdict(gone)
    line = " ".join(f"{name}={value}" for name, value in fields.items() if name != "shard")
    return f"{line} check={line_check(line, folder, store)}\n".encode()


def _parsed(line: str, folder: str, shard: int, store: bytes) -> Dropped | None:
    line, _, check = line.rpartition(" check=")
    if check != line_check(line, folder, store):
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
            int(fields["seed"]),
        )
    except (KeyError, ValueError):
        return None
