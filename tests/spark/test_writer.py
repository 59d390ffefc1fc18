"""Writing from Spark: every row once and in order, or none of them and a clear error."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)
from tests.process.nodes import NodeProcess, clean_environment
from tests.spark.conftest import SMALL_GENERATIONS

import moorline
from moorline.client.topic import TopicMessage
from moorline.errors import ConfigError, MoorlineError
from moorline.ids import text_of
from moorline.spark.writer import stream_writer, writer

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
KEYS = 7


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One of its own: others count what is in theirs."""
    with NodeProcess(tmp_path_factory.mktemp("written") / "data", *SMALL_GENERATIONS) as one:
        yield one


TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "array<string>": ArrayType(StringType()),
}


def schema_of(**columns: str) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made.add(name, TYPES[kind])
    return made


def write(frame: DataFrame, node: NodeProcess, **options: str) -> None:
    writing = frame.write.format("moorline").mode("append").option("address", node.address)
    for name, value in options.items():
        writing = writing.option(name, value)
    writing.save()


def messages_in(node: NodeProcess, topic: str) -> list[TopicMessage]:
    """Everything in a topic; the node says how much that is."""

    async def read() -> list[TopicMessage]:
        async with moorline.connect(node.address) as moor:
            count = sum(dict(await moor.topics(topic)).values())
            got: list[TopicMessage] = []
            if count:
                subscription = await moor.subscribe(topic, start="beginning")
                async with asyncio.timeout(60):
                    async for message in subscription:
                        got.append(message)
                        await message.ack()
                        if len(got) == count:
                            break
            return got

    return asyncio.run(read())


def make_queues(node: NodeProcess, count: int) -> list[bytes]:
    async def made() -> list[bytes]:
        async with moorline.connect(node.address) as moor:
            return [queue.id for queue in await moor.create_queues(count)]

    return asyncio.run(made())


def delete_queue(node: NodeProcess, queue_id: bytes) -> None:
    async def deleted() -> None:
        async with moorline.connect(node.address) as moor:
            await moor.queue(queue_id).delete()

    asyncio.run(deleted())


def waiting_in(node: NodeProcess, queue_id: bytes) -> list[bytes]:
    """What waits in a queue; it is empty then."""

    async def taken() -> list[bytes]:
        async with moorline.connect(node.address) as moor:
            queue, bodies = moor.queue(queue_id), []
            for _ in range((await queue.info()).waiting):
                message = await queue.get()
                assert message is not None
                bodies.append(message.body)
                await message.ack()
            return bodies

    return asyncio.run(taken())


def by_key(messages: list[TopicMessage]) -> dict[bytes | None, list[bytes]]:
    found: dict[bytes | None, list[bytes]] = defaultdict(list)
    for message in messages:
        found[message.key].append(message.body)
    return found


# --- batch ----------------------------------------------------------------------------------------


def test_all_columns_arrive(spark: SparkSession, node: NodeProcess) -> None:
    frame = spark.createDataFrame(
        [
            ("written/a", b"k1", b"one", [("trace", b"\x01"), ("empty", None)], 60),
            ("written/b", None, b"two", [], None),
            ("written/a", b"k1", b"", None, 0),
        ],
        "topic string, key binary, value binary, "
        "headers array<struct<key:string,value:binary>>, ttl_s int",
    ).coalesce(1)
    write(frame, node)
    found = [
        (message.topic, message.key, message.body, list(message.headers))
        for message in messages_in(node, "written/a") + messages_in(node, "written/b")
    ]
    assert found == [
        ("written/a", b"k1", b"one", [("trace", b"\x01"), ("empty", b"")]),
        ("written/a", b"k1", b"", []),
        ("written/b", None, b"two", []),
    ]


def test_rows_of_a_key_keep_their_order(spark: SparkSession, node: NodeProcess) -> None:
    count = 20_000
    frame = (
        spark.range(count)
        .select(F.concat(F.lit("key-"), (F.col("id") % KEYS)).alias("key"), "id")
        .repartition(4, "key")
        .sortWithinPartitions("id")
        .select("key", F.format_string("%08d", "id").alias("value"))
    )
    write(frame, node, topic="ordered")
    expected = {
        b"key-%d" % key: [b"%08d" % number for number in range(key, count, KEYS)]
        for key in range(KEYS)
    }
    assert by_key(messages_in(node, "ordered")) == expected


