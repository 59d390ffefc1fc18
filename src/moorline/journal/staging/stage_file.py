"""Room: journal/staging. The file of a stage: what one attempt of one task wrote.

    stage   magic   8 bytes "MOORSTG1"
            length  u32     bytes of the facts
            check   u64     XXH3-64 of the facts
            facts   msgpack of `StageFacts`
    chunk   length  u32     bytes of its rows, never 0
            count   u32     how many rows
            check   u64     XXH3-64 of the rows
            rows    as they came over the wire (wire.staging)
    end     zero    u32     no chunk has this length
            count   u64     rows of all chunks
            hash    16 bytes, XXH3-128 of the rows of all chunks
            check   u64     XXH3-64 of the two

All numbers are little-endian. A stage without an end is garbage.
"""

import struct
from collections.abc import Callable, Generator
from typing import NamedTuple

import msgspec
import xxhash

from moorline.errors import JournalDamaged
from moorline.journal.disk import Disk, DiskFile
from moorline.limits import STAGE_FACTS_BYTES_MAX
from moorline.wire.staging import HASH_BYTES

_STAGE_HEAD = struct.Struct("<8sIQ")
_STAGE_MAGIC = b"MOORSTG1"
_CHUNK = struct.Struct("<IIQ")
_END = struct.Struct(f"<IQ{HASH_BYTES}sQ")
_END_CHECKED = struct.Struct(f"<Q{HASH_BYTES}s")

_check = xxhash.xxh3_64_intdigest


class StageFacts(msgspec.Struct, frozen=True, array_like=True):
    query: str
    batch: int
    partition: int
    attempt: int
    target: int
    created_s: int


_encoder = msgspec.msgpack.Encoder()
_facts_decoder = msgspec.msgpack.Decoder(StageFacts)


class Chunk(NamedTuple):
    first_row: int
    upto_row: int
    rows: bytes


Look = Callable[[int, bytes], None]
"""Sees the target and the rows of each chunk."""


class Stage:
    """One stage. It holds no open file: there may be many, and most of them wait."""

    __slots__ = ("count", "facts", "hash", "hasher", "is_closed", "path", "start")

    def __init__(self, path: str, facts: StageFacts, start: int) -> None:
        self.path = path
        self.facts = facts
        self.start = start
        """Where its first chunk begins."""
        self.count = 0
        self.hash = b""
        self.hasher = xxhash.xxh3_128()
        self.is_closed = False

    def append(self, file: DiskFile, rows: bytes, count: int) -> None:
        """One more chunk."""
        assert not self.is_closed
        file.append_many([_CHUNK.pack(len(rows), count, _check(rows)), rows])
        self.hasher.update(rows)
        self.count += count

    def append_end(self, file: DiskFile) -> None:
        assert not self.is_closed
        checked = _END_CHECKED.pack(self.count, self.hash)
        file.append(_END.pack(0, self.count, self.hash, _check(checked)))

    def chunks(self, disk: Disk, first_row: int) -> Generator[Chunk, None, None]:
        """Its chunks, from the one with that row on; it is closed."""
        assert self.is_closed
        try:
            file = disk.open(self.path, create=False)
        except FileNotFoundError:
            raise self.damaged(0) from None
        try:
            row, place = 0, self.start
            while row < self.count:
                length, count, check = _CHUNK.unpack(self._exactly(file, place, _CHUNK.size))
                if row + count > first_row:
                    rows = self._exactly(file, place + _CHUNK.size, length)
                    if _check(rows) != check:
                        raise self.damaged(place)
                    yield Chunk(row, row + count, rows)
                row += count
                place += _CHUNK.size + length
        finally:
            file.close()

    def check(self, disk: Disk, look: Look | None = None) -> None:
        """Reads every byte, and refuses what is not as it was written; `look` sees each chunk on the way."""
        hasher = xxhash.xxh3_128()
        for chunk in self.chunks(disk, 0):
            hasher.update(chunk.rows)
            if look is not None:
                look(self.facts.target, chunk.rows)
        if hasher.digest() != self.hash:
            raise self.damaged(self.start)

    def _exactly(self, file: DiskFile, place: int, length: int) -> bytes:
        data = file.read_at(place, length)
        if len(data) < length:
            raise self.damaged(place)
        return data

    def damaged(self, place: int) -> JournalDamaged:
        return JournalDamaged(f"the staged rows in {self.path} are damaged at byte {place}")


def begun(path: str, facts: StageFacts) -> tuple[Stage, bytes]:
    """A stage that begins, and the head of its file."""
    encoded = _encoder.encode(facts)
    head = _STAGE_HEAD.pack(_STAGE_MAGIC, len(encoded), _check(encoded)) + encoded
    return Stage(path, facts, len(head)), head


def read_stage(disk: Disk, path: str) -> Stage | None:
    """A stage that was closed; None for one that was not."""
    file = disk.open(path, create=False)
    try:
        size = file.size()
        head = file.read_at(0, _STAGE_HEAD.size)
        if len(head) < _STAGE_HEAD.size or size < _STAGE_HEAD.size + _END.size:
            return None
        magic, length, check = _STAGE_HEAD.unpack(head)
        if magic != _STAGE_MAGIC or length > STAGE_FACTS_BYTES_MAX:
            return None
        encoded = file.read_at(_STAGE_HEAD.size, length)
        zero, count, hash_, end_check = _END.unpack(file.read_at(size - _END.size, _END.size))
    finally:
        file.close()
    if _check(encoded) != check or zero or _check(_END_CHECKED.pack(count, hash_)) != end_check:
        return None
    stage = Stage(path, _facts_decoder.decode(encoded), _STAGE_HEAD.size + length)
    stage.count, stage.hash, stage.is_closed = count, hash_, True
    return stage
