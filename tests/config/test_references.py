"""The pages of docs/reference/ have all that the code has: one command writes them anew."""

import ast
import re
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess
from tests.sources import trees_with

from moorline import limits
from moorline.cli import reference
from moorline.cli.every_command import commands

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
EXIT_CODES = REFERENCE.parent / "exit-codes.md"
ANEW = "write it anew: .venv/bin/python -m moorline.cli.reference docs/reference"


def page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def test_commands_are_those_of_the_program() -> None:
    assert page("commands.md") == reference.commands_page(), ANEW
    for words, _, _ in commands():
        assert f"# moor {words}\n" in page("commands.md"), words


def test_limits_are_those_of_the_code() -> None:
    assert page("limits.md") == reference.limits_page(), ANEW
    names = {name for name in vars(limits) if name.isupper()}
    assert {one.name for one in reference.every_limit()} == names


def test_every_limit_says_why() -> None:
    silent = [one.name for one in reference.every_limit() if not one.reason]
    assert silent == []


def test_errors_are_those_of_the_tree() -> None:
    assert page("errors.md") == reference.errors_page(), ANEW
    silent = [row for row in reference.errors_page().splitlines() if row.endswith("|  |")]
    assert silent == [], "a sentence in its docstring, or in the drawing at the head of errors.py"


@pytest.mark.process
def test_metrics_are_those_of_a_node(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        with urllib.request.urlopen(f"{node.http}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        assert node.stop() == 0
    shown = list(reference.metrics_in(text))
    assert len(shown) > 100
    assert page("metrics.md") == reference.metrics_page(shown), ANEW
    assert [one.name for one in shown if not one.help_text] == []


def test_what_a_page_says_is_safe_in_a_table() -> None:
    one = reference.Metric("moorline_x", "gauge", "a | b\n<c>")
    assert "| `moorline_x` | gauge | a \\| b \\<c> |" in reference.metrics_page([one])


def test_the_reason_below_several_limits_is_that_of_all() -> None:
    source = (
        '"""Some."""\nKIB = 1\nMIB = 2\n"""Why."""\n\n'
        'FRAME_BYTES_MAX = 3\n\nHELLO_TIMEOUT_MS = 4\n"""Other."""\n'
    )
    found = {one.name: (one.section, one.reason) for one in reference.limits_of(source)}
    assert found == {
        "KIB": ("Some", "Why."),
        "MIB": ("Some", "Why."),
        "FRAME_BYTES_MAX": ("Some", ""),
        "HELLO_TIMEOUT_MS": ("Some", "Other."),
    }


def metrics_in_code() -> dict[str, Path]:
    """Every name that is given to `Metrics` where it stands in the code, whatever a node is set to."""
    found: dict[str, Path] = {}
    for file, tree in trees_with(rf": Metrics\b|\.({'|'.join(WATCHING)})\("):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in WATCHING:
                found.update((name, file) for name in _texts(node.args[:1]))
            takes = isinstance(node, ast.FunctionDef) and any(
                getattr(one.annotation, "id", "") == "Metrics" for one in node.args.args
            )
            if takes:
                for one in ast.walk(node):
                    if isinstance(one, ast.Dict):
                        found.update((name, file) for name in _texts(one.keys))
    return found


WATCHING = {"watch", "add_up", "latency"}


def _texts(nodes: Iterable[ast.expr | None]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_metric_is_missing_that_only_some_settings_show() -> None:
    found = metrics_in_code()
    assert len(found) > 90
    listed = page("metrics.md")
    assert {name: file for name, file in found.items() if f"`moorline_{name}`" not in listed} == {}
    for one in reference.of_publishers():
        assert f"| `{one.name}` |" in listed


def test_a_command_ends_with_no_number_that_has_no_row() -> None:
    """Those of errors are compared in tests/test_errors.py; these stand in the code as numbers."""
    known = {0, *map(int, re.findall(r"^\| (\d+) \|", EXIT_CODES.read_text(), re.MULTILINE))}
    written = {
        one.value
        for _, tree in trees_with(r"[Ee]xit\(")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in {"Exit", "exit", "_exit"}
        for one in node.args
        if isinstance(one, ast.Constant) and isinstance(one.value, int)
    }
    assert written, "the search finds nothing"
    assert written <= known
