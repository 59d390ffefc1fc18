"""What Spark's processes set apart from the garbage collector."""

import subprocess
import sys

from tests.process.nodes import clean_environment

PROGRAM = """
import gc, sys
import moorline.spark.source
from moorline.spark.garbage import spare_the_collector

def apart():
    spare_the_collector()
    return gc.get_freeze_count()

print(apart())
import pyspark.worker_util
gc.collect()
first = apart()
made = [[] for _ in range(1_000)]
again = apart()
import wave
print(first > 10_000, again == first, apart() > first + 1_000)
"""


def test_a_worker_sets_apart_what_it_imported_and_the_process_of_a_user_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
        check=True,
    )
    assert done.stdout.split() == ["0", "True", "True", "True"], done.stdout
