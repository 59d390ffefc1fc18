"""A run of `materialize` whose driver is killed at a given point; run as a program.

    python -m tests.spark.killed_materialize ADDRESS FOLDER POINT

staging      the driver is killed when a task has staged what its range says
merging      … when a task has written the new file of its bucket
committing   … when all files are there, before the state that names them
committed    … right behind that, before anything that nobody needs any more is removed
"""

import sys
from collections.abc import Iterator

from tests.records.replayed import TOPIC
from tests.spark.killed_driver import kill_driver
from tests.spark.killed_job import kill_both

import moorline.spark
from moorline.spark.jobs import materialize as job
from moorline.spark.jobs import materialize_tasks
from moorline.spark.jobs.materialized import MaterializedTable, TableState
from moorline.spark.session import SHORT_JOB

POINTS = ("staging", "merging", "committing", "committed")


def killed_staging(item: bytes) -> Iterator[object]:
    """In a worker."""
    for part in materialize_tasks.stage_range(item):
        if part.messages:
            kill_driver()
        yield part


def killed_merge(item: bytes) -> Iterator[object]:
    """In a worker."""
    for file in materialize_tasks.merge_bucket(item):
        kill_driver()
        yield file


def prepare(point: str) -> None:
    # By the name under which workers find it, and not that of a program that is run.
    import tests.spark.killed_materialize as program

    commit = MaterializedTable.commit

    def committing(self: MaterializedTable, state: TableState) -> None:
        if point == "committed":
            commit(self, state)
        kill_both()

    match point:
        case "staging":
            vars(job)["stage_range"] = program.killed_staging
        case "merging":
            vars(job)["merge_bucket"] = program.killed_merge
        case _:
            MaterializedTable.commit = committing  # type: ignore[method-assign]


def main(address: str, where: str, point: str) -> None:
    assert point in POINTS
    spark = moorline.spark.session(master="local[2]", config=SHORT_JOB)
    prepare(point)
    options = job.MaterializeOptions(where, {"address": address}, TOPIC, "things", 4)
    job.materialize(spark, options)


if __name__ == "__main__":
    main(*sys.argv[1:])
