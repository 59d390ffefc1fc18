"""A very short campaign on real nodes: the harness works, ends by itself, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.process.nodes import clean_environment, processes_in

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent
ENDS_S_MAX = 110


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: pytest's own has the user's name in it, and a unix socket must fit behind it."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as made:
        yield Path(made)


def started(folder: Path, *flags: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "chaos.run", "--json", "--no-archive", "--no-damage", *flags],
        cwd=ROOT,
        env={**clean_environment(), "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_short_campaign_keeps_every_promise_and_leaves_nothing_behind(folder: Path) -> None:
    flags = ("--seed=3", "--rounds=1", "--only=kill -9", "--only=links to clients cut")
    campaign = started(folder, *flags)
    shown, _ = campaign.communicate(timeout=ENDS_S_MAX)
    lines = [json.loads(line) for line in shown.splitlines()]
    assert campaign.returncode == 0, shown
    summary = lines[-1]["summary"]
    assert summary["rounds"] == "1"
    assert any(name.startswith("fault: ") for name in summary)
    assert int(summary["answered sends to queues"].replace(",", "")) > 0
    assert int(summary["answered messages to topics"].replace(",", "")) > 0
    assert {summary[kind] for kind in ("lost", "doubled", "out of order", "false proof")} == {"0"}
    assert list(folder.iterdir()) == []
    assert processes_in(folder) == []


def test_ctrl_c_ends_a_campaign_and_leaves_nothing_behind(folder: Path) -> None:
    campaign = started(folder, "--seed=3", "--minutes=5")
    assert campaign.stdout is not None
    assert "3 nodes" in campaign.stdout.readline()
    os.kill(campaign.pid, signal.SIGINT)
    campaign.communicate(timeout=ENDS_S_MAX)
    assert campaign.returncode == 130
    assert list(folder.iterdir()) == []
    assert processes_in(folder) == []
