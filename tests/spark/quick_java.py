"""A Java that starts in half of its time: what it loaded once is kept, and mapped by every later one.

    quicken()   # for all processes that are started from here

Most of a start of Spark is the loading of 20,000 classes. Java's own archive of loaded classes
(`-XX:SharedArchiveFile`) halves that. A Java that the archive does not fit passes it over, silently.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from moorline.spark.java import ensure_java

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".pytest_cache" / "java"
MAKE_S_MAX = 600
SILENT = "-Xshare:auto -Xlog:disable -Xlog:all=off"

FAILED = ".failed"
"""Beside an archive whose program did not come to its end: what it said. A test looks for it."""

WARM_UP = """
import os
import sys
import moorline.spark
from moorline.spark.session import SHORT_JOB

archive, folder = sys.argv[1:]
options = SHORT_JOB["spark.driver.extraJavaOptions"]
spark = moorline.spark.session(
    master="local[2]",
    config={"spark.driver.extraJavaOptions": f"{options} -XX:ArchiveClassesAtExit={archive}"},
)
rows = spark.range(1000).selectExpr("id % 10 as k", "cast(id as string) as v")
rows.groupBy("k").count().collect()
rows.write.parquet(f"{folder}/rows")
kept = spark.read.parquet(f"{folder}/rows")
both = kept.join(rows.withColumnRenamed("k", "other"), "v")
both.mapInArrow(lambda batches: batches, "v string, k long, other long").count()
stream = spark.readStream.schema(kept.schema).parquet(f"{folder}/rows").writeStream
stream = stream.foreachBatch(lambda frame, number: frame.count()).trigger(availableNow=True)
stream.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()

os.makedirs(f"{folder}/data/streams")
with open(f"{folder}/data/streams/layout", "w") as layout:
    layout.write("shards=8 version=1\\n")
ours = {"topics": "#", "path": f"{folder}/data"}
spark.read.format("moorline").options(**ours).load().count()
stream = spark.readStream.format("moorline").options(**ours).load().writeStream
stream = stream.foreachBatch(lambda frame, number: frame.count()).trigger(availableNow=True)
stream.option("checkpointLocation", f"{folder}/ours").start().awaitTermination()
spark.stop()
"""


def quicken() -> str:
    """Sets what Spark's own scripts give to Java, and returns it: nothing while there is no archive yet.

    Who asks first has it made, beside the tests: nobody waits for it.
    """
    java = f"{ensure_java()} {os.environ.get('JAVA_HOME')}"
    what = f"{pyspark.__version__} {pyspark.__file__} {java} {WARM_UP}"
    archive = KEPT / f"{hashlib.sha256(what.encode()).hexdigest()[:16]}.jsa"
    if not archive.exists():
        _have_made(archive)
        return ""
    flags = f"{SILENT} -XX:SharedArchiveFile={archive}" if archive.stat().st_size else ""
    os.environ["SPARK_SUBMIT_OPTS"] = flags
    return flags


def _have_made(archive: Path) -> None:
    if not os.access(ROOT, os.W_OK):
        return
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # somebody does
        # It keeps the lock with the descriptor that it inherits, and ends by itself.
        subprocess.Popen(
            [sys.executable, "-m", "tests.spark.quick_java", str(archive)],
            cwd=ROOT,
            pass_fds=[lock.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def make(archive: Path) -> None:
    new = archive.with_suffix(".new")
    with tempfile.TemporaryDirectory(prefix="moorline-java-") as folder:
        done = subprocess.run(
            [sys.executable, "-c", WARM_UP, str(new), folder],
            # Java ends, and writes, after Python does: its pipe tells when that is over.
            capture_output=True,
            timeout=MAKE_S_MAX,
            check=False,
        )
    if done.returncode:
        archive.with_suffix(FAILED).write_bytes(done.stderr)
    # Whatever went wrong, tests go on, with a Java that is as slow as ever, and nobody tries again.
    if new.exists():
        new.replace(archive)
    else:
        archive.touch()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