def test_a_named_write_that_is_run_again_publishes_nothing(
    spark: SparkSession, node: NodeProcess
) -> None:
    def rows(*values: str) -> DataFrame:
        return spark.createDataFrame([(value,) for value in values], "value string")

    write(rows("a"), node, topic="named", query="nightly", batch="1")
    write(rows("a"), node, topic="named", query="nightly", batch="1")
    write(rows("b"), node, topic="named", query="nightly", batch="2")
    assert [message.body for message in messages_in(node, "named")] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("topic", "value", "text"),
    [
        ("if(id = 900, null, 'bad/null')", "'x'", "topic of row"),
        ("if(id = 900, 'bad/+', 'bad/name')", "'x'", "bad/\\+"),
        ("'bad/large'", "if(id = 900, repeat('x', 300000), 'x')", "300000 bytes .* 'bad/large'"),
        ("'bad/huge'", "if(id = 900, repeat('x', 2000000), 'x')", "2000000 bytes .* 'bad/huge'"),
    ],
)
def test_a_bad_row_fails_the_write_and_nothing_is_published(
    spark: SparkSession, node: NodeProcess, topic: str, value: str, text: str
) -> None:
    rows = spark.range(0, 1_000, numPartitions=2)
    frame = rows.selectExpr(f"{topic} topic", f"{value} value")
    with pytest.raises(PySparkException, match=text):
        write(frame, node)
    assert messages_in(node, "bad/#") == []


def test_a_null_value_is_a_tombstone_and_is_read_as_one(
    spark: SparkSession, node: NodeProcess
) -> None:
    rows = [("k0", b"old"), ("k1", b""), ("k0", None), (None, None)]
    write(spark.createDataFrame(rows, "key string, value binary").coalesce(1), node, topic="grave")
    told = {
        (one.key, one.body if not one.is_tombstone else None) for one in messages_in(node, "grave")
    }
    assert told == {(b"k0", b"old"), (b"k1", b""), (b"k0", None), (None, None)}
    read = spark.read.format("moorline").options(topics="grave", address=node.address).load()
    found = read.selectExpr("string(key)", "value", "partition", "stream").collect()
    values = [None if row.value is None else bytes(row.value) for row in found]
    assert set(zip([row.key for row in found], values, strict=True)) == set(rows)
    assert all(row.partition == int(row.stream.split("/")[1]) for row in found)
    # What was read is written again as it was.
    write(read.select("key", "value"), node, topic="graves")
    again = messages_in(node, "graves")
    assert sorted(one.is_tombstone for one in again) == [False, False, True, True]


def test_rows_go_to_queues(spark: SparkSession, node: NodeProcess) -> None:
    ids = make_queues(node, 2)
    rows = [(text_of(ids[number % 2]), f"{number:03}") for number in range(100)]
    write(spark.createDataFrame(rows, "queue string, value string").coalesce(1), node)
    for place in range(2):
        assert waiting_in(node, ids[place]) == [b"%03d" % n for n in range(place, 100, 2)]


def test_what_a_queue_would_refuse_is_named_and_nothing_is_sent(node: NodeProcess) -> None:
    good, full = make_queues(node, 2)
    nobody = b"\x07" * 24
    for rows, text in (
        ([(good, b"x"), (nobody, b"y")], f"{text_of(nobody)} takes no messages: NOT_FOUND"),
        ([(good, b"x"), *[(full, b"y")] * 200], rf"no room .*{text_of(full)} \(200 more"),
        ([(good, b"x"), (None, b"y")], "queue of row 1"),
        ([(good, b"x"), (b"short", b"y")], "is no id: expected 24 bytes"),
        ([(good, b"x"), (full, None)], f"null value for the queue {text_of(full)}"),
    ):
        made = writer(
            {"address": node.address}, schema_of(queue="binary", value="binary"), overwrite=False
        )
        columns = [pa.array(list(column), pa.binary()) for column in zip(*rows, strict=True)]
        batch = pa.RecordBatch.from_arrays(columns, ["queue", "value"])
        with pytest.raises(MoorlineError, match=text):
            made.commit([made.write(iter([batch]))])
    assert waiting_in(node, good) == []
    assert waiting_in(node, full) == []


