"""Frames into columns, without Spark: every way to find them gives what the plain decoder gives."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawing import examples

from moorline.core.frames.frame import (
    KEYED,
    TOMBSTONE,
    Stored,
    decode_headers,
    encode_headers,
    stored_at,
)
from moorline.core.stream import Extent
from moorline.journal.disk import FileDisk
from moorline.journal.streams.folder import FolderStreams
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.limits import TTL_S_MAX
from moorline.spark import runs as finding
from moorline.spark.frames import Batches
from moorline.spark.runs import ReadGap, runs

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("stream", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("ttl_s", pa.int64()),
        ("flags", pa.int32()),
        ("producer", pa.int64()),
        ("sequence", pa.int64()),
        ("raw_headers", pa.binary()),
    ]
)
COUNT = 1_500


@pytest.fixture(scope="module", params=["grows", "sealed"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One shard; its messages are in one generation that grows, or in several that are sealed."""
    root = tmp_path_factory.mktemp("frames")
    size = 40_000 if request.param == "sealed" else 1 << 30
    clock = iter(range(10**6, 10**9))
    store = StreamStore(
        FileDisk(root / "streams"),
        "node-1",
        StreamOptions(sync=False, shards=1, generation_bytes_max=size),
        lambda: next(clock),
    )
    store.open()
    for number in range(COUNT):
        headers = encode_headers([("n", b"%d" % (number % 3))]) if number % 4 == 0 else b""
        key = None if number % 3 == 0 else b"k" * (number % 20)
        producer = (1 << 63) + 5 if number % 5 == 0 else 0
        store.append(
            f"t/{number % 7}" if number % 11 else "$dead/t",
            b"" if number % 13 == 0 else bytes([number % 251]) * (number % 40),
            key,
            headers,
            (0, 1, 1 << 31, TTL_S_MAX)[number % 4],
            TOMBSTONE if number % 13 == 0 else 0,
            producer,
            number,
        )
        if number % 100 == 99:
            batch = store.take_batch()
            assert batch is not None
            store.write(batch)
            store.committed(batch)
    for shard, generation in store.upkeep.unsealed():
        store.upkeep.sealed(shard, generation, store.upkeep.seal(shard, generation)())
    store.close()
    return root


def expected(folder: Path) -> list[Stored]:
    """What the plain decoder says, frame by frame."""
    found = []
    for path in sorted((folder / "streams" / "000").glob("*.seg")):
        data, place = path.read_bytes(), 64
        while place < len(data):
            found.append(stored_at(data, place))
            place += 8 + int.from_bytes(data[place : place + 4], "little")
    return found


def parts(folder: Path, first: int, upto: int) -> Iterator[tuple[FolderStreams, Extent, int, int]]:
    streams = FolderStreams(str(folder))
    for extent in streams.extents():
        start, stop = max(first, extent.first), min(upto, extent.end)
        if start < stop:
            yield streams, extent, start, stop


def table(
    folder: Path,
    *,
    first: int = 0,
    upto: int = COUNT,
    filters: tuple[str, ...] = ("#", "$dead/#"),
    schema: pa.Schema = SCHEMA,
    verify: bool = True,
) -> pa.Table:
    made = Batches(schema, filters)
    batches = []
    for streams, extent, start, stop in parts(folder, first, upto):
        segment = streams.segment(extent.stream, ())
        assert segment is not None
        for block in runs(segment, start, stop, verify=verify):
            assert not isinstance(block, ReadGap)
            batch = made.batch(block, str(extent.stream))
            if batch is not None:
                batches.append(batch)
        segment.close()
    return pa.Table.from_batches(batches, schema)


def row_of(one: Stored) -> dict[str, object]:
    has_producer = bool(one.flags & 4)
    return {
        "key": one.key if one.flags & KEYED else None,
        "value": None if one.flags & TOMBSTONE else one.body,
        "topic": one.topic,
        "partition": 0,
        "offset": one.offset,
        "headers": [{"key": name, "value": value} for name, value in decode_headers(one.headers)],
        "ttl_s": one.ttl_s,
        "flags": one.flags,
        "producer": one.producer - (1 << 64) if has_producer else None,
        "sequence": one.sequence if has_producer else None,
        "raw_headers": one.headers,
    }


