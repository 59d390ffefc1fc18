"""The table of codes in the page on the native protocol has every code that an end says."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.sources import SOURCE, trees_with

from moorline.errors import CallFailed

ROOT = Path(__file__).parents[2]
CODES = (ROOT / "docs/protocols/native.md").read_text(encoding="utf-8").partition("### Codes")[2]
ROW = re.compile(r"^\| ([^|]*) \| ([^|]*) \|", re.MULTILINE)
OTHER_PROTOCOLS = ("mqtt", "net/http")
"""These close their own connections, and say so in their own words."""


def documented(word: str) -> set[str]:
    return {
        code
        for place, codes in ROW.findall(CODES)
        if word in place or (word == "`Failed`" and "answers" in place)
        for code in re.findall(r"`([A-Z_]+)`", codes)
    }


@cache
def said() -> frozenset[tuple[str, str]]:
    return frozenset(_said())


def _said() -> Iterator[tuple[str, str]]:
    """The first code in each call of a name, as it is written in the code."""
    for file, tree in trees_with(r"\b(Failed|close)\("):
        if str(file.relative_to(SOURCE)).startswith(OTHER_PROTOCOLS):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                for given in node.args[:2]:
                    if isinstance(given, ast.Constant) and re.fullmatch(
                        "[A-Z_]+", str(given.value)
                    ):
                        yield name, str(given.value)


def test_every_refusal_of_a_call_has_its_row() -> None:
    written = {code for name, code in said() if name == "Failed"}
    assert written >= {"GIVEN_UP", "INTERNAL"}
    assert CallFailed.by_code.keys() | written <= documented("`Failed`")


def test_every_end_of_a_link_has_its_row() -> None:
    # What a link machine ends with when nobody hears it any more is in the log alone.
    silent = {"LOST", "SILENT"}
    written = {code for name, code in said() if name == "close"}
    assert written >= {"STOPPING", "MALFORMED"}
    ended = {"TAKEN_OVER"}  # of a subscription, not of the link
    assert written - silent - ended <= documented("`Goodbye`")


def test_no_row_is_of_a_refusal_that_nobody_says() -> None:
    known = CallFailed.by_code.keys() | {code for name, code in said() if name == "Failed"}
    assert documented("`Failed`") <= known
