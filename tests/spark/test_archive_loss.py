"""Retention that was faster than an archive: an error with stream and range, or a report of what is gone."""

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.process.nodes import NodeProcess
from tests.spark.archives import archive_of, messages_in, source_of, told_by, verified
from tests.spark.conftest import SMALL_GENERATIONS
from tests.spark.publishing import COUNT, number_of, publish
from tests.waiting import eventually

from moorline.errors import MessagesGone
from moorline.spark.jobs.archive import ArchiveOptions, archive
from moorline.spark.jobs.archive_files import Archive
from moorline.spark.jobs.node_side import ask, opened_streams
from moorline.spark.jobs.verify import VerifyOptions, verify
from moorline.spark.planning import firsts
from moorline.spark.streams import described

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]


def has_dropped(node: NodeProcess) -> bool:
    """Whether the oldest messages of all shards are gone."""
    streams = opened_streams(source_of(node))
    try:
        return all(first > 0 for first in firsts(described(streams, {}).bounds).values())
    finally:
        streams.close()


@pytest.mark.long
def test_messages_that_retention_took(spark: SparkSession, tmp_path: Path) -> None:
    where, data = tmp_path / "archive", tmp_path / "data"
    early = 300
    with NodeProcess(data, *SMALL_GENERATIONS) as node:
        asyncio.run(publish(node.address, early))
        assert archive_of(spark, node, where).messages == early
        asyncio.run(publish(node.address, COUNT, early))
        eventually(lambda: len(told_by(node).seals) > 1)
        # The seals are known, and so is that the archive is behind them.
        assert verified(spark, node, where).behind > 1

    with NodeProcess(data, *SMALL_GENERATIONS, "--set=streams.retention_bytes=65536") as node:
        eventually(lambda: has_dropped(node))
        with (
            pytest.raises(
                MessagesGone,
                match=r"gone before .*: \d+ messages of node-1/\d, \d+ to \d+.*--allow-loss goes on",
            ),
        ):
            archive_of(spark, node, where)
        assert len(messages_in(spark, where)) == early

        allowed = {**source_of(node), "failOnDataLoss": "false"}
        options = ArchiveOptions(str(where), allowed)
        done = archive(spark, options, lambda: ask(source_of(node)).seals)
        assert done.lost_messages > 0
        assert done.messages + done.lost_messages == COUNT
        for one in done.lost:
            assert one.upto - one.first > 0
            assert one.why == "retention took them"
        found = messages_in(spark, where)
        assert len(found) == early + done.messages
        assert len({number_of(one) for one in found}) == len(found)

        # What is gone was let go, and is told; what is there is proven.
        report = verified(spark, node, where)
        assert report.is_equal
        taken = [one for one in report.streams if one.lost]
        assert {one.proof for one in taken} == {"count"}
        # A generation that a start seals and drops at once has no seal that anybody heard of.
        assert 0 < report.lost <= done.lost_messages
        assert {one.proof for one in report.streams if not one.lost} <= {"seal"}
        assert archive_of(spark, node, where).messages == 0

        # A message of such a stream that is removed later is not explained by what was let go.
        named = {one.stream: one for one in taken}
        files = [file for file in Archive(str(where)).live() if str(file.stream) in named]
        (where / files[0].path).unlink()
        report = verify(
            spark, VerifyOptions(str(where), source_of(node), repair=True), told_by(node)
        )
        assert [one.stream for one in report.differing] == [str(files[0].stream)]
        assert not report.differing[0].is_on_node
