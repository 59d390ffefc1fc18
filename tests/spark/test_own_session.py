"""Sessions that a user makes, in an environment that is not activated; and tables of SQL."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.process.nodes import NodeProcess
from tests.spark.publishing import Message
from tests.spark.quick_java import quicken

from moorline.spark.java import ensure_java

pytestmark = [pytest.mark.slow, pytest.mark.process]

SETTINGS = """
import json, os, sys
from pyspark.sql import SparkSession

def made():
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "OFF")
    flags = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 " + sys.argv[3]
    return builder.config("spark.driver.extraJavaOptions", flags).getOrCreate()

def count(spark):
    frame = spark.read.format("moorline").option("topics", "#").option("path", sys.argv[1]).load()
    return frame.count()
"""
IMPORTED_FIRST = """
import moorline.spark
print(json.dumps({"rows": count(made()), "python": os.environ["PYSPARK_PYTHON"]}))
"""
MADE_FIRST = """
spark = made()
before = spark.sparkContext.pythonExec
try:
    count(spark)
    unfound = ""
except Exception as error:
    unfound = str(error)
import moorline.spark
rows = count(moorline.spark.session(master="local[1]"))
found = {"unfound": "DATA_SOURCE_NOT_FOUND" in unfound, "rows": rows}
found["is_as_before"] = before == spark.sparkContext.pythonExec
spark.sparkContext.pythonExec = sys.argv[2]
try:
    moorline.spark.register(spark)
except moorline.ConfigError as error:
    found["refused"] = str(error)
print(json.dumps(found))
"""


def _run(folder: Path, code: str) -> dict[str, Any]:
    """With nothing of our environment, and a python3 on the PATH that has no package at all."""
    (folder / "data" / "streams").mkdir(parents=True)
    (folder / "data" / "streams" / "layout").write_text("shards=8 version=1\n")
    python = folder / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o700)
    environment = {"PATH": f"{python.parent}{os.pathsep}/usr/bin:/bin", "HOME": str(folder)}
    home = ensure_java(environment)
    if home is not None:
        environment["JAVA_HOME"] = home
    ended = subprocess.run(
        [sys.executable, "-c", SETTINGS + code, str(folder / "data"), str(python), quicken()],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(300)
def test_a_session_of_ones_own_finds_the_source_without_an_activated_environment(
    tmp_path: Path,
) -> None:
    assert _run(tmp_path, IMPORTED_FIRST) == {"rows": 0, "python": sys.executable}


@pytest.mark.timeout(300)
def test_a_session_from_before_the_import_is_given_the_source_or_one_line(tmp_path: Path) -> None:
    found = _run(tmp_path, MADE_FIRST)
    refused = found.pop("refused")
    assert found == {"unfound": True, "rows": 0, "is_as_before": True}
    assert f"set PYSPARK_PYTHON={sys.executable} before the session is made" in refused
    assert "\n" not in refused


# --- SQL ------------------------------------------------------------------------------------------


def test_a_table_of_sql_is_refused_and_the_reason_said(
    spark: SparkSession, node: NodeProcess, published: list[Message]
) -> None:
    assert published
    made = "CREATE TABLE {} USING moorline OPTIONS (topics 'orders/#', address '{}')"
    with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(made.format("refused", node.address))
    # With columns nobody asks the source; Spark keeps the options to itself when the table is used.
    with_columns = made.format("kept (topic string, value binary)", node.address)
    spark.sql(with_columns)
    try:
        with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW"):
            spark.sql("SELECT * FROM kept").count()
        with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW"):
            spark.sql("INSERT INTO kept SELECT 'sql/lost', X'00'")
        told = spark.sql(f"SELECT * FROM kept WITH (topics='größe', address='{node.address}')")
        assert told.count() == sum(one.topic == "größe" for one in published)
    finally:
        spark.sql("DROP TABLE kept")


def test_views_of_sql_are_read_and_written(spark: SparkSession, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:  # others read all that the common one has
        options = f"OPTIONS (address '{node.address}')"
        columns = "(topic string, key string, value string)"
        spark.sql(f"CREATE TEMPORARY VIEW sql_sink {columns} USING moorline {options}")
        spark.sql("INSERT INTO sql_sink VALUES ('sql/a', 'k', 'one'), ('sql/b', NULL, 'two')")
        options = f"OPTIONS (topics 'sql/#', address '{node.address}')"
        spark.sql(f"CREATE TEMPORARY VIEW sql_source USING moorline {options}")
        rows = spark.sql("SELECT topic, string(key), string(value) FROM sql_source").collect()
    assert sorted(map(tuple, rows)) == [("sql/a", "k", "one"), ("sql/b", None, "two")]
