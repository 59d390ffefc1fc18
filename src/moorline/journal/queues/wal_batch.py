"""Room: journal/queues. Changes and batches of the write-ahead log as bytes; wal.py draws the format."""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import xxhash

from moorline.core.queue.queue import Queue
from moorline.journal.disk import DiskFile

MAGIC = 0x4D57414C
BATCH = struct.Struct(">IIQQI")
CHANGE = struct.Struct(">B24sQI")
CHANGE_BYTES = CHANGE.size
pack_change = CHANGE.pack
CHECKED_FROM = 16
"""Offset of `first` in a batch: the check covers everything from there on."""


class Kind(IntEnum):
    SEND = 1
    MARK = 2
    ACKNOWLEDGE = 3
    NEW = 4
    DELETE = 5
    SUSPEND = 6
    BLOCK = 7
    UNBLOCK = 8
    EXPIRE = 9
    CLOSE = 10
    OPEN = 11


class Change(NamedTuple):
    lsn: int
    kind: int
    queue: bytes
    number: int
    body: bytes


class Batch:
    """Changes that are committed together."""

    __slots__ = ("count", "first", "parts", "size", "woken")

    def __init__(self, first: int) -> None:
        self.first = first
        self.count = 0
        self.parts: list[bytes] = []
        self.size = BATCH.size
        self.woken: list[Queue] = []
        """Queues that have something to be delivered when this is committed."""

    def add(self, kind: int, queue: bytes, number: int, body: bytes) -> int:
        """Adds a change; returns its lsn."""
        length, parts, count = len(body), self.parts, self.count
        parts.append(pack_change(kind, queue, number, length))
        if length:
            parts.append(body)
        self.size += CHANGE_BYTES + length
        self.count = count + 1
        return self.first + count

    def encoded(self, seed: int) -> bytes:
        payload = b"".join(self.parts)
        head = bytearray(BATCH.pack(MAGIC, len(payload), 0, self.first, self.count))
        checker = xxhash.xxh3_64(bytes(head[CHECKED_FROM:]), seed=seed)
        checker.update(payload)
        struct.pack_into(">Q", head, 8, checker.intdigest())
        return bytes(head) + payload


def read_batch(file: DiskFile, offset: int, seed: int) -> tuple[bytes | None, int, int]:
    """Payload, first lsn and count of the batch that begins there; no payload if there is no whole one."""
    head = file.read_at(offset, BATCH.size)
    if len(head) < BATCH.size:
        return None, 0, 0
    magic, length, check, first, count = BATCH.unpack(head)
    if magic != MAGIC:
        return None, 0, 0
    payload = file.read_at(offset + BATCH.size, length)
    checker = xxhash.xxh3_64(head[CHECKED_FROM:], seed=seed)
    checker.update(payload)
    if len(payload) < length or checker.intdigest() != check:
        return None, 0, 0
    return payload, first, count


def next_whole_batch(file: DiskFile, offset: int, end: int, seed: int) -> int:
    """Where the next whole batch behind a bad one begins; the end if there is none."""
    window, overlap = 1 << 20, BATCH.size
    mark = struct.pack(">I", MAGIC)
    start = offset + 1
    while start < end:
        data = file.read_at(start, window + overlap)
        place = data.find(mark)
        while place != -1:
            if read_batch(file, start + place, seed)[0] is not None:
                return start + place
            place = data.find(mark, place + 1)
        start += window
    return end


def changes_in(payload: bytes, first: int, count: int) -> Iterator[Change]:
    start = 0
    for place in range(count):
        kind, queue, number, length = CHANGE.unpack_from(payload, start)
        start += CHANGE.size
        yield Change(first + place, kind, queue, number, payload[start : start + length])
        start += length
