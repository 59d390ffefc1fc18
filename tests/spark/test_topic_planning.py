"""Readers of topics without Spark, called as Spark calls them: what is planned, refused and left out."""

import copy
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from moorline.core.frames.frame import encode_headers
from moorline.errors import ConfigError, Malformed, MessagesGone, NotFound
from moorline.journal.disk import FileDisk
from moorline.journal.streams import seal
from moorline.journal.streams.generation import TOPICS
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.limits import SPARK_PARTITIONS_MAX
from moorline.spark import topic_reader
from moorline.spark.options import topic_options
from moorline.spark.source import MoorlineSource
from moorline.spark.topic_reader import TopicBatchReader, TopicStreamReader

COUNT = 900
SECOND_US = 1_000_000
TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "stream": StringType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "headers": ArrayType(StructType().add("key", "string").add("value", "binary")),
    "raw_headers": BinaryType(),
    "gap": StructType().add("first", "long").add("upto", "long").add("reason", "string"),
}
PLAIN = ("key", "value", "topic", "stream", "offset", "timestamp")
BAD_HEADERS = b"\xc1 not what headers are"


def append(store: StreamStore, topic: str, number: int, headers: bytes = b"") -> None:
    # Two keys, one in each of the two shards; the second has a tenth of all messages.
    store.append(topic, b"%d" % number, b"k3" if number % 10 else b"k4", headers, 0, 0, 0, 0)


def commit(store: StreamStore) -> None:
    batch = store.take_batch()
    assert batch is not None
    store.write(batch)
    store.committed(batch)


def opened(root: Path, clock: Iterator[int]) -> StreamStore:
    options = StreamOptions(sync=False, shards=2, generation_bytes_max=20_000)
    store = StreamStore(FileDisk(root / "streams"), "node-1", options, lambda: next(clock))
    store.open()
    return store


def seal_all(store: StreamStore) -> None:
    for shard, generation in store.upkeep.unsealed():
        store.upkeep.sealed(shard, generation, store.upkeep.seal(shard, generation)())


def fill(root: Path, *, topics: int = 3, are_all_sealed: bool = False) -> None:
    """Messages of a millisecond each, in several generations of two shards; then a few more."""
    store = opened(root, iter(range(SECOND_US, 10**12, 1_000)))
    for number in range(COUNT):
        append(store, f"early/{number % topics}", number)
        if number % 100 == 99:
            commit(store)
    if are_all_sealed:
        store.upkeep.roll(10**15)
        commit(store)
    seal_all(store)
    append(store, "late", COUNT)
    commit(store)
    store.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("planning")
    fill(root)
    return root


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    """One that a test may change."""
    return Path(shutil.copytree(filled, tmp_path / "data"))


def schema_of(*columns: str) -> StructType:
    return StructType([StructField(name, TYPES[name]) for name in columns])


def batch_reader(
    folder: Path, columns: tuple[str, ...] = PLAIN, **options: str
) -> TopicBatchReader:
    given = topic_options({"topics": "#", "path": str(folder), **options}, is_stream=False)
    return TopicBatchReader(given, schema_of(*columns))


def stream_reader(
    folder: Path, columns: tuple[str, ...] = PLAIN, **options: str
) -> TopicStreamReader:
    given = {"topics": "#", "path": str(folder), "startingOffsets": "earliest", **options}
    return TopicStreamReader(topic_options(given, is_stream=True), schema_of(*columns))


def rows(reader: TopicBatchReader) -> list[dict[str, Any]]:
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["value"]) for row in found if row["value"] is not None)


def oldest(folder: Path, shard: int) -> Path:
    return min((folder / "streams" / f"{shard:03}").glob("*.seg"))


def remove(segment: Path) -> None:
    """What retention does to a stream."""
    for path in segment.parent.glob(f"{segment.stem}.*"):
        path.unlink()


# --- topics that are not there --------------------------------------------------------------------


