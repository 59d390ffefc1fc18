"""A job whose driver is killed at a given point; run as a program.

python -m tests.spark.killed_job ADDRESS ARCHIVE POINT

writing    the driver is killed when a task of the first batch of this run has written its files
entered    … when the second batch of this run has its entry, of which Spark does not know yet
merging    … when a task of the compaction has written its files
replayed   … when the second step of a replay is published, and the archive does not say so yet
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.spark.killed_driver import kill_driver

import moorline.spark
from moorline.spark.jobs import batches, compaction
from moorline.spark.jobs.archive import ArchiveOptions, archive
from moorline.spark.jobs.archive_entries import EntryLocation
from moorline.spark.jobs.archive_files import Archive
from moorline.spark.jobs.manifest import Entry
from moorline.spark.jobs.node_side import ask
from moorline.spark.jobs.replay import ReplayOptions, replay
from moorline.spark.session import SHORT_JOB

BATCH_MESSAGES = 700
RATE = 400
PREFIX = "killed/"

archive_range, merge_files = batches.archive_range, compaction.merge_files


def killed_range(item: bytes) -> Iterator[object]:
    """In a worker."""
    for part in archive_range(item):
        kill_driver()
        yield part


def killed_merge(item: bytes) -> Iterator[object]:
    """In a worker."""
    for merged in merge_files(item):
        kill_driver()
        yield merged


def kill_both() -> None:
    """In the driver: its Java first, so that nothing of it goes on; then this process."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid():
                os.kill(int(entry.name), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def prepare(point: str) -> None:
    # By the name under which workers find it, and not that of a program that is run.
    import tests.spark.killed_job

    match point:
        case "writing":
            batches.archive_range = tests.spark.killed_job.killed_range  # type: ignore[assignment]
        case "entered":
            add = Archive.add

            def entered(self: EntryLocation, entry: Entry) -> None:
                add(self, entry)
                if sum(1 for one in self.entries() if one.query) == 2:
                    kill_both()

            Archive.add = entered  # type: ignore[method-assign]
        case "merging":
            compaction.merge_files = tests.spark.killed_job.killed_merge  # type: ignore[assignment]
        case _:
            write_own = Archive.write_own

            def replayed(self: Archive, name: str, value: object) -> None:
                # It is asked to write down the second step, which is published by then.
                if name.endswith(".done.json") and getattr(value, "done", 0) >= 2:
                    kill_both()
                write_own(self, name, value)

            Archive.write_own = replayed  # type: ignore[method-assign]


def main(address: str, where: str, point: str) -> None:
    spark = moorline.spark.session(master="local[2]", config=SHORT_JOB)
    prepare(point)
    source = {"address": address}
    if point == "replayed":
        replay(spark, ReplayOptions(where, source, prefix=PREFIX, rate=RATE), pause=lambda _: None)
    else:
        options = ArchiveOptions(where, source, messages_per_batch=BATCH_MESSAGES)
        archive(spark, options, lambda: ask(source).seals)


if __name__ == "__main__":
    main(*sys.argv[1:])
