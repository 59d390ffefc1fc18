"""What the tests of archives share: a node of their own, its messages, and damage done by hand."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.process.nodes import NodeProcess
from tests.spark.conftest import SMALL_GENERATIONS
from tests.spark.publishing import Message, number_of, publish

import moorline
from moorline.core.frames.frame import decode_headers
from moorline.core.stream import Stream
from moorline.spark.jobs.archive import Archived, ArchiveOptions, archive
from moorline.spark.jobs.archive_files import Archive, archived
from moorline.spark.jobs.manifest import ArchivedFile
from moorline.spark.jobs.node_side import Told, ask
from moorline.spark.jobs.verify import VerifyOptions, verify
from moorline.spark.jobs.verify_report import Report
from moorline.spark.jobs.watching import Seen, nobody
from moorline.spark.node_link import Links
from moorline.spark.options import endpoint_of


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with messages in several sealed generations of two shards."""
    with NodeProcess(tmp_path_factory.mktemp("filled") / "data", *SMALL_GENERATIONS) as node:
        asyncio.run(publish(node.address))
        until_sealed(node)
        yield node


def until_sealed(node: NodeProcess) -> None:
    """Returns when every stream that grows no more has its digest."""
    links, end = Links(endpoint_of(source_of(node))), time.monotonic() + 30
    try:
        while not all(one.digest for one in links.streams((node.address,)) if one.is_sealed):
            assert time.monotonic() < end, "the node does not seal what grows no more"
            time.sleep(0.05)
    finally:
        links.close()


def source_of(node: NodeProcess) -> dict[str, str]:
    return {"address": node.address}


def told_by(node: NodeProcess) -> Told:
    return ask(source_of(node))


def audit_lines_in(spark: SparkSession, node: NodeProcess) -> int:
    """Messages of the node itself, about who came: they lie between the others, and `#` leaves them out."""
    options = {**source_of(node), "topics": "$SYS/audit/#"}
    lines: int = spark.read.format("moorline").options(**options).load().count()
    return lines


def archive_of(
    spark: SparkSession, node: NodeProcess, where: Path, seen: Seen = nobody, **more: Any
) -> Archived:
    source = source_of(node)
    options = ArchiveOptions(str(where), source, **more)
    return archive(spark, options, lambda: ask(source).seals, seen)


def verified(
    spark: SparkSession, node: NodeProcess, where: Path, *, repair: bool = False
) -> Report:
    return verify(spark, VerifyOptions(str(where), source_of(node), repair), told_by(node))


def messages_in(spark: SparkSession, where: Path) -> list[Message]:
    """All archived messages, in the order of what was published."""
    found = [
        Message(
            row.topic,
            None if row.key is None else bytes(row.key),
            bytes(row.value),
            tuple(decode_headers(bytes(row.raw_headers or b""))),
        )
        for row in archived(spark, str(where)).collect()
    ]
    return sorted(found, key=number_of)


def sealed_files(where: Path, node: NodeProcess) -> list[ArchivedFile]:
    sealed: set[Stream] = {seal.stream for seal in told_by(node).seals}
    return [file for file in Archive(str(where)).live() if file.stream in sealed]


def rewrite(where: Path, file: ArchivedFile, table: pa.Table) -> None:
    """As somebody would who has Python at hand."""
    pq.write_table(table, where / file.path)


def table_of(where: Path, file: ArchivedFile) -> pa.Table:
    """By offset, whatever the order of the file."""
    with (where / file.path).open("rb") as source:
        return pq.ParquetFile(source).read().sort_by("offset")


async def messages_of(address: str, filter_text: str, count: int) -> list[Message]:
    """The first so many messages of a filter, as a subscriber gets them."""
    found = []
    async with moorline.connect(address) as moor:
        subscription = await moor.subscribe(filter_text, start="beginning")
        async with asyncio.timeout(30):
            async for one in subscription:
                found.append(Message(one.topic, one.key, one.body, tuple(one.headers)))
                await one.ack()
                if len(found) == count:
                    break
    return found


async def count_of(address: str, filter_text: str) -> int:
    async with moorline.connect(address) as moor:
        return sum(messages for _, messages in await moor.topics(filter_text))
