"""What clients of MQTT publish, in Spark; and one group of both (Q17, Q30)."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.mqtt.wire_client import WireClient
from tests.process.nodes import NodeProcess
from tests.spark.conftest import SMALL_GENERATIONS
from tests.topics.scenes import described, is_shared_by
from tests.waiting import until

import moorline
from moorline.core.mqtt.packets import Puback, Publish

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

WITHIN_S = 120
COUNT = 200


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One of its own: others count all that is at the node that they share."""
    with NodeProcess(tmp_path_factory.mktemp("node") / "data", *SMALL_GENERATIONS) as one:
        yield one


def test_q17_properties_are_headers_in_their_order(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    with WireClient(node.mqtt, name=tmp_path.name) as writer:
        writer.connect()
        writer.publish(
            f"{tmp_path.name}/t",
            b"body",
            2,
            payload_format=1,
            content_type="text/plain",
            response_topic="answers",
            correlation_data=b"\x00\xff",
            user=(("b", "2"), ("a", "1"), ("b", "3"), ("mqtt.own", "x")),
        )
    options = {"address": node.address, "topics": f"{tmp_path.name}/#", "includeHeaders": "true"}
    (row,) = spark.read.format("moorline").options(**options).load().collect()
    assert bytes(row.value) == b"body"
    assert [(one.key, bytes(one.value)) for one in row.headers] == [
        ("mqtt.qos", b"2"),
        ("mqtt.payload-format", b"1"),
        ("mqtt.content-type", b"text/plain"),
        ("mqtt.response-topic", b"answers"),
        ("mqtt.correlation-data", b"\x00\xff"),
        ("b", b"2"),
        ("a", b"1"),
        ("b", b"3"),
        ("user.mqtt.own", b"x"),
    ]


async def test_q30_members_of_mqtt_and_of_spark_share_a_group(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    topic = tmp_path.name
    group = f"$share/{topic}/{topic}/#"
    with WireClient(node.mqtt, name=f"{topic}-member") as member, WireClient(node.mqtt) as writer:
        member.connect()
        writer.connect()
        await asyncio.to_thread(member.subscribe, group)
        source = spark.readStream.format("moorline").options(address=node.address, group=group)
        query = (
            source.load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "state"))
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            async with moorline.connect(node.address) as moor:
                await described(moor, group, is_shared_by(2))
            for number in range(COUNT):
                writer.publish(f"{topic}/{number}", b"%d" % number, 1)
            mine: list[int] = []

            def all_came() -> bool:
                assert query.isActive, query.exception()
                member.is_silent(Publish)
                for one in [one for one in member.heard if isinstance(one, Publish)]:
                    member.heard.remove(one)
                    member.say(Puback(one.packet_id))
                    mine.append(int(one.payload))
                theirs = sum(progress.numInputRows for progress in query.recentProgress)
                return len(mine) + theirs >= COUNT

            await until(all_came, within_s=WITHIN_S)
        finally:
            await asyncio.to_thread(query.stop)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    theirs = [int(bytes(row.value)) for row in rows]
    assert mine
    assert theirs
    assert sorted(mine + theirs) == list(range(COUNT))