def test_a_topic_of_which_there_is_nothing_is_named(filled: Path) -> None:
    assert len(rows(batch_reader(filled, topics="early/1"))) == COUNT // 3
    # Not in any seal: it has to be read to be known.
    assert numbers(rows(batch_reader(filled, topics="late"))) == [COUNT]
    with pytest.raises(
        NotFound,
        match=r"no message of the topic 'earyl/1' \(there is 'early/1'.*failOnMissingTopic",
    ):
        batch_reader(filled, topics="late,earyl/1").partitions()
    found = rows(batch_reader(filled, topics="late,earyl/1", failOnMissingTopic="false"))
    assert numbers(found) == [COUNT]


def test_a_filter_may_match_nothing(filled: Path) -> None:
    assert rows(batch_reader(filled, topics="nothing/#,nothing/+")) == []


def test_a_stream_may_be_there_before_its_topic(filled: Path) -> None:
    assert stream_reader(filled, topics="nothing").initialOffset()
    with pytest.raises(NotFound, match="the topic 'nothing'"):
        stream_reader(filled, topics="nothing", failOnMissingTopic="true").initialOffset()


def test_a_topic_that_is_not_counted_by_name_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal, "TOPICS_COUNTED_MAX", 2)
    fill(tmp_path, topics=7)
    assert rows(batch_reader(tmp_path, topics="early/6"))
    with pytest.raises(NotFound, match="the topic 'early/7'"):
        batch_reader(tmp_path, topics="early/7").partitions()


@pytest.mark.parametrize("bad", ["a/#/b", "a+/b", "", "a,,b", "a\0b", "$shared/group/a"])
def test_a_filter_that_is_none_is_refused_by_name(filled: Path, bad: str) -> None:
    with pytest.raises(ConfigError, match="topics: "):
        batch_reader(filled, topics=bad)


# --- gaps -----------------------------------------------------------------------------------------


def test_what_retention_took_is_a_row_of_its_own(folder: Path) -> None:
    everything = rows(batch_reader(folder))
    segment = oldest(folder, 0)
    gone = [row for row in everything if row["stream"] == f"node-1/0/{int(segment.stem)}"]
    remove(segment)
    starting = '{"node-1/0": 0, "node-1/1": 0}'
    with pytest.raises(
        MessagesGone, match=f"{len(gone)} messages of node-1/0, 0 to {len(gone) - 1}"
    ):
        batch_reader(folder, startingOffsets=starting).partitions()
    options = {"startingOffsets": starting, "failOnDataLoss": "false"}
    found = rows(batch_reader(folder, (*PLAIN, "gap"), **options))
    gaps = [row for row in found if row["gap"] is not None]
    assert [(row["stream"], row["offset"], row["gap"], row["value"]) for row in gaps] == [
        ("node-1/0", 0, {"first": 0, "upto": len(gone), "reason": "RETENTION"}, None)
    ]
    assert len(found) == len(everything) - len(gone) + 1
    # Without the column nobody gets a row that is no message.
    assert len(rows(batch_reader(folder, PLAIN, **options))) == len(everything) - len(gone)


@pytest.mark.parametrize("columns", ["gap", "gap,offset", "value,gap,stream"])
def test_what_is_damaged_is_a_row_of_its_own(folder: Path, columns: str) -> None:
    segment = oldest(folder, 0)
    data = bytearray(segment.read_bytes())
    dense = segment.with_suffix(".dense").read_bytes()
    place = int.from_bytes(dense[8 * 5 : 8 * 6], "little")
    data[place + 8] ^= 1
    segment.write_bytes(data)
    with pytest.raises(MessagesGone, match=rf"{segment}: damaged at byte {place}: 1 messages"):
        rows(batch_reader(folder))
    found = rows(batch_reader(folder, tuple(columns.split(",")), failOnDataLoss="false"))
    assert len(found) == COUNT + 1, "one message less, one gap more"
    (gap,) = [row for row in found if row["gap"] is not None]
    assert gap["gap"] == {"first": 5, "upto": 6, "reason": "DAMAGE"}
    assert gap.get("stream", "node-1/0/1") == "node-1/0/1"


