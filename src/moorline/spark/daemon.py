"""Room: spark. What the Python workers of a session on this machine are forks of.

    python -m moorline.spark.daemon pyspark.worker

Spark starts a daemon for each kind of worker, by the setting `spark.python.daemon.module`, and forks it for
every worker. Its own has imported nothing, since packages may start threads, which no fork has. So each
worker begins with half a second of imports, and looks through all that came with them for garbage behind
every task. Here that is done once. Arrow's one thread may be forked; polars has some that may not, and is
left to the workers.
"""

import gc
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.daemon import manager

OURS = ("moorline.spark.source", "moorline.spark.topic_reader")


def prepare(worker_module: str) -> None:
    """Imports, and sets it apart: modules stay anyway."""
    gc.disable()
    with _without_threads():
        for name in (worker_module, *OURS):
            importlib.import_module(name)
    gc.enable()
    gc.collect()
    gc.freeze()


@contextmanager
def _without_threads() -> Iterator[None]:
    """numpy would start one a core, for what a task has one of."""
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = before


if __name__ == "__main__":
    prepare(sys.argv[1])
    manager()
