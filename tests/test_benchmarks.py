"""Every benchmark that `make bench` runs is there, has a place in the document, and takes the two flags."""

import subprocess
import sys

import pytest
from bench.run import BENCHMARKS, DOCUMENT, ROOT


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_has_its_place_and_its_flags(name: str) -> None:
    assert f"<!-- bench {name} -->" in DOCUMENT.read_text()
    command = [sys.executable, "-m", f"bench.{name}", "--help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "--quick" in shown
    assert "--json" in shown


def test_every_table_of_the_document_has_its_benchmark() -> None:
    marks = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("<!-- bench ")]
    assert sorted(marks) == sorted(f"<!-- bench {name} -->" for name in BENCHMARKS)
