"""An archive from a program: topics to Parquet, proven against the node, and read as a table.

A stream is proven when its node has sealed it, after an hour or 256 MB. To see that at once, start the node
with `.venv/bin/moor serve --set streams.generation_s=1`.

    .venv/bin/python examples/spark_archive.py
"""

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
        await moor.publish_all([moorline.record(f"log/{n % 10}", b"%d" % n) for n in range(1_000)])


asyncio.run(publish())
spark = moorline.spark.session()
with tempfile.TemporaryDirectory() as folder:
    for _ in range(2):
        done = archive(spark, ArchiveOptions(folder, NODE, "log/#"), lambda: ask(NODE).seals)
        print(f"{done.messages} messages archived")
    print(f"{archived(spark, folder).count()} rows in the table")
    report = verify(spark, VerifyOptions(folder, NODE), ask(NODE))
    print(f"{len(report.streams)} sealed streams compared, {len(report.differing)} differ")
spark.stop()
