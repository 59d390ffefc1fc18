"""Room: journal/staging. The log of the decisions to publish staged rows (journal.staging.store).

    log     magic   8 bytes "MOORCMT1"
            seed    u64     drawn for this file
    record  length  u32     bytes of the payload
            check   u64     XXH3-64 with the seed over the payload
            payload msgpack: `Fence`, `Decided`, `Advanced` or `Completed`

All numbers are little-endian. A decision counts from the moment its record is durable; `Advanced` says how
much of it is published, `Completed` that all of it is.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec
import xxhash

from moorline.errors import LogDamaged
from moorline.journal.disk import Disk, DiskFile

_HEAD = struct.Struct("<8sQ")
_MAGIC = b"MOORCMT1"
_FRAME = struct.Struct("<IQ")


class Fence(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The last batch of a query that was decided and published."""

    query: str
    batch: int
    time_s: int


class Decided(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """These stages are the batch, in the order in which they are published."""

    query: str
    batch: int
    target: int
    stages: list[bytes]
    time_s: int
    aside: str = ""
    """The topic for rows that queues refuse, if they are not to fail the batch."""


class Advanced(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Published are all stages before that one, and of it the rows before that row."""

    query: str
    place: int
    row: int


class Completed(msgspec.Struct, frozen=True, array_like=True, tag=4):
    query: str
    time_s: int


Record: TypeAlias = Fence | Decided | Advanced | Completed

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class CommitLog:
    """Read once, then rewritten, then appended to."""

    def __init__(self, disk: Disk, path: str, *, sync: bool, draw: Callable[[int], bytes]) -> None:
        self._disk = disk
        self._path = path
        self._sync = sync
        self._draw = draw
        self._file: DiskFile | None = None
        self._seed = 0
        self.size_bytes = 0

    def read(self) -> Iterator[Record]:
        """All records; a torn end is passed over, damage before the end is an error."""
        if not self._disk.exists(self._path):
            return
        file = self._disk.open(self._path, create=False)
        try:
            data = file.read_at(0, file.size())
        finally:
            file.close()
        # It was written whole: a head that is none is damage, and no crash.
        if len(data) < _HEAD.size or not data.startswith(_MAGIC):
            raise self._damaged(0)
        _, seed = _HEAD.unpack_from(data)
        place = _HEAD.size
        while (payload := _payload_at(data, place, seed)) is not None:
            yield _decoder.decode(payload)
            place += _FRAME.size + len(payload)
        behind = range(place + 1, len(data) - _FRAME.size)
        if any(_payload_at(data, later, seed) is not None for later in behind):
            raise self._damaged(place)

    def rewrite(self, records: Iterable[Record]) -> None:
        """These records and no others; a crash leaves the old log or the new."""
        self.close()
        self._seed = int.from_bytes(self._draw(8), "little")
        head = _HEAD.pack(_MAGIC, self._seed)
        data = head + b"".join(self._framed(record) for record in records)
        self._disk.write_whole(self._path, data)
        self._file = self._disk.open(self._path, create=False)
        self.size_bytes = len(data)

    def write(self, record: Record) -> None:
        """The record is durable when this returns. After an error nobody knows whether it is."""
        assert self._file is not None
        data = self._framed(record)
        self._file.append(data)
        if self._sync:
            self._file.sync()
        self.size_bytes += len(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _framed(self, record: Record) -> bytes:
        payload = _encoder.encode(record)
        return _FRAME.pack(len(payload), xxhash.xxh3_64_intdigest(payload, self._seed)) + payload

    def _damaged(self, place: int) -> LogDamaged:
        return LogDamaged(
            f"the log of staged commits ({self._path}) is damaged at byte {place}: restore it from a "
            "copy, or remove it and with it the memory of which batches are published"
        )


def _payload_at(data: bytes, place: int, seed: int) -> bytes | None:
    if len(data) - place < _FRAME.size:
        return None
    length, check = _FRAME.unpack_from(data, place)
    if not 0 < length <= len(data) - place - _FRAME.size:
        return None
    payload = data[place + _FRAME.size : place + _FRAME.size + length]
    return payload if xxhash.xxh3_64_intdigest(payload, seed) == check else None
