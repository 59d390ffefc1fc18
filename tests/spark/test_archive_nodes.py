"""An archive is of the data folders that it was made of: another one under the same name is refused."""

import asyncio
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.process.nodes import NodeProcess
from tests.spark.archives import archive_of, messages_in, verified
from tests.spark.conftest import SMALL_GENERATIONS
from tests.spark.publishing import COUNT, publish

from moorline.errors import ConfigError
from moorline.spark.jobs.archive import ArchiveOptions, archive
from moorline.spark.jobs.node_side import ask
from moorline.spark.jobs.verify import VerifyOptions, verify

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.long
def test_another_node_of_the_same_name_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    where, data = tmp_path / "archive", tmp_path / "data"
    with NodeProcess(data, *SMALL_GENERATIONS) as node:
        asyncio.run(publish(node.address, COUNT))
        assert archive_of(spark, node, where).messages == COUNT
    before = messages_in(spark, where)
    files = sorted(path for path in where.rglob("*") if path.is_file())

    with NodeProcess(tmp_path / "other", *SMALL_GENERATIONS) as other:
        asyncio.run(publish(other.address, 2 * COUNT))
        with pytest.raises(ConfigError, match=r"is of another node-1: .* nothing was changed"):
            archive_of(spark, other, where)
        for repair in (False, True):
            with pytest.raises(ConfigError, match="is of another node-1"):
                verified(spark, other, where, repair=repair)
    assert messages_in(spark, where) == before
    assert sorted(path for path in where.rglob("*") if path.is_file()) == files

    # The node itself may come back, and a copy of its folder is still of it.
    with NodeProcess(data, *SMALL_GENERATIONS) as node:
        asyncio.run(publish(node.address, COUNT, COUNT))
        assert archive_of(spark, node, where).messages == COUNT
    copied = tmp_path / "copy"
    shutil.copytree(data, copied, ignore=shutil.ignore_patterns("catalog*", "*.sock"))
    source = {"path": str(copied)}
    assert (
        archive(spark, ArchiveOptions(str(where), source), lambda: ask(source).seals).messages == 0
    )
    assert verify(spark, VerifyOptions(str(where), source), ask(source)).is_equal
    foreign = {"path": str(tmp_path / "other")}
    with pytest.raises(ConfigError, match="is of another node-1"):
        verify(spark, VerifyOptions(str(where), foreign), ask(foreign))