def test_a_full_queue_fails_the_write(spark: SparkSession, node: NodeProcess) -> None:
    good, full = make_queues(node, 2)
    rows = spark.createDataFrame(
        [(good, b"x"), *[(full, b"y")] * 200], "queue binary, value binary"
    )
    with pytest.raises(PySparkException, match=rf"nothing was sent: .*{text_of(full)}"):
        write(rows, node)
    assert waiting_in(node, good) == []


@pytest.mark.parametrize("to_queue", [False, True])
def test_of_two_attempts_of_a_task_one_is_published(node: NodeProcess, *, to_queue: bool) -> None:
    """As Spark does it where it speculates: both stage their rows, and the driver hears of one."""
    (queue,) = make_queues(node, 1)
    target = {"queue": text_of(queue)} if to_queue else {"topic": "attempts"}
    options = {"address": node.address, "query": f"twice-{to_queue}", "batch": "0", **target}
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"a", b"b"], pa.binary())})
    made = writer(options, VALUE, False)
    first, second = made.write(iter([rows])), made.write(iter([rows]))
    made.commit([second])
    # A driver that did not hear the answer comes with whatever its new attempt staged.
    made.commit([second])
    made.commit([first])
    made.abort([first])
    found = (
        waiting_in(node, queue)
        if to_queue
        else [message.body for message in messages_in(node, "attempts")]
    )
    assert found == [b"a", b"b"]


def test_a_batch_below_the_last_one_is_an_error_and_not_silence(node: NodeProcess) -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"a"], pa.binary())})

    def write_batch(number: int) -> None:
        options = {"address": node.address, "query": "days", "batch": str(number), "topic": "days"}
        made = writer(options, VALUE, False)
        made.commit([made.write(iter([rows]))])

    write_batch(5)
    write_batch(5)  # the same one again: that is what the name is for
    with pytest.raises(ConfigError, match="3 of the query 'days' comes after 5: nothing was pub"):
        write_batch(3)
    assert [message.body for message in messages_in(node, "days")] == [b"a"]