def test_columns_are_what_the_plain_decoder_says(folder: Path) -> None:
    found = table(folder)
    times = found["timestamp"].cast(pa.int64()).to_pylist()
    stored = expected(folder)
    assert times == [one.time_us for one in stored]
    names = [name for name in SCHEMA.names if name not in ("stream", "timestamp")]
    assert found.select(names).to_pylist() == [row_of(one) for one in stored]
    assert table(folder, verify=False).equals(found)


@pytest.mark.parametrize("block_bytes", [1, 3_000, 1 << 22])
def test_every_size_of_blocks_gives_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    whole = table(folder)
    monkeypatch.setattr(finding, "SPARK_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(finding, "SPARK_SLICE_MESSAGES", 333)
    assert table(folder).equals(whole)


@settings(max_examples=examples(30), deadline=None)
@given(edges=st.tuples(st.integers(0, COUNT), st.integers(0, COUNT)))
def test_every_range_gives_just_that(folder: Path, edges: tuple[int, int]) -> None:
    first, upto = sorted(edges)
    schema = pa.schema([SCHEMA.field("offset")])
    found = table(folder, first=first, upto=upto, schema=schema)
    assert found["offset"].to_pylist() == list(range(first, upto))


def test_a_leading_wildcard_does_not_take_a_dollar(folder: Path) -> None:
    offsets = pa.schema([SCHEMA.field("offset")])
    stored = expected(folder)
    plain = [one.offset for one in stored if not one.topic.startswith("$")]
    assert table(folder, filters=("#",), schema=offsets)["offset"].to_pylist() == plain
    dead = [one.offset for one in stored if one.topic.startswith("$")]
    assert table(folder, filters=("$dead/#",), schema=offsets)["offset"].to_pylist() == dead


@settings(max_examples=examples(30), deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_changed_byte_costs_at_most_the_frames_it_is_in(
    folder: Path, where: float, flip: int
) -> None:
    path = sorted((folder / "streams" / "000").glob("*.seg"))[0]
    whole = path.read_bytes()
    data = bytearray(whole)
    place = 64 + int(where * (len(data) - 64))
    data[place] ^= flip
    path.write_bytes(data)
    try:
        lost: list[int] = []
        got: list[int] = []
        ended = 0
        for streams, extent, start, stop in parts(folder, 0, COUNT):
            segment = streams.segment(extent.stream, ())
            assert segment is not None
            ended = max(ended, stop)
            for block in runs(segment, start, stop, verify=True):
                if isinstance(block, ReadGap):
                    lost += range(block.first, block.upto)
                else:
                    got += block.offsets.tolist()
            segment.close()
    finally:
        path.write_bytes(whole)
    # One frame is bad; at the end of a stream that grows it is a torn end, and not there at all.
    assert sorted(lost + got) == list(range(ended))
    assert len(lost) + COUNT - ended == 1


@pytest.mark.parametrize("bit", [3, 20, 31, 45, 62, 63])
@pytest.mark.parametrize("wrong", [0, 1, 99, 100, 101])
def test_an_entry_of_the_dense_index_that_lies_changes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: int, bit: int
) -> None:
    """Also one at the border of what is looked up at once, which says where the frame before it ends."""
    monkeypatch.setattr(finding, "SPARK_SLICE_MESSAGES", 50)
    copied = tmp_path / "copy"
    shutil.copytree(folder, copied)
    for path in (copied / "streams" / "000").glob("*.dense"):
        data = bytearray(path.read_bytes())
        at = min(8 * wrong, len(data) - 8)
        data[at + bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
    offsets = pa.schema([SCHEMA.field("offset")])
    for first, upto in ((0, COUNT), (40, 100), (1, 101)):
        found = table(copied, first=first, upto=upto, schema=offsets)["offset"].to_pylist()
        assert found == list(range(first, upto))
