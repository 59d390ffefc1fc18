"""The demo as `make demo` starts it: every act is played, and nothing is left behind."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from demo.run import ACTS
from tests.process.nodes import clean_environment, processes_in

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
ARCHIVE = "an archive on Spark"


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name: the sockets of Postgres are in it."""
    with tempfile.TemporaryDirectory(prefix="demo-") as name:
        yield Path(name)


def test_every_act_is_played_and_nothing_is_left(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "demo.run", "--json"],
        cwd=ROOT,
        env=clean_environment() | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {act.TITLE for act in ACTS} | {"start", "stop"} == {row["act"] for row in rows}
    told = {row["what"]: row["result"] for row in rows if row["act"] == ARCHIVE}
    removed = re.fullmatch(
        r"offset ([\d,]+) of (node-1/\d+/\d+)", told["removed from the archive by hand"]
    )
    assert removed is not None
    assert told["found by verify"] == f"offset {removed[1]} of {removed[2]} is missing"
    assert told["fetched from the node by repair"].startswith("1 message of ")
    assert os.listdir(folder) == []
    assert processes_in(folder) == []
