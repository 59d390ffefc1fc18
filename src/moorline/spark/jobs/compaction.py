"""Room: spark. Compaction of an archive: the small files of a sealed stream become few.

Only what is sealed: it grows no more, so it is moved once. The new files are written aside and read back:
they must have the same messages. Then the entry makes them count in place of the old ones, and these are
removed last. A stream with a file that was changed is left as it is and named: `verify --repair` has to put
it right first.
"""

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from moorline.core.stream import Stream
from moorline.errors import DriftFound
from moorline.limits import ARCHIVE_FILE_BYTES, ARCHIVE_MERGES_MAX
from moorline.spark.jobs import tasks
from moorline.spark.jobs.archive_files import Archive, folder_of
from moorline.spark.jobs.manifest import ArchivedFile, Entry, by_stream
from moorline.spark.jobs.watching import Seen, nobody

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Merge(msgspec.Struct, frozen=True):
    """Files of a stream that become few, under a folder of that name."""

    where: str
    batch: str
    stream: Stream
    files: list[ArchivedFile]


class Merged(msgspec.Struct, frozen=True):
    """What a task wrote in place of which paths; or why it did not."""

    files: list[ArchivedFile]
    replaced: list[str]
    refused: str = ""


class Compacted(msgspec.Struct, frozen=True):
    """How many files became how many, and what was refused."""

    files: int = 0
    into: int = 0
    refused: list[str] = []


def compact(
    spark: "SparkSession", target: Archive, sealed: set[Stream], seen: Seen = nobody
) -> Compacted:
    """Each sealed stream that is in several files goes into as few as its size allows."""
    waiting = [
        (stream, files)
        for stream, files in by_stream(target.live()).items()
        if stream in sealed and len(files) > _files_needed(files)
    ]
    found: list[Merged] = []
    for first in range(0, len(waiting), ARCHIVE_MERGES_MAX):
        name = f"compacted-{uuid.uuid4().hex[:12]}"
        merges = [
            Merge(target.where, name, stream, files)
            for stream, files in waiting[first : first + ARCHIVE_MERGES_MAX]
        ]
        merged = tasks.run(spark, merge_files, merges, Merged, seen)
        came = [file for one in merged for file in one.files]
        if came:
            old = [path for one in merged for path in one.replaced]
            target.add(Entry(name, came, replaced=old))
        found += merged
    target.clean()
    return Compacted(
        sum(len(one.replaced) for one in found),
        sum(len(one.files) for one in found),
        [one.refused for one in found if one.refused],
    )


def _files_needed(files: list[ArchivedFile]) -> int:
    return 1 + sum(file.size_bytes for file in files) // ARCHIVE_FILE_BYTES


def merge_files(item: bytes) -> Iterator[Merged]:
    """In a worker: by the order of offsets, row group by row group."""
    from moorline.spark.jobs.parquet import check_unchanged, part_writer, rows_between

    merge = msgspec.json.decode(item, type=Merge)
    target = Archive(merge.where)
    try:
        with part_writer(target, folder_of(merge.batch, merge.stream), is_proven=True) as writer:
            for file in sorted(merge.files, key=lambda file: file.first):
                check_unchanged(target, file)
                for batch in rows_between(target, file, file.first, file.last + 1):
                    writer.write(batch)
    except DriftFound as error:
        yield Merged([], [], str(error))
    else:
        yield Merged(writer.files, [file.path for file in merge.files])
