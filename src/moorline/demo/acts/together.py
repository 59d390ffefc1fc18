"""Act: one group of two worlds. A client of MQTT and a query of Spark share its streams; none is missing.

The query runs in the process of the act on Spark (pipeline.py), which has the session.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import moorline
from moorline.core.mqtt.packets import Puback, Publish, Suback, Subscribe, Subscription
from moorline.demo.acts.mqtt import Device
from moorline.demo.acts.topics import both_are_there
from moorline.demo.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TITLE = "MQTT and Spark in one group"

GROUP = "$shared/pilots/pilot/#"
OF_MQTT = "$share/pilots/pilot/#"
MESSAGES = 4_000
PATIENCE_S = 90


async def play(stage: Stage, names: Path) -> None:
    """`names` is the file in which the query writes what it got."""
    device = Device("pilot")
    async with asyncio.timeout(PATIENCE_S), moorline.connect(stage.address) as moor:
        await device.connect(*stage.mqtt)
        device.say(Subscribe(1, (Subscription(OF_MQTT, 1),)))
        assert isinstance(await device.hear(), Suback)
        await both_are_there(moor, GROUP)
        wanted = {str(number) for number in range(MESSAGES)}
        records = [moorline.record(f"pilot/{n % 50}", str(n).encode()) for n in range(MESSAGES)]
        by_mqtt: set[str] = set()
        reading = asyncio.create_task(read(device, by_mqtt))
        await moor.publish_all(records)
        by_spark: set[str] = set()
        while not by_mqtt | by_spark >= wanted:
            await asyncio.sleep(0.05)
            by_spark = set((await asyncio.to_thread(names.read_text)).split())
        reading.cancel()
        await asyncio.wait([reading])
    device.lose()
    assert by_mqtt, "the client of MQTT got nothing"
    assert by_spark, "the query got nothing"
    missing = len(wanted - by_mqtt - by_spark)
    stage.tell(TITLE, "a client of MQTT got", f"{len(by_mqtt):,}")
    stage.tell(TITLE, "a query of Spark got", f"{len(by_spark):,}")
    stage.claim(
        TITLE,
        "a client of MQTT and a query of Spark share one group",
        f"{len(by_mqtt):,} + {len(by_spark):,}, {missing} of {MESSAGES:,} missing",
    )


async def read(device: Device, got: set[str]) -> None:
    while True:
        packet = await device.hear()
        if isinstance(packet, Publish):
            got.add(packet.payload.decode())
            device.say(Puback(packet.packet_id))


def member(spark: "SparkSession", address: str, names: Path) -> "StreamingQuery":
    """A query that is a member of the group, and writes down what it gets."""
    names.touch()

    def note(batch: "DataFrame", _: int) -> None:
        rows = batch.select("value").collect()
        with names.open("a") as file:
            file.writelines(bytes(row.value).decode() + "\n" for row in rows)

    source = spark.readStream.format("moorline").option("address", address).option("group", GROUP)
    writer = source.load().writeStream.foreachBatch(note)
    checkpoint = str(names.with_suffix(".checkpoint"))
    return (
        writer.option("checkpointLocation", checkpoint)
        .trigger(processingTime="200 milliseconds")
        .start()
    )
