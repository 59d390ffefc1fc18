"""Room: journal. A message record, as it stands in a queue's message file.

     0        8       12     13          21          29
    ┌────────┬───────┬──────┬───────────┬───────────┬───────────────┐
    │ check  │length │ kind │ message   │ time      │ body          │
    │ u64    │u32    │ u8   │ u64       │ u64, ms   │ length bytes  │
    └────────┴───────┴──────┴───────────┴───────────┴───────────────┘

All numbers are big-endian. `check` is XXH3-64 over everything behind it. `kind` is 0 for a message and 1
for a quota marker, which has no body. Records stand one after another; docs/protocols/journal.md.
"""

import struct

import xxhash

from moorline.core.queue import QUOTA_MARKER, Entry

CHECK = struct.Struct(">Q")
REST = struct.Struct(">IBQQ")
HEADER_BYTES = CHECK.size + REST.size


class DamagedRecord(Exception):
    """Bytes that are no record; `offset` is where the record should begin."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"at byte {offset}: {why}")
        self.offset = offset


def encode(entry: Entry) -> bytes:
    rest = REST.pack(len(entry.body), entry.kind, entry.lsn, entry.time_ms) + entry.body
    return CHECK.pack(xxhash.xxh3_64_intdigest(rest)) + rest


def record_bytes(entry: Entry) -> int:
    return HEADER_BYTES + len(entry.body)


def decode(data: bytes, start: int, file_offset: int) -> Entry | None:
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
    if check != xxhash.xxh3_64_intdigest(data[start + CHECK.size : end]):
        raise DamagedRecord(file_offset, "the check is wrong")
    return Entry(lsn, time_ms, kind, data[start + HEADER_BYTES : end])
