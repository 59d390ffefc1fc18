"""Topics read by Spark: every message as it was published, from nodes and from folders."""

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.process.nodes import NodeProcess
from tests.spark.publishing import (
    COUNT,
    Message,
    copy_streams,
    message,
    publish,
    read,
    ttl_s_of,
)
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]


def load(spark: SparkSession, where: NodeProcess | Path, **options: Any) -> DataFrame:
    place = {"path": str(where)} if isinstance(where, Path) else {"address": where.address}
    return spark.read.format("moorline").options(**{"topics": "#", **place, **options}).load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.value).split(b":")[0]) for row in frame.select("value").collect())


@pytest.fixture(scope="module")
def copied(
    node: NodeProcess, published: list[Message], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A copy of the streams of a running node, and nothing else."""
    assert len(published) == COUNT
    return copy_streams(node.data, tmp_path_factory.mktemp("copy") / "data")


@pytest.fixture(scope="module")
def last(spark: SparkSession, node: NodeProcess, published: list[Message]) -> dict[str, int]:
    """How many messages each shard has."""
    assert published
    return ends(load(spark, node).collect())


def ends(rows: list[Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        line = row.stream.rpartition("/")[0]
        found[line] = max(found.get(line, 0), row.offset + 1)
    return found


def placed(rows: list[Any]) -> list[Any]:
    """Rows in the order of their places, which no two share."""
    return sorted(rows, key=lambda row: (row.stream, row.offset))


# --- batches --------------------------------------------------------------------------------------


def test_a_node_gives_every_message(
    spark: SparkSession, node: NodeProcess, published: list[Message]
) -> None:
    rows = load(spark, node, includeHeaders="true").collect()
    assert read(rows) == published
    assert len({row.stream for row in rows}) > 2, "several generations"
    for line, count in ends(rows).items():
        own = [row for row in rows if row.stream.startswith(f"{line}/")]
        assert sorted(row.offset for row in own) == list(range(count))
        in_order = sorted(own, key=lambda row: row.offset)
        assert [row.timestamp for row in in_order] == sorted(row.timestamp for row in own)
        by_key: dict[Any, list[int]] = {}
        for row in in_order:
            place = by_key.setdefault((row.key and bytes(row.key)) or row.topic, [])
            place.append(int(bytes(row.value).split(b":")[0]))
        assert all(one == sorted(one) for one in by_key.values()), "ordered per key"


def test_a_folder_gives_the_same_while_its_node_runs(
    spark: SparkSession, node: NodeProcess, published: list[Message]
) -> None:
    rows = load(spark, node.data, includeHeaders="true", includeSystem="true").collect()
    assert read(rows) == published
    others = load(spark, node, includeHeaders="true", includeSystem="true").collect()
    assert placed(rows) == placed(others)
    produced = [row for row in rows if row.producer is not None]
    assert len(produced) == COUNT // 2
    assert all(row.sequence == int(bytes(row.value).split(b":")[0]) for row in produced)
    assert {row.flags & 4 for row in produced} == {4}
    assert all(row.ttl_s == ttl_s_of(int(bytes(row.value).split(b":")[0])) for row in rows)


def test_a_copy_needs_no_server(
    spark: SparkSession, copied: Path, published: list[Message]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*")}
    rows = load(spark, copied, node="old", includeHeaders="true", verifyChecks="false").collect()
    assert read(rows) == published
    assert {row.stream.split("/")[0] for row in rows} == {"old"}
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*")} == before
    without_indexes = copied.parent / "bare"
    shutil.copytree(copied, without_indexes)
    for path in without_indexes.rglob("*"):
        if path.suffix in (".idx", ".dense", ".seal", ".snapshot"):
            path.unlink()
    assert read(load(spark, without_indexes, includeHeaders="true").collect()) == published


def test_filters_choose(spark: SparkSession, node: NodeProcess, published: list[Message]) -> None:
    def expected(choose: Callable[[str], bool]) -> list[int]:
        return [place for place, one in enumerate(published) if choose(one.topic)]

    assert numbers(load(spark, node, topics="orders/eu/+")) == expected(
        lambda topic: topic.startswith("orders/eu/")
    )
    assert numbers(load(spark, node, topics="größe, orders/us/3")) == expected(
        lambda topic: topic in ("größe", "orders/us/3")
    )
    assert numbers(load(spark, node, topics="nothing/#")) == []
    for bad in ("a/#/b", "", "$shared/group/orders"):
        with pytest.raises(PySparkException, match="topics"):
            load(spark, node, topics=bad).collect()


def test_offsets_and_timestamps(
    spark: SparkSession, node: NodeProcess, last: dict[str, int]
) -> None:
    everything = load(spark, node).collect()
    (line, end), (other, _) = sorted(last.items())
    starting = json.dumps({line: end - 10, other: -1})
    rows = load(spark, node, startingOffsets=starting).collect()
    assert sorted((row.stream.rpartition("/")[0], row.offset) for row in rows) == [
        (line, offset) for offset in range(end - 10, end)
    ]
    ending = json.dumps({line: 5, other: -2})
    rows = load(spark, node, startingOffsets="earliest", endingOffsets=ending).collect()
    assert sorted(row.offset for row in rows) == [0, 1, 2, 3, 4]
    # The source counts milliseconds, messages have microseconds.
    times = sorted(row.timestamp for row in everything)
    middle = times[len(times) // 2].replace(
        microsecond=times[len(times) // 2].microsecond // 1_000 * 1_000
    )
    stamp = str(round(middle.timestamp() * 1_000))
    for where in (node, node.data):
        younger = load(spark, where, startingTimestamp=stamp).collect()
        assert len(younger) == sum(time >= middle for time in times)
        assert min(row.timestamp for row in younger) >= middle
        older = load(spark, where, endingTimestamp=stamp).collect()
        assert len(older) + len(younger) == COUNT


def test_partitions(spark: SparkSession, node: NodeProcess, published: list[Message]) -> None:
    pieces = load(spark, node, maxRecordsPerPartition="100", includeHeaders="true")
    counts = [len(part) for part in pieces.rdd.glom().collect()]
    assert sum(counts) == COUNT
    assert max(counts) <= 100
    assert read(pieces.collect()) == published
    many = load(spark, node.data, minPartitions="37", includeHeaders="true")
    assert many.rdd.getNumPartitions() >= 37
    assert read(many.collect()) == published


def test_a_narrow_schema_reads_just_that(
    spark: SparkSession, node: NodeProcess, last: dict[str, int]
) -> None:
    reader = spark.read.format("moorline").options(topics="#", address=node.address)
    rows = reader.schema("offset long").load().collect()
    assert Counter(row.offset for row in rows) == Counter(
        offset for end in last.values() for offset in range(end)
    )
    rows = reader.schema("raw_headers binary, topic string").load().collect()
    assert Counter(row.topic for row in rows) == Counter(message(n).topic for n in range(COUNT))
    with pytest.raises(PySparkException, match=r"no column 'body'.*there are key, value"):
        reader.schema("body binary").load().collect()
    with pytest.raises(PySparkException, match="'offset' is bigint, not int"):
        reader.schema("offset int").load().collect()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"maxOffsetPerTrigger": "1"},
            r"unknown option .*there are address, ca, .*maxOffsetsPerTrigger",
        ),
        ({"startingOffsets": "newest"}, "accepted: earliest, latest or JSON"),
        (
            {"startingOffsets": '{"node-9/0": 1}'},
            "no stream 'node-9/0'; there are node-1/0, node-1/1",
        ),
        ({"startingOffsets": '{"node-1/0": -3}'}, "-1 is latest, -2 is earliest"),
        ({"startingOffsets": "latest"}, "leaves nothing to read"),
        ({"endingOffsets": "earliest"}, "leaves nothing to read"),
        ({"minPartitions": "0"}, "minPartitions: '0': accepted: a whole number from 1 to 65536"),
        ({"failOnDataLoss": "maybe"}, "accepted: true or false"),
        ({"startingTimestamp": "yesterday"}, "accepted: milliseconds since 1970"),
        ({"maxTriggerDelay": "soon"}, "accepted: 90s"),
        ({"path": "/tmp"}, "give one, the folder or the node"),
        ({"address": "127.0.0.1"}, "does not begin with tcp"),
        ({"address": "tcp://127.0.0.1:1"}, "is the node running"),
        ({"ca": "/nowhere.pem", "address": "tls://127.0.0.1:1"}, "there is no such file"),
    ],
)
def test_a_bad_option_is_named(
    spark: SparkSession,
    node: NodeProcess,
    published: list[Message],
    options: dict[str, str],
    text: str,
) -> None:
    assert published
    with pytest.raises(PySparkException, match=text):
        load(spark, node, **options).collect()


def test_nothing_to_read_is_said(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="give one of the options topics, queues"):
        spark.read.format("moorline").load()
    with pytest.raises(PySparkException, match="is no data folder"):
        spark.read.format("moorline").option("topics", "#").load("/usr/lib").collect()


# --- damage and loss ------------------------------------------------------------------------------


@pytest.mark.parametrize("verify", ["true", "false"])
def test_a_damaged_frame_is_an_error_or_a_gap(
    spark: SparkSession, copied: Path, tmp_path: Path, verify: str
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(copied, folder)
    segment = sorted((folder / "streams" / "000").glob("*.seg"))[0]
    data = bytearray(segment.read_bytes())
    # The length of a frame in the middle, and with it the chain of frames.
    dense = segment.with_suffix(".dense").read_bytes()
    place = int.from_bytes(dense[8 * 100 : 8 * 101], "little")
    data[place : place + 4] = b"\xff\xff\xff\x7f"
    segment.write_bytes(data)
    with pytest.raises(PySparkException, match=rf"{segment}: damaged at byte {place}: 1 messages"):
        load(spark, folder, verifyChecks=verify).collect()
    rows = load(spark, folder, verifyChecks=verify, failOnDataLoss="false").collect()
    assert len(rows) == COUNT - 1
    assert 100 not in {row.offset for row in rows if row.stream.startswith("node-1/0/")}


def test_a_changed_body_is_found_by_its_check(
    spark: SparkSession, copied: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(copied, folder)
    # As it is once all is synced: what the log of small commits has too, it puts right.
    shutil.rmtree(folder / "streams" / "log", ignore_errors=True)
    segment = sorted((folder / "streams" / "001").glob("*.seg"))[-1]
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    whole = load(spark, folder, failOnDataLoss="false").collect()
    assert len(whole) == COUNT - 1, "a torn end is no message"
    first = sorted((folder / "streams" / "001").glob("*.seg"))[0]
    data = bytearray(first.read_bytes())
    dense = first.with_suffix(".dense").read_bytes()
    # The last byte of a body in the middle: of the last one it would be a torn end.
    data[int.from_bytes(dense[8 * 101 : 8 * 102], "little") - 1] ^= 1
    first.write_bytes(data)
    with pytest.raises(PySparkException, match="damaged at byte"):
        load(spark, folder).collect()
    assert len(load(spark, folder, failOnDataLoss="false").collect()) == COUNT - 2
    assert len(load(spark, folder, verifyChecks="false").collect()) == COUNT - 1


def test_what_retention_took_is_an_error_or_left_out(
    spark: SparkSession, copied: Path, tmp_path: Path, last: dict[str, int]
) -> None:
    folder = tmp_path / "shortened"
    shutil.copytree(copied, folder)
    oldest = sorted((folder / "streams" / "000").glob("*.seg"))[0]
    for path in oldest.parent.glob(f"{oldest.stem}.*"):
        path.unlink()
    left = load(spark, folder).collect()
    gone = min(row.offset for row in left if row.stream.startswith("node-1/0/"))
    assert len(left) == COUNT - gone
    starting = json.dumps(dict.fromkeys(last, 0))
    with pytest.raises(
        PySparkException, match=rf"gone .* {gone} messages of node-1/0, 0 to {gone - 1}"
    ):
        load(spark, folder, startingOffsets=starting).collect()
    rows = load(spark, folder, startingOffsets=starting, failOnDataLoss="false").collect()
    assert placed(rows) == placed(left)


# --- streams --------------------------------------------------------------------------------------


def begin(
    spark: SparkSession, where: NodeProcess | Path, checkpoint: Path, table: str, **options: Any
) -> StreamingQuery:
    place = {"path": str(where)} if isinstance(where, Path) else {"address": where.address}
    trigger = options.pop("trigger", {"availableNow": True})
    frame = (
        spark.readStream.format("moorline")
        .options(**{"topics": "#", "includeHeaders": "true", **place, **options})
        .load()
    )
    writer = frame.writeStream.format("parquet").option("path", str(checkpoint / table))
    return writer.option("checkpointLocation", str(checkpoint / "state")).trigger(**trigger).start()


def test_a_stream_until_it_has_caught_up(
    spark: SparkSession, node: NodeProcess, published: list[Message], tmp_path: Path
) -> None:
    query = begin(
        spark, node, tmp_path, "out", startingOffsets="earliest", maxOffsetsPerTrigger="1000"
    )
    query.awaitTermination()
    batches = [progress.numInputRows for progress in query.recentProgress]
    assert sum(batches) == COUNT
    assert max(batches) <= 1_000
    assert read(spark.read.parquet(str(tmp_path / "out")).collect()) == published
    source = json.loads(query.recentProgress[-1].json)["sources"][0]
    behind = source["latestOffset"].pop("behind")
    assert source["latestOffset"] == source["endOffset"], "no lag is left"
    assert (behind["messages"], behind["greatest"], behind["shards"]) == (0, 0, 2)
    # The same checkpoint goes on where it was.
    again = begin(spark, node, tmp_path, "out", startingOffsets="earliest")
    again.awaitTermination()
    assert sum(progress.numInputRows for progress in again.recentProgress) == 0


def test_a_limit_counts_what_matches(
    spark: SparkSession, node: NodeProcess, published: list[Message], tmp_path: Path
) -> None:
    options = {"topics": "orders/eu/1", "startingOffsets": "earliest"}
    query = begin(spark, node, tmp_path, "out", **options, maxOffsetsPerTrigger="200")
    query.awaitTermination()
    wanted = [one for one in published if one.topic == "orders/eu/1"]
    assert read(spark.read.parquet(str(tmp_path / "out")).collect()) == wanted
    batches = [progress.numInputRows for progress in query.recentProgress]
    assert max(batches) <= 201
    assert len(batches) <= len(wanted) // 200 + 2, f"of {COUNT} messages, {len(wanted)} match"


def test_a_stream_that_runs_gets_what_is_published(spark: SparkSession, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", "--set=streams.shards=2") as node:
        asyncio.run(publish(node.address, 100))
        query = begin(
            spark,
            node,
            tmp_path,
            "out",
            trigger={"processingTime": "0 seconds"},
            minOffsetsPerTrigger="50",
            maxTriggerDelay="10m",
        )
        # "latest" is the default, and is where the query began: the first progress says that it has.
        _until(lambda: query.lastProgress is not None, query)
        new = asyncio.run(publish(node.address, 49, first=100))
        new += asyncio.run(publish(node.address, 11, first=149))
        _until(lambda: sum(one.numInputRows for one in query.recentProgress) >= 60, query)
        query.stop()
        assert [one.numInputRows for one in query.recentProgress if one.numInputRows] == [60]
        assert read(spark.read.parquet(str(tmp_path / "out")).collect()) == new
    # By now without a server, from the folder, with the same checkpoint.
    query = begin(spark, tmp_path / "data", tmp_path, "out")
    query.awaitTermination()
    assert sum(progress.numInputRows for progress in query.recentProgress) == 0


def _until(condition: Callable[[], bool], query: StreamingQuery) -> None:
    def met() -> bool:
        assert query.isActive, query.exception()
        return condition()

    eventually(met, within_s=120)


def test_a_stream_has_no_end_to_be_asked_for(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match="a stream has no end"):
        begin(spark, node, tmp_path, "out", endingOffsets="latest").awaitTermination()