def test_one_deleted_queue_does_not_stop_a_stream_that_has_a_topic_for_its_rows(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    ids = make_queues(node, 4)
    delete_queue(node, ids[2])
    bodies = [b"%03d" % number for number in range(80)]
    rows = [(ids[number % 4], bodies[number]) for number in range(80)]
    source = tmp_path / "rows"
    for part in range(2):
        frame = spark.createDataFrame(
            rows[40 * part : 40 * part + 40], "queue binary, value binary"
        )
        frame.coalesce(1).write.mode("append").parquet(str(source))

    def streamed(**options: str) -> None:
        query = (
            spark.readStream.schema("queue binary, value binary")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(source))
            .coalesce(1)
            .writeStream.format("moorline")
            .options(address=node.address, **options)
            .option("checkpointLocation", str(tmp_path / "state"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(PySparkException, match=f"{text_of(ids[2])} takes no messages: NOT_FOUND"):
        streamed()
    # The same checkpoint, with another mind; and once more, for nothing.
    for _ in range(2):
        streamed(deadLetterTopic="refused/rows")
    aside = messages_in(node, "refused/rows")
    assert sorted(message.body for message in aside) == bodies[2::4]
    assert {message.key for message in aside} == {ids[2]}
    assert dict(aside[0].headers)["dead-queue"] == text_of(ids[2]).encode()
    for place in (0, 1, 3):
        assert sorted(waiting_in(node, ids[place])) == bodies[place::4]
    with urllib.request.urlopen(f"{node.http}/metrics", timeout=30) as told:
        assert b"moorline_staged_rows_aside_total 20.0" in told.read()


# --- options and columns --------------------------------------------------------------------------

VALUE = schema_of(value="binary")


@pytest.mark.parametrize(
    ("options", "schema", "text"),
    [
        ({"topik": "a"}, VALUE, "unknown option 'topik': there are address,"),
        ({}, VALUE, "where to"),
        ({"topic": "a"}, schema_of(topic="string", value="binary"), "one of them"),
        ({"topic": "a/#"}, VALUE, "wildcard"),
        ({"topic": "a", "queue": "b"}, VALUE, "give one"),
        ({"queue": "b"}, VALUE, "queue: 'b' is not an id"),
        ({"topic": "a"}, schema_of(key="binary"), "no column 'value'"),
        ({"topic": "a"}, schema_of(value="binary", offset="bigint"), "column 'offset'"),
        ({"topic": "a"}, schema_of(value="int"), "is int: accepted: binary, string"),
        ({"topic": "a"}, schema_of(value="binary", headers="array<string>"), "array<struct"),
        (
            {"address": "tcp://127.0.0.1:1"},
            schema_of(queue="string", value="binary", key="binary"),
            "queue, value",
        ),
        ({"topic": "a", "address": "http://x"}, VALUE, "address"),
        ({"topic": "a", "batch": "1"}, VALUE, "of which query"),
        ({"topic": "a", "deadLetterTopic": "b"}, VALUE, "it is for writes to queues"),
        (
            {"deadLetterTopic": "b/#"},
            schema_of(queue="string", value="binary"),
            "deadLetterTopic: .*wildcard",
        ),
        ({"topic": "a", "query": "q", "batch": "-1"}, VALUE, "batch: '-1'"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    options: dict[str, str], schema: StructType, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        writer(options, schema, False)


def test_nothing_can_be_overwritten() -> None:
    with pytest.raises(ConfigError, match="append"):
        writer({"topic": "a"}, VALUE, True)
    with pytest.raises(ConfigError, match="append"):
        stream_writer({"topic": "a"}, VALUE, True)
    with pytest.raises(ConfigError, match="its own"):
        stream_writer({"topic": "a", "query": "q"}, VALUE, False)


# --- streams --------------------------------------------------------------------------------------

FILES, FILE_ROWS = 4, 500


def make_files(folder: Path) -> dict[bytes | None, list[bytes]]:
    """Files of rows, one for each batch; what is to be in the topic, by key."""
    folder.mkdir()
    expected: dict[bytes | None, list[bytes]] = defaultdict(list)
    for number in range(FILES):
        lines = []
        for row in range(number * FILE_ROWS, (number + 1) * FILE_ROWS):
            key, value = f"key-{row % KEYS}", f"{row:06}"
            expected[key.encode()].append(value.encode())
            lines.append(json.dumps({"key": key, "value": value}))
        path = folder / f"{number}.json"
        path.write_text("\n".join(lines))
        # Spark takes the oldest first, by the millisecond: within one the order would be anybody's.
        os.utime(path, (1_700_000_000 + number,) * 2)
    return expected


def drive(*arguments: Any) -> subprocess.CompletedProcess[str]:
    """Runs the driver to its end."""
    command = [sys.executable, "-m", "tests.spark.killed_driver", *map(str, arguments)]
    environment = clean_environment() | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False
    )


POINTS = (
    *((point, "never") for point in ("begun:0", "before:0", "sent:1", "after:1")),
    ("fails:2", "after:0"),
    ("never", "sent:1"),
)
LAST_POINT = "fails:2"


@pytest.mark.long
def test_a_driver_that_is_killed_publishes_every_row_once(
    node: NodeProcess, tmp_path: Path
) -> None:
    """At a point of its query to a topic, or of that to a queue; each run goes on where the last one was."""
    expected = make_files(tmp_path / "input")
    checkpoint = tmp_path / "checkpoint"
    (queue,) = make_queues(node, 1)
    where = (node.address, tmp_path / "input", checkpoint, text_of(queue))
    for point, point_of_queue in POINTS:
        assert drive(*where, point, point_of_queue).returncode, (point, point_of_queue)
    last = drive(*where, "never", LAST_POINT)
    assert last.returncode == 0, last.stderr
    marks = {
        f"{query}/{path.name}"
        for query in ("topic", "queue")
        for path in (checkpoint / query).glob("*-[0-9]")
    }
    wanted = {f"topic/{point}".replace(":", "-") for point, _ in POINTS}
    wanted |= {f"queue/{point}".replace(":", "-") for _, point in (*POINTS, ("", LAST_POINT))}
    assert marks == wanted - {"topic/never", "queue/never"}, "every point was come to"
    assert by_key(messages_in(node, "streamed")) == expected
    rows = FILES * FILE_ROWS
    assert sorted(map(int, waiting_in(node, queue))) == list(range(0, rows, 20))
    for query in ("topic", "queue"):
        assert len(list((checkpoint / query / "commits").glob("[0-9]*"))) == FILES
