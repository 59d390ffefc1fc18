"""Room: journal/queues. A message record, as it stands in a queue's message file.

     0        8       12     13          21          29
    ┌────────┬───────┬──────┬───────────┬───────────┬───────────────┐
    │ check  │length │ kind │ message   │ time      │ body          │
    │ u64    │u32    │ u8   │ u64       │ u64, ms   │ length bytes  │
    └────────┴───────┴──────┴───────────┴───────────┴───────────────┘

All numbers are big-endian. `check` is XXH3-64 over everything behind it, seeded with the first eight bytes
of the queue's id: a record that stands in the folder of another queue is no record there. `kind` is 0 for
a message and 1 for a quota marker, which has no body. Records stand one after another:
docs/protocols/journal.md.
"""

import struct

import xxhash

from moorline.core.queue.queue import QUOTA_MARKER, RECORD_HEAD_BYTES, Entry

CHECK = struct.Struct(">Q")
REST = struct.Struct(">IBQQ")
HEADER_BYTES = CHECK.size + REST.size
assert HEADER_BYTES == RECORD_HEAD_BYTES


class DamagedRecord(Exception):
    """Bytes that are no record; `offset` is where the record should begin."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"at byte {offset}: {why}")
        self.offset = offset


def seed_of(queue_id: bytes) -> int:
    """What the checks of a queue's records and states are seeded with."""
    return int.from_bytes(queue_id[:8], "big")


def encode(entry: Entry, seed: int) -> bytes:
    rest = REST.pack(len(entry.body), entry.kind, entry.lsn, entry.time_ms) + entry.body
    return CHECK.pack(xxhash.xxh3_64_intdigest(rest, seed)) + rest


def id_in(header: bytes) -> int:
    """The id in the first bytes of a record, whether it is whole or not; 0 where too few are left."""
    return int(REST.unpack_from(header, CHECK.size)[2]) if len(header) >= HEADER_BYTES else 0


def record_bytes(entry: Entry) -> int:
    return HEADER_BYTES + len(entry.body)


def decode(data: bytes, start: int, file_offset: int, seed: int) -> Entry | None:
    """The record at `start`; None where the data end before it does."""
    if len(data) - start < HEADER_BYTES:
        return None
    length, kind, lsn, time_ms = REST.unpack_from(data, start + CHECK.size)
    if kind > QUOTA_MARKER:
        raise DamagedRecord(file_offset, f"unknown kind {kind}")
    end = start + HEADER_BYTES + length
    if end > len(data):
        return None
    (check,) = CHECK.unpack_from(data, start)
    if check != xxhash.xxh3_64_intdigest(data[start + CHECK.size : end], seed):
        raise DamagedRecord(file_offset, "the check is wrong")
    return Entry(lsn, time_ms, kind, data[start + HEADER_BYTES : end])
