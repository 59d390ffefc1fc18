"""`moor pipeline --remote` where no Spark Connect server is: an end in time, and at once when told to."""

import signal
import socket
import subprocess
from pathlib import Path

import pytest
from tests.process.nodes import MOOR, clean_environment, run_moor

pytestmark = [pytest.mark.process, pytest.mark.slow]

END_S_MAX = 100
"""Many times what it takes; a job that hangs would take ten minutes."""


@pytest.fixture
def sides(tmp_path: Path) -> tuple[str, str]:
    for name in ("left", "right"):
        (tmp_path / f"{name}.csv").write_text(f"id\n{name}\n")
    return f"{tmp_path}/left.csv", f"{tmp_path}/right.csv"


def test_nobody_listens(sides: tuple[str, str]) -> None:
    done = run_moor("pipeline", "diff", *sides, "--remote=sc://127.0.0.1:1", timeout_s=END_S_MAX)
    assert (done.returncode, done.stdout) == (10, "")
    assert done.stderr == (
        "moor: no Spark Connect server answers at 127.0.0.1:1, 10 seconds long: is it running?\n"
    )


@pytest.mark.parametrize("wrong", ["host:15002", "sc://", "sc://host:port", "sc://host/;token"])
def test_an_address_that_is_none(sides: tuple[str, str], wrong: str) -> None:
    done = run_moor("pipeline", "diff", *sides, "--remote", wrong)
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "accepted: sc://HOST:PORT" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_told_to_while_it_waits(
    sides: tuple[str, str], number: signal.Signals
) -> None:
    """Somebody listens, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(END_S_MAX)
        remote = f"--remote=sc://127.0.0.1:{mute.getsockname()[1]}"
        process = subprocess.Popen(
            [*MOOR, "pipeline", "diff", *sides, remote],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        )
        try:
            caller, _ = mute.accept()
            with caller:
                process.send_signal(number)
                # Not 10, as after its own patience.
                assert (process.wait(END_S_MAX), *process.communicate()) == (130, "", "")
        finally:
            process.kill()
            process.communicate()


def test_what_is_refused_needs_no_server(sides: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    remote = "--remote=sc://127.0.0.1:1"
    done = run_moor("pipeline", "diff", *sides, "--out", str(tmp_path / "out"), remote)
    assert done.returncode == 3
    assert "out is there already" in done.stderr
