"""An archive from a program: topics to Parquet, proven against the node, and read as a table."""

import asyncio
import tempfile

import moorline
import moorline.spark
from moorline.spark.jobs.archive import ArchiveOptions, archive
from moorline.spark.jobs.archive_files import archived
from moorline.spark.jobs.node_side import ask
from moorline.spark.jobs.verify import VerifyOptions, verify

NODE = {"address": "tcp://127.0.0.1:7411"}


async def publish() -> None:
    async with moorline.connect(NODE["address"]) as moor:
        await moor.publish_all([moorline.record("archive-me", b"%d" % n) for n in range(1_000)])


asyncio.run(publish())
spark = moorline.spark.session()
with tempfile.TemporaryDirectory() as folder:
    options = ArchiveOptions(folder, NODE, topics="archive-me")
    done = archive(spark, options, lambda: ask(NODE).seals)
    print(f"{done.messages} messages archived")
    again = archive(spark, options, lambda: ask(NODE).seals)
    print(f"{again.messages} more the second time")
    print(f"{archived(spark, folder).count()} rows in the table")
    report = verify(spark, VerifyOptions(folder, NODE), ask(NODE))
    # A stream is proven once its node has sealed it, by age or size; a young node has sealed none yet.
    proven = len(report.streams) - len(report.differing)
    print(f"{proven} sealed streams proven, {len(report.differing)} differ")
spark.stop()
