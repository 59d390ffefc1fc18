"""Room: journal/streams. What the folder of a shard should hold: `manifest`, a few lines a generation.

    begun generation=7 first=1200 seed=81985529216486895 check=…
    reached generation=7 upto=1900 bytes=81234 check=…
    lost first=0 upto=1200 check=…

A line is added when a generation begins, behind its file; when it ends or the node stops in order, with how
far it came at least; and when a start found messages gone that no other file tells of. Nothing is written a
message. Each line has a check of its own: a torn last one is as if it had not been written, and without the
whole file a start knows less, but serves what is there. The check covers the store and the shard too: the
manifest of another node or shard is a damaged one here. Dropped generations are in `dropped.log`.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import xxhash

from moorline.journal.disk import Disk, read_all
from moorline.journal.streams.segment import SegmentHead
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


class ManifestFound(NamedTuple):
    """What a manifest says."""

    is_there: bool
    listed: dict[int, Listed]
    lost: tuple[tuple[int, int], ...]
    """Messages that earlier starts found gone: first, and before which."""
    bad_lines: int
    size_bytes: int


def read_manifest(disk: Disk, folder: str, store: bytes) -> ManifestFound:
    """Changes nothing."""
    path = f"{folder}/{MANIFEST}"
    if not disk.exists(path):
        return ManifestFound(False, {}, (), 0, 0)
    data = read_all(disk, path)
    listed: dict[int, Listed] = {}
    lost: list[tuple[int, int]] = []
    bad = 0
    # Behind the last newline stands what a crash left of a line, or nothing.
    for line in data[: data.rfind(b"\n") + 1].decode(errors="replace").splitlines():
        kind, fields = _parsed(line, folder, store)
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
    return ManifestFound(True, listed, tuple(lost), bad, len(data))


def begun(head: SegmentHead) -> str:
    return f"begun generation={head.generation} first={head.first} seed={head.seed}"


def reached(generation: int, upto: int, size_bytes: int) -> str:
    return f"reached generation={generation} upto={upto} bytes={size_bytes}"


def lost(first: int, upto: int) -> str:
    return f"lost first={first} upto={upto}"


def add_lines(disk: Disk, folder: str, store: bytes, lines: Iterable[str]) -> bool:
    """Durable in any case: it happens rarely. False if there is no manifest: one that names these alone
    would say that there are no others."""
    try:
        file = disk.open(f"{folder}/{MANIFEST}", create=False)
    except FileNotFoundError:
        return False
    try:
        size = file.size()
        if size and file.read_at(size - 1, 1) != b"\n":
            # What a crash left of a line must not spoil ours.
            file.append(b"\n")
        file.append(_signed(lines, folder, store))
        file.sync()
    finally:
        file.close()
    return True


def write_manifest(
    disk: Disk,
    folder: str,
    store: bytes,
    listed: Iterable[Listed],
    gone: Iterable[tuple[int, int]],
    more: Iterable[str] = (),
) -> None:
    """All of it anew, whole or not at all; `more` are lines behind what is listed."""
    lines = [lost(*one) for one in gone]
    for one in listed:
        lines.append(begun(SegmentHead(0, one.generation, one.first, 0, one.seed)))
        if one.upto >= 0:
            lines.append(reached(one.generation, one.upto, one.bytes))
    lines += more
    disk.write_whole(f"{folder}/{MANIFEST}", _signed(lines, folder, store))


def is_long(reading: ManifestFound) -> bool:
    return reading.size_bytes > STREAM_MANIFEST_BYTES_MAX


def line_check(text: str, folder: str, store: bytes) -> str:
    """Of a line in the folder of a shard: only the same line of the same shard of the same node has it."""
    return xxhash.xxh3_64_hexdigest(store + f"/{folder}/{text}".encode())


def _signed(lines: Iterable[str], folder: str, store: bytes) -> bytes:
    return "".join(f"{one} check={line_check(one, folder, store)}\n" for one in lines).encode()


def _parsed(line: str, folder: str, store: bytes) -> tuple[str, dict[str, int]]:
    """Its kind and its numbers; an empty kind if it does not check."""
    text, _, check = line.rpartition(" check=")
    if not text or check != line_check(text, folder, store):
        return "", {}
    kind, *words = text.split()
    try:
        return kind, {
            name: int(value) for name, _, value in (word.partition("=") for word in words)
        }
    except ValueError:
        return "", {}
