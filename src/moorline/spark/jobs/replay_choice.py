"""Room: spark. What a replay has chosen, looked at before anything is published.

A topic of which the archive has nothing, or a time without messages, is a mistake and no empty success.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from moorline.core.topic import Matcher
from moorline.errors import NotFound
from moorline.spark.jobs import tasks
from moorline.spark.jobs.archive_files import Archive
from moorline.spark.jobs.failures import explained
from moorline.spark.jobs.manifest import MAX_US, ArchivedFile
from moorline.spark.jobs.parquet import rows_between
from moorline.spark.jobs.replay_steps import is_between
from moorline.spark.known_topics import names_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moorline.spark.jobs.replay import ReplayOptions

NOTHING = "nothing was published"


class ChoiceItem(msgspec.Struct, frozen=True):
    """A file, and what is looked for in it."""

    where: str
    file: ArchivedFile
    filters: list[str]
    first_us: int
    upto_us: int


class Chosen(msgspec.Struct, frozen=True):
    """How many messages of each filter there are, at any time; and how many of any of them in time."""

    by_filter: list[int]
    in_time: int


def check_chosen(
    spark: "SparkSession", archive: Archive, options: "ReplayOptions", files: Iterable[ArchivedFile]
) -> None:
    """Raises if the archive has no message that is meant; or none of a topic that is named in full."""
    files = list(files)
    if not files:
        raise NotFound(f"the archive at {archive.where} has no messages yet: {NOTHING}")
    is_any_time = options.first_us <= 0 and options.upto_us >= MAX_US
    if is_any_time and "#" in options.filters and not names_in(options.filters):
        return  # which is every message, but for dead letters
    filters = options.filters
    items = [
        ChoiceItem(archive.where, file, filters, options.first_us, options.upto_us)
        for file in files
    ]
    with explained():
        found = tasks.run(spark, choose_in_file, items, Chosen)
    counts = np.sum([one.by_filter for one in found], axis=0)
    absent = [text for text, count in zip(filters, counts, strict=True) if not count]
    named = sorted(names_in(absent))
    if named:
        raise NotFound(f"the archive has no message of the topic {named[0]!r}: {NOTHING}")
    if len(absent) == len(filters):
        raise NotFound(f"no archived message matches {options.topics}: {NOTHING}")
    if not sum(one.in_time for one in found):
        raise NotFound(
            f"no archived message of {options.topics} is from {_shown(options.first_us)} to before "
            f"{_shown(options.upto_us)}: {NOTHING}"
        )


def choose_in_file(item: bytes) -> Iterator[Chosen]:
    """In a worker: topics and times only."""
    wanted = msgspec.json.decode(item, type=ChoiceItem)
    matchers = [Matcher(text) for text in wanted.filters]
    by_filter = np.zeros(len(matchers), np.int64)
    in_time = 0
    file = wanted.file
    for batch in rows_between(
        Archive(wanted.where), file, file.first, file.last + 1, ("topic", "timestamp")
    ):
        topics = batch.column("topic").dictionary_encode()
        names = topics.dictionary.to_pylist()
        taken = np.array([[match(name) for match in matchers] for name in names], np.bool_)
        rows = taken[topics.indices.to_numpy()]
        by_filter += rows.sum(axis=0)
        times = is_between(batch.column("timestamp"), wanted.first_us, wanted.upto_us)
        in_time += int((rows.any(axis=1) & times).sum())
    yield Chosen(by_filter.tolist(), in_time)


def _shown(time_us: int) -> str:
    if time_us <= 0:
        return "the first"
    if time_us >= MAX_US:
        return "the end"
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).isoformat()
