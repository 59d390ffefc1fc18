"""Every benchmark that `make bench` runs is there, has a place in the document, and takes the two flags.

What it asks of a node is what its caller may ask.
"""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import stalls
from bench.node import BenchNode
from bench.run import BENCHMARKS, DOCUMENT, ROOT
from tests.access.every_command_table import DOCUMENT as WHO_MAY_CALL

from moorline.client.connecting import connect
from moorline.wire.message import Call


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


SIEGES = ROOT / "tests" / "process" / "test_hostile_calls.py"
"""As a benchmark: were its calls denied, it would measure nothing."""


def calls_named_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("moorline.wire"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                found = getattr(module, alias.name)
                if isinstance(found, type) and issubclass(found, Call) and found is not Call:
                    yield alias.name


@pytest.mark.parametrize(
    "path", [*sorted((ROOT / "bench").glob("*.py")), SIEGES], ids=lambda path: path.stem
)
def test_what_a_benchmark_asks_is_granted_to_who_asks_it(path: Path) -> None:
    """Clients of a benchmark may do everything that an operator may; some calls are for nodes alone."""
    rows = [
        line.split("|") for line in WHO_MAY_CALL.read_text().splitlines() if line.startswith("| `")
    ]
    denied = {cells[1].strip().strip("`") for cells in rows if cells[5].strip() == "denied"}
    assert "FindRetained" in denied, "the column of operators is another one now"
    asked = set(calls_named_in(path))
    assert not asked & denied, "only the nodes of a cluster may ask for these"


@pytest.mark.process
async def test_every_work_of_stalls_is_answered(tmp_path: Path) -> None:
    with BenchNode(tmp_path, [*stalls.FLAGS, "--http=127.0.0.1:0"]) as node:
        async with connect(node.address) as moor:
            await stalls.fill(moor, stalls.Sizes(300, 100, 100, 3))
        measured = [
            one async for one in stalls.measured(node.address, node.http_address, idle_s=0.0)
        ]
    assert len(measured) >= 10
    assert all(longest_s > 0 for _, longest_s, _ in measured)