def test_a_stream_that_retention_overtakes_says_so(folder: Path) -> None:
    strict = stream_reader(folder)
    lenient = stream_reader(folder, (*PLAIN, "gap"), failOnDataLoss="false")
    start = lenient.initialOffset()
    end = lenient.latestOffset(start, ReadAllAvailable())
    assert "lost" not in (lenient.reportLatestOffset() or {})
    remove(oldest(folder, 0))
    with pytest.raises(MessagesGone, match="messages of node-1/0, 0 to "):
        strict.partitions(start, end)
    batches = [batch for part in lenient.partitions(start, end) for batch in lenient.read(part)]
    found = pa.Table.from_batches(batches).to_pylist()
    (gap,) = [row["gap"] for row in found if row["gap"] is not None]
    told = lenient.reportLatestOffset()
    assert told is not None
    assert told["lost"] == {
        "messages": gap["upto"],
        "ranges": [f"{gap['upto']} messages of node-1/0, 0 to {gap['upto'] - 1}"],
    }
    assert len(numbers(found)) == COUNT + 1 - gap["upto"]


# --- what a micro-batch is ------------------------------------------------------------------------


def test_a_limit_is_shared_in_proportion(filled: Path) -> None:
    reader = stream_reader(filled, maxOffsetsPerTrigger="100")
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    start = reader.initialOffset()
    assert start == {"node-1/0": 0, "node-1/1": 0}
    ends = [start]
    while (end := reader.latestOffset(ends[-1], limit)) != ends[-1]:
        ends.append(end)
    counts = [sum(end.values()) - sum(before.values()) for before, end in itertools.pairwise(ends)]
    assert sum(counts) == COUNT + 1
    assert max(counts) <= 101
    first = ends[1]
    assert 85 <= first["node-1/0"] <= 91, "nine tenths wait in that shard"
    assert 9 <= first["node-1/1"] <= 15


def batches_of(reader: TopicStreamReader) -> list[list[int]]:
    """The messages of each batch, until there is nothing more."""
    limit, start, found = reader.getDefaultReadLimit(), reader.initialOffset(), []
    while (end := reader.latestOffset(start, limit)) != start:
        # As after a restart: of the batch there are but its two places.
        again = copy.deepcopy(reader)
        again._initial = None
        made = [batch for part in again.partitions(start, end) for batch in again.read(part)]
        found.append(numbers(pa.Table.from_batches(made).to_pylist()) if made else [])
        start = end
    return found


def test_a_limit_counts_what_matches(tmp_path: Path) -> None:
    fill(tmp_path, are_all_sealed=True)
    everything = list(range(2, COUNT, 3))
    options: Any = {"topics": "early/2", "maxOffsetsPerTrigger": "10"}
    batches = batches_of(stream_reader(tmp_path, **options))
    assert sorted(itertools.chain(*batches)) == everything
    assert max(map(len, batches)) <= 11
    assert len(batches) <= len(everything) // 10 + 2, "as many as those that match need"
    # Without lists they are read for it.
    for path in (tmp_path / "streams").rglob(f"*{TOPICS}"):
        path.unlink()
    assert batches_of(stream_reader(tmp_path, **options)) == batches


def test_where_nothing_matches_a_batch_goes_on(tmp_path: Path) -> None:
    fill(tmp_path, are_all_sealed=True)
    batches = batches_of(stream_reader(tmp_path, topics="nothing/+", maxOffsetsPerTrigger="5"))
    assert batches == [[]]


def test_the_least_of_a_batch_is_of_what_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, are_all_sealed=True)
    now_ms = 0
    monkeypatch.setattr(topic_reader, "_now_ms", lambda: now_ms)
    options: Any = {"topics": "nothing/#", "minOffsetsPerTrigger": "400", "maxTriggerDelay": "90s"}
    reader = stream_reader(tmp_path, **options)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start, "900 of others are nothing"
    now_ms = 90_000
    assert reader.latestOffset(start, ReadAllAvailable()) != start


def test_too_few_messages_wait_until_the_delay_is_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 0
    monkeypatch.setattr(topic_reader, "_now_ms", lambda: now_ms)
    reader = stream_reader(
        folder, startingOffsets="latest", minOffsetsPerTrigger="3", maxTriggerDelay="90s"
    )
    start = reader.initialOffset()
    assert reader.initialOffset() is start, "Spark asks twice, and latest must not move"
    store = opened(folder, iter(range(10**12, 10**13)))
    append(store, "late", 1)
    commit(store)
    now_ms = 89_999
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    now_ms = 90_000
    end = reader.latestOffset(start, ReadAllAvailable())
    assert sum(end.values()) == sum(start.values()) + 1
    # The delay counts from the last batch on; with enough of them nothing is waited for.
    append(store, "late", 2)
    commit(store)
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    append(store, "late", 3)
    append(store, "late", 4)
    commit(store)
    store.close()
    assert sum(reader.latestOffset(end, ReadAllAvailable()).values()) == sum(end.values()) + 3


