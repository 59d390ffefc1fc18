"""The example of docs/testing.md does what the page says: its test passes, and finds the mistake."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
LINE = "self._file.sync()"


def notes() -> str:
    program: str
    (program,) = [
        block
        for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
        if "class Notes" in block
    ]
    return program


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def summary(text: str) -> str:
    """Of a run of pytest, without its time."""
    return text.strip().splitlines()[-1].partition(" in ")[0]


@pytest.mark.slow
def test_the_example_passes_and_finds_the_line_that_is_missing(tmp_path: Path) -> None:
    said = [
        summary(block)
        for block in re.findall(r"^```text\n(.*? in [\d.]+s\n)```", PAGE, re.M | re.S)
    ]
    file = tmp_path / "test_notes.py"
    for text, expected in zip(
        (notes(), notes().replace(f"        {LINE}\n", "")), said, strict=True
    ):
        file.write_text(text)
        done = ran(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_notes.py")
        assert summary(done.stdout) == expected, done.stdout


def test_the_failure_is_replayed_as_the_page_shows_it(tmp_path: Path) -> None:
    (command,) = re.findall(r'^\$ \.venv/bin/python -c "(.*)"$', PAGE, re.M)
    (shown,) = re.findall(r"^```text\n(seed .*?)^```", PAGE, re.M | re.S)
    done = ran(tmp_path, "-c", command)
    assert done.returncode == 1
    for line in shown.splitlines():
        assert line == "…" or line in done.stderr, line
