"""Room: journal. What the folder of a shard should hold: `manifest`, a few lines a generation.

    begun generation=7 first=1200 seed=81985529216486895 check=…
    reached generation=7 upto=1900 bytes=81234 check=…
    lost first=0 upto=1200 check=…

A line is added when a generation begins, behind its file; when it ends or the node stops in order, with how
far it came at least; and when a start found messages gone that no other file tells of. Nothing is written a
message. Each line has a check of its own: a torn last one is as if it had not been written, and without the
whole file a start knows less, but serves what is there. Dropped generations are in `dropped.log`.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import xxhash

from moorline.journal.disk import Disk
from moorline.journal.segment import SegmentHead
from moorline.journal.segment_index import read_all
from moorline.limits import STREAM_MANIFEST_BYTES_MAX

MANIFEST = "manifest"


class Listed(msgspec.Struct, frozen=True):
    """A generation that was begun, and how far it came at least."""

    generation: int
    first: int
    seed: int
    upto: int = -1
    bytes: int = 0

    @property
    def end(self) -> int:
        return max(self.first, self.upto)


class Reading(NamedTuple):
    """What a manifest says."""

    is_there: bool
    listed: dict[int, Listed]
    lost: tuple[tuple[int, int], ...]
    """Messages that earlier starts found gone: first, and before which."""
    bad_lines: int
    size_bytes: int


def read_manifest(disk: Disk, folder: str) -> Reading:
    """Changes nothing."""
    path = f"{folder}/{MANIFEST}"
    if not disk.exists(path):
        return Reading(False, {}, (), 0, 0)
    data = read_all(disk, path)
    listed: dict[int, Listed] = {}
    lost: list[tuple[int, int]] = []
    bad = 0
    # Behind the last newline stands what a crash left of a line, or nothing.
    for line in data[: data.rfind(b"\n") + 1].decode(errors="replace").splitlines():
        kind, fields = _parsed(line)
        try:
            if kind == "begun":
                one = Listed(fields["generation"], fields["first"], fields["seed"])
                listed[one.generation] = one
            elif kind == "reached":
                known = listed[fields["generation"]]
                listed[known.generation] = msgspec.structs.replace(
                    known, upto=fields["upto"], bytes=fields["bytes"]
                )
            elif kind == "lost":
                lost.append((fields["first"], fields["upto"]))
            else:
                bad += 1
        except KeyError:
            bad += 1
    return Reading(True, listed, tuple(lost), bad, len(data))


def begun(head: SegmentHead) -> str:
    return _line(f"begun generation={head.generation} first={head.first} seed={head.seed}")


def reached(generation: int, upto: int, size_bytes: int) -> str:
    return _line(f"reached generation={generation} upto={upto} bytes={size_bytes}")


def lost(first: int, upto: int) -> str:
    return _line(f"lost first={first} upto={upto}")


def add_lines(disk: Disk, folder: str, lines: Iterable[str]) -> None:
    """Durable in any case: it happens rarely."""
    path = f"{folder}/{MANIFEST}"
    is_new = not disk.exists(path)
    file = disk.open(path, create=True)
    try:
        size = file.size()
        if size and file.read_at(size - 1, 1) != b"\n":
            # What a crash left of a line must not spoil ours.
            file.append(b"\n")
        file.append("".join(lines).encode())
        file.sync()
    finally:
        file.close()
    if is_new:
        disk.sync_folder(folder)


def write_manifest(
    disk: Disk, folder: str, listed: Iterable[Listed], gone: Iterable[tuple[int, int]]
) -> None:
    """All of it anew, whole or not at all."""
    lines = [lost(*one) for one in gone]
    for one in listed:
        lines.append(begun(SegmentHead(0, one.generation, one.first, 0, one.seed)))
        if one.upto >= 0:
            lines.append(reached(one.generation, one.upto, one.bytes))
    disk.write_whole(f"{folder}/{MANIFEST}", "".join(lines).encode())


def is_long(reading: Reading) -> bool:
    return reading.size_bytes > STREAM_MANIFEST_BYTES_MAX


def _line(text: str) -> str:
    return f"{text} check={xxhash.xxh3_64_hexdigest(text.encode())}\n"


def _parsed(line: str) -> tuple[str, dict[str, int]]:
    """Its kind and its numbers; an empty kind if it does not check."""
    text, _, check = line.rpartition(" check=")
    if not text or check != xxhash.xxh3_64_hexdigest(text.encode()):
        return "", {}
    kind, *words = text.split()
    try:
        return kind, {
            name: int(value) for name, _, value in (word.partition("=") for word in words)
        }
    except ValueError:
        return "", {}