def test_a_stream_begins_at_a_time(filled: Path) -> None:
    everything = rows(batch_reader(filled))
    stamp_ms = 1_000 + COUNT // 2
    reader = stream_reader(filled, startingTimestamp=str(stamp_ms))
    start = reader.initialOffset()
    for line, offset in start.items():
        own = sorted(
            (row for row in everything if row["stream"].startswith(f"{line}/")),
            key=lambda row: row["offset"],
        )
        older = [row for row in own if row["timestamp"].timestamp() * 1_000 < stamp_ms]
        assert 0 < len(older) < len(own)
        assert offset == len(older)


def test_a_batch_ends_at_a_time(filled: Path) -> None:
    stamp_ms = 1_000 + COUNT // 2
    older = rows(batch_reader(filled, endingTimestamp=str(stamp_ms)))
    younger = rows(batch_reader(filled, startingTimestamp=str(stamp_ms)))
    assert max(row["timestamp"] for row in older) < min(row["timestamp"] for row in younger)
    assert numbers(older + younger) == list(range(COUNT + 1))


def test_available_now_ends_where_the_end_was(folder: Path) -> None:
    reader = stream_reader(folder, minOffsetsPerTrigger="100000")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    store = opened(folder, iter(range(10**12, 10**13)))
    append(store, "late", 1)
    commit(store)
    store.close()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert sum(end.values()) == COUNT + 1, "all that was there, and without the new one"
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    latest = reader.reportLatestOffset()
    assert latest is not None
    behind = latest.pop("behind")
    assert sum(latest.values()) - sum(end.values()) == 1, "which is the lag"
    assert (behind["messages"], behind["greatest"], behind["shards"]) == (1, 1, 2)


def test_partitions_are_as_many_and_as_small_as_asked(filled: Path) -> None:
    assert len(batch_reader(filled, minPartitions="23").partitions()) >= 23
    reader = batch_reader(filled, maxRecordsPerPartition="50")
    sizes = [sum(batch.num_rows for batch in reader.read(part)) for part in reader.partitions()]
    assert max(sizes) <= 50
    assert sum(sizes) == COUNT + 1


@pytest.mark.parametrize("kind", ["topics", "queues", "associations", "group"])
def test_more_tasks_than_anybody_means_are_refused_by_name(kind: str) -> None:
    what = {kind: {"topics": "#", "group": "$shared/billing/#"}.get(kind, "*")}

    def made(partitions: int) -> object:
        source = MoorlineSource({**what, "minPartitions": str(partitions)})
        columns = StructType()
        return source.streamReader(columns) if kind == "group" else source.reader(columns)

    made(SPARK_PARTITIONS_MAX)
    for number in (SPARK_PARTITIONS_MAX + 1, 10**30):
        text = f"minPartitions: '{number}': accepted: a whole number from 1 to 65536"
        with pytest.raises(ConfigError, match=text):
            made(number)


def test_what_is_not_asked_for_is_not_decoded(folder: Path) -> None:
    """Headers that are none: whoever does not ask for them does not find out."""
    store = opened(folder, iter(range(10**12, 10**13)))
    append(store, "odd", 1, headers=BAD_HEADERS)
    append(store, "fine", 2, headers=encode_headers([("a", b"b")]))
    commit(store)
    store.close()
    (row,) = rows(batch_reader(folder, ("headers",), topics="fine"))
    assert row["headers"] == [{"key": "a", "value": b"b"}]
    (row,) = rows(batch_reader(folder, ("raw_headers",), topics="odd"))
    assert row["raw_headers"] == BAD_HEADERS
    with pytest.raises(Malformed, match="these are not headers"):
        rows(batch_reader(folder, ("headers",), topics="odd"))
    assert numbers(rows(batch_reader(folder, topics="odd"))) == [1]
