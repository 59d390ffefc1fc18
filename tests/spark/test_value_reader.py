"""Live values read by Spark: a snapshot of a subtree, from a real node and a real publisher."""

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.process.nodes import NodeProcess
from tests.spark.live_values import LiveValues

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

MANY = 2_500
MOMENT = datetime(2026, 5, 4, 8, 30, tzinfo=UTC)
KINDS: dict[str, Any] = {
    "null": None,
    "bool": True,
    "int": 7,
    "float": 4.5,
    "str": "warm",
    "bytes": b"\x00\x01",
    "time": MOMENT,
    "list": [1, "a"],
    "map": {"a": [1, None]},
}


@pytest.fixture(scope="module")
def live(node: NodeProcess) -> Iterator[LiveValues]:
    with LiveValues(node.address) as made:
        made.publish({f"/many/{number}": number for number in range(MANY)})
        made.publish({f"/kinds/{name}": value for name, value in KINDS.items()})
        yield made


def resolvers(node: NodeProcess) -> str:
    """The same node, as a list of resolvers; the first member is nobody."""
    return f"moor://127.0.0.1:1,{node.address.removeprefix('tcp://')}"


def read(spark: SparkSession, address: str, glob: str, **options: str) -> DataFrame:
    given = {"address": address, "values": glob, **options}
    return spark.read.format("moorline").options(**given).load()


def test_a_snapshot_has_each_path_once_with_its_publisher_and_time(
    spark: SparkSession, node: NodeProcess, live: LiveValues
) -> None:
    before = datetime.now(UTC).replace(tzinfo=None)
    frame = read(spark, resolvers(node), "/many/*", valueType="long", minPartitions="3")
    assert frame.schema.simpleString() == (
        "struct<path:string,value:bigint,publisher:string,time:timestamp>"
    )
    parts = frame.rdd.glom().collect()
    rows = [row for part in parts for row in part]
    assert {row.path: row.value for row in rows} == {f"/many/{n}": n for n in range(MANY)}
    assert len(rows) == MANY
    assert len(parts) == 3, "paths are shared out"
    assert min(map(len, parts)) >= MANY // 3
    assert {row.publisher for row in rows} == {live.publisher.instance.hex()}
    assert min(row.time for row in rows) >= before.replace(microsecond=0)


def test_values_as_json_and_by_their_type(
    spark: SparkSession, node: NodeProcess, live: LiveValues
) -> None:
    assert live.published
    rows = read(spark, node.address, "/kinds/*", includeFirst="true").collect()
    assert {row.path.removeprefix("/kinds/"): row.value for row in rows} == {
        "null": None,
        "bool": "true",
        "int": "7",
        "float": "4.5",
        "str": '"warm"',
        "bytes": '"AAE="',
        "time": '"2026-05-04T08:30:00Z"',
        "list": '[1,"a"]',
        "map": '{"a":[1,null]}',
    }
    assert all(row.is_first for row in rows)
    typed = {
        "double": {"int": 7.0, "float": 4.5},
        "long": {"int": 7},
        "string": {"str": "warm"},
        "boolean": {"bool": True},
        "binary": {"bytes": bytearray(b"\x00\x01")},
    }
    for name, wanted in typed.items():
        options = {"valueType": name, "failOnMisfit": "false"}
        found = read(spark, node.address, "/kinds/*", **options).collect()
        assert len(found) == len(KINDS), "what does not fit is null, and there"
        fitting = {row.path.rsplit("/")[-1]: row.value for row in found if row.value is not None}
        assert fitting == wanted


def test_a_value_that_does_not_fit_and_a_wrong_option_are_named(
    spark: SparkSession, node: NodeProcess, live: LiveValues
) -> None:
    assert live.published
    for options, text in (
        ({"valueType": "double"}, "/kinds/.* is no double: choose another valueType"),
        ({"valueType": "decimal"}, "valueType: 'decimal'; accepted: json, string, double"),
        ({"values": "kinds"}, "values: 'kinds' is no glob"),
        ({"startingOffsets": "latest"}, "unknown option 'startingoffsets': there are address"),
        ({"address": "moor://"}, "names no resolvers"),
    ):
        given: dict[str, str] = {"address": node.address, "values": "/kinds/*", **options}
        with pytest.raises(PySparkException, match=text):
            spark.read.format("moorline").options(**given).load().collect()


def test_a_path_that_has_gone_is_left_out_or_fails_the_read(
    spark: SparkSession, node: NodeProcess, live: LiveValues
) -> None:
    name = f"/gone-{secrets.token_hex(4)}"
    live.publish({f"{name}/{number}": number for number in range(5)})
    live.forget(f"{name}/3")
    rows = read(spark, node.address, f"{name}/*").collect()
    assert {row.path for row in rows} == {f"{name}/{number}" for number in (0, 1, 2, 4)}
    with pytest.raises(PySparkException, match=f"nobody has a value any more for {name}/3: fail"):
        read(spark, node.address, f"{name}/*", failOnVanished="true").collect()


def test_a_subtree_without_values_is_empty(spark: SparkSession, node: NodeProcess) -> None:
    assert read(spark, node.address, "/nothing/**").count() == 0
