"""`replay` on a real Spark: archived messages come back into topics, each once, in order."""

import asyncio
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions
from tests.process.nodes import NodeProcess
from tests.spark.archives import (
    archive_of,
    count_of,
    filled,
    messages_of,
    rewrite,
    sealed_files,
    source_of,
    table_of,
)
from tests.spark.publishing import COUNT, Message, message, number_of, ttl_s_of

from moorline.errors import ConfigError, DriftFound, MoorlineError, NotFound
from moorline.limits import REPLAY_STEP_S
from moorline.spark.jobs.archive_files import Archive, archived
from moorline.spark.jobs.compaction import compact
from moorline.spark.jobs.failures import explained
from moorline.spark.jobs.replay import ReplayOptions, replay

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]

__all__ = ["filled"]


@pytest.fixture(scope="module")
def where(
    spark: SparkSession, filled: NodeProcess, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    where = tmp_path_factory.mktemp("replay") / "archive"
    archive_of(spark, filled, where)
    return where


def by_key(messages: list[Message]) -> dict[bytes | str, list[int]]:
    """The numbers of each key, or else topic, in the order in which they came."""
    found: dict[bytes | str, list[int]] = defaultdict(list)
    for one in messages:
        topic = one.topic.removeprefix("again/")
        found[topic if one.key is None else one.key].append(number_of(one))
    return found


def test_all_messages_come_back_once_and_in_order(
    spark: SparkSession, filled: NodeProcess, where: Path
) -> None:
    expected = [message(number) for number in range(COUNT)]
    options = ReplayOptions(str(where), source_of(filled), prefix="again/")

    def crash(done: int, _: int) -> None:
        if done:
            raise KeyboardInterrupt

    # Interrupted behind its first step, then run to its end, then once more.
    slow = ReplayOptions(str(where), source_of(filled), prefix="again/", rate=400)
    with pytest.raises(KeyboardInterrupt):
        replay(spark, slow, crash, pause=lambda _: None)
    began = asyncio.run(count_of(filled.address, "again/#"))
    assert 0 < began <= 800
    done = replay(spark, options)
    assert (done.messages, done.messages_in_all) == (COUNT - began, COUNT)
    again = replay(spark, options)
    assert (again.messages, again.steps, again.messages_in_all) == (0, 0, COUNT)

    assert asyncio.run(count_of(filled.address, "again/#")) == COUNT
    found = asyncio.run(messages_of(filled.address, "again/#", COUNT))
    assert by_key(found) == by_key(expected)
    stripped = [one._replace(topic=one.topic.removeprefix("again/")) for one in found]
    assert sorted(stripped, key=number_of) == expected
    read = spark.read.format("moorline").options(address=filled.address, topics="again/#")
    for row in read.option("includeSystem", "true").load().collect():
        assert row.ttl_s == ttl_s_of(int(bytes(row.value).split(b":")[0]))


def test_a_filter_a_time_and_a_rate(spark: SparkSession, filled: NodeProcess, where: Path) -> None:
    file = sealed_files(where, filled)[0]
    times = table_of(where, file).column("timestamp").to_pylist()
    first_us, upto_us = (
        round(times[len(times) * part // 4].timestamp() * 1_000_000) for part in (1, 3)
    )
    pauses: list[float] = []
    options = ReplayOptions(
        str(where),
        source_of(filled),
        topics="orders/eu/#",
        first_us=first_us,
        upto_us=upto_us,
        prefix="early/",
        rate=100,
        token="early",
    )
    done = replay(spark, options, pause=pauses.append)
    wanted = archived(spark, str(where)).where(
        functions.col("topic").startswith("orders/eu/")
        & functions.unix_micros("timestamp").between(first_us, upto_us - 1)
    )
    assert done.messages == wanted.count() > 0
    assert asyncio.run(count_of(filled.address, "early/#")) == done.messages
    # Nobody slept here: so it was always too early, by what the rate allows.
    assert sum(pauses) > done.messages / 100 - done.seconds
    with pytest.raises(ConfigError, match="that replay has topics 'orders/eu/#'"):
        replay(spark, ReplayOptions(str(where), source_of(filled), token="early"))
    with pytest.raises(ConfigError, match="--token 'a/b'"):
        replay(spark, ReplayOptions(str(where), source_of(filled), token="a/b"))


def test_a_damaged_file_stops_it_with_its_name_and_nothing_is_published(
    spark: SparkSession, filled: NodeProcess, tmp_path: Path
) -> None:
    where = tmp_path / "archive"
    archive_of(spark, filled, where, topics="orders/us/#")
    file = sealed_files(where, filled)[0]
    untouched = Path(shutil.copytree(where, tmp_path / "untouched"))
    (where / file.path).unlink()
    options = ReplayOptions(str(where), source_of(filled), prefix="broken/")
    with pytest.raises(DriftFound, match=rf"{file.path} is gone.*verify --repair"), explained():
        replay(spark, options)
    table = table_of(untouched, file)
    rewrite(where, file, table.slice(1))
    with pytest.raises(DriftFound, match=rf"{file.path} has \d+ bytes, not the {file.size_bytes}"):
        replay(spark, options)
    assert asyncio.run(count_of(filled.address, "broken/#")) == 0


def test_a_rate_is_kept_to_from_the_first_message_to_the_last(
    spark: SparkSession, filled: NodeProcess, where: Path
) -> None:
    rate = 150
    options = ReplayOptions(
        str(where), source_of(filled), topics="orders/us/#", prefix="slow/", rate=rate
    )
    began_us = time.time_ns() // 1_000
    done = replay(spark, options)
    assert done.steps > 2
    slow = spark.read.format("moorline").options(topics="slow/#", **source_of(filled)).load()
    stored = slow.select(functions.unix_micros("timestamp").alias("us")).orderBy("us").collect()
    assert len(stored) == done.messages > 2 * rate
    # By the node's clock: before a message there was time for all those of the steps before it.
    for number, row in enumerate(stored):
        assert row.us - began_us >= (number - rate * REPLAY_STEP_S) * 1_000_000 // rate


def test_a_compaction_in_the_middle_of_a_replay_is_no_reason_to_end(
    spark: SparkSession, filled: NodeProcess, tmp_path: Path
) -> None:
    where = tmp_path / "archive"
    archive_of(spark, filled, where, topics="orders/eu/#", messages_per_batch=900, compact=False)
    expected = archived(spark, str(where)).count()
    merged: list[int] = []

    def move(done: int, total: int) -> None:
        if 0 < done < total and not merged:
            archive = Archive(str(where))
            merged.append(compact(spark, archive, {file.stream for file in archive.live()}).files)

    options = ReplayOptions(str(where), source_of(filled), prefix="moved/", rate=400)
    done = replay(spark, options, move, pause=lambda _: None)
    assert merged[0] > 1
    assert done.messages == expected
    assert asyncio.run(count_of(filled.address, "moved/#")) == expected


def test_what_nothing_can_come_of_is_an_error_and_nothing_is_published(
    spark: SparkSession, filled: NodeProcess, where: Path
) -> None:
    newest_us = max(file.last_us for file in Archive(str(where)).live())
    target = source_of(filled)
    refused: list[tuple[dict[str, Any], type[MoorlineError], str]] = [
        ({"topics": "orders/nowhere"}, NotFound, "no message of the topic 'orders/nowhere'"),
        ({"topics": "orders/eu/#,absent"}, NotFound, "no message of the topic 'absent'"),
        ({"topics": "absent/#"}, NotFound, "no archived message matches absent/#"),
        ({"first_us": newest_us + 1}, NotFound, "no archived message of # is from 2"),
        ({"upto_us": 1}, NotFound, "is from the first to before 1970"),
        ({"first_us": 10, "upto_us": 10}, ConfigError, "--from is not before --until"),
        ({"first_us": 11, "upto_us": 10}, ConfigError, "--from is not before --until"),
    ]
    for chosen, kind, text in refused:
        options = ReplayOptions(str(where), target, prefix="refused/", **chosen)
        with pytest.raises(kind, match=f"{text}.*nothing was published"):
            replay(spark, options)
    assert asyncio.run(count_of(filled.address, "refused/#")) == 0
    plans = (where / "_moorline" / "replays").glob("*.plan.json")
    assert not any("refused/" in plan.read_text() for plan in plans)
    # One that was there and is complete is no mistake, however often it is said.
    options = ReplayOptions(str(where), target, topics="größe", prefix="taken/")
    count = replay(spark, options).messages
    assert count == asyncio.run(count_of(filled.address, "taken/#")) > 0
    assert replay(spark, options).messages == 0
