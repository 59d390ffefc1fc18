"""Digests of archived rows: equal to what nodes compute from frames, whatever a message has."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.frames.frame import (
    HEAD,
    KEYED,
    PRODUCER,
    TOMBSTONE,
    Stored,
    encode_headers,
    frame_of,
)
from moorline.core.sets.digest import Digest
from moorline.core.stream import Stream
from moorline.spark.jobs.archive_files import Archive, folder_of
from moorline.spark.jobs.digests import (
    BUCKETS,
    OUTSIDE,
    BucketDigests,
    bucket_of,
    bucket_range,
    contents,
    hashed_rows,
    read_file,
)
from moorline.spark.jobs.parquet import SCHEMA, part_writer


def batch_of(messages: list[Stored]) -> pa.RecordBatch:
    """As the data source gives them."""
    rows = [
        {
            "offset": one.offset,
            "timestamp": one.time_us,
            "ttl_s": one.ttl_s - (1 << 32) if one.ttl_s >> 31 else one.ttl_s,
            "flags": one.flags,
            "topic": one.topic,
            "key": one.key if one.flags & KEYED else None,
            "raw_headers": one.headers,
            "producer": _signed(one.producer) if one.flags & PRODUCER else None,
            "sequence": one.sequence if one.flags & PRODUCER else None,
            "value": None if one.flags & TOMBSTONE else one.body,
        }
        for one in messages
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def contents_of(messages: list[Stored]) -> list[bytes]:
    return [frame_of(one, 7)[HEAD.size :] for one in messages]


messages = st.builds(
    Stored,
    offset=st.integers(0, 1 << 62),
    time_us=st.integers(0, 1 << 52),
    ttl_s=st.integers(0, (1 << 32) - 1),
    flags=st.integers(0, 31),
    topic=st.text(min_size=1, max_size=20),
    key=st.none(),
    headers=st.sampled_from([b"", encode_headers([("a", b"1")])]),
    producer=st.integers(0, (1 << 64) - 1),
    sequence=st.integers(0, (1 << 63) - 1),
    body=st.binary(max_size=50),
)


@given(st.lists(messages, min_size=1, max_size=20), st.binary(max_size=10))
def test_contents_are_those_of_the_frames(found: list[Stored], key: bytes) -> None:
    found = [
        one._replace(
            key=key if one.flags & KEYED else None, body=b"" if one.flags & TOMBSTONE else one.body
        )
        for one in found
    ]
    assert contents(batch_of(found)).to_pylist() == contents_of(found)


def test_a_null_that_was_made_empty_is_another_message() -> None:
    batch = batch_of([message(0, body=b""), message(1, body=b"", flags=KEYED | TOMBSTONE)])
    place = batch.schema.get_field_index("value")
    swapped = batch.set_column(place, "value", pa.array([None, b""], pa.binary()))
    assert batch.column("value").to_pylist() == [b"", None]
    for one, other in zip(contents(batch), contents(swapped), strict=True):
        assert one != other


def test_a_digest_of_rows_is_that_of_core() -> None:
    found = [message(offset) for offset in range(1_000, 1_900)]
    digests = BucketDigests(1_000, 1_900)
    digests.add(hashed_rows(batch_of(found[:500])))
    digests.add(hashed_rows(batch_of(found[500:])))
    total = Digest.empty()
    for _, count, text in digests.told():
        total = total.merge(Digest(count, bytes.fromhex(text)))
    assert total == Digest.of(contents_of(found))


def test_an_offset_that_is_not_of_the_stream_has_a_bucket_of_its_own() -> None:
    digests = BucketDigests(10, 20)
    digests.add(hashed_rows(batch_of([message(9), message(20)])))
    assert [(bucket, count) for bucket, count, _ in digests.told()] == [(OUTSIDE, 2)]


@given(st.integers(0, 10_000), st.integers(1, 3_000))
def test_the_range_of_a_bucket_is_what_falls_into_it(first: int, size: int) -> None:
    covered: list[int] = []
    for bucket in range(BUCKETS):
        start, stop = bucket_range(bucket, first, first + size)
        import numpy as np

        offsets = np.arange(start, stop)
        assert (bucket_of(offsets, first, first + size) == bucket).all()
        covered += offsets.tolist()
    assert covered == list(range(first, first + size))


def test_a_file_that_was_changed_is_named_with_what_is_wrong(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    stream = Stream("node-1", 3, 7)
    with part_writer(archive, folder_of("0-0", stream)) as writer:
        writer.write(batch_of([message(offset) for offset in range(10, 5_000)]))
    (file,) = writer.files
    assert (file.stream, file.rows, file.first, file.last) == (stream, 4_990, 10, 4_999)
    rows, problem = read_file(archive, file)
    assert rows is not None
    assert (len(rows.offsets), problem) == (4_990, "")
    path = tmp_path / file.path
    data = path.read_bytes()

    path.write_bytes(data[:-100])
    rows, problem = read_file(archive, file)
    assert (rows, "bytes, not the" in problem) == (None, True)
    path.write_bytes(flipped(data, len(data) // 3))
    assert read_file(archive, file) == (None, "has other bytes than were written")
    path.unlink()
    assert read_file(archive, file) == (None, "is gone")


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def message(offset: int, **more: Any) -> Stored:
    values: dict[str, Any] = {
        "offset": offset,
        "time_us": 1_700_000_000_000_000 + offset,
        "ttl_s": 0,
        "flags": KEYED if offset % 3 else PRODUCER,
        "topic": f"orders/{offset % 5}",
        "key": b"k%d" % offset if offset % 3 else None,
        "headers": encode_headers([("n", b"%d" % offset)]) if offset % 7 == 0 else b"",
        "producer": (1 << 64) - offset,
        "sequence": offset,
        "body": b"body of %d" % offset,
    }
    return Stored(**(values | more))
