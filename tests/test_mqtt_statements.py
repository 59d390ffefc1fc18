"""docs/protocols/mqtt.md has a row for each normative statement of MQTT 5, and names tests that are there."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
TEXT = (TESTS.parent / "docs/protocols/mqtt.md").read_text()
ROW = re.compile(r"^\| (\d[\d.]*-\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
# How many the standard has in each of its chapters.
STATEMENTS = {"1": 5, "2": 7, "3": 175, "4": 60, "6": 4}


def rows() -> dict[str, tuple[str, str]]:
    found = ROW.findall(TEXT)
    assert len({number for number, _, _ in found}) == len(found), "a statement has two rows"
    return {number: (words, covered) for number, words, covered in found}


def test_every_statement_has_its_row() -> None:
    found = rows()
    by_chapter = {
        chapter: sum(number.partition(".")[0] == chapter for number in found)
        for chapter in STATEMENTS
    }
    assert by_chapter == STATEMENTS
    # Each number follows the one before it, or the standard left it out.
    sections: dict[str, list[int]] = {}
    for number in found:
        section, _, place = number.rpartition("-")
        sections.setdefault(section, []).append(int(place))
    gaps = {
        f"{section}-{place}"
        for section, places in sections.items()
        for place in range(1, max(places))
        if place not in places
    }
    assert gaps == {"2.2.1-1"}


def test_the_tests_that_are_named_are_there() -> None:
    for number, (_, covered) in rows().items():
        named = NAMED.findall(covered)
        is_said = covered.startswith(("not covered", "not so", "none needed", "the client's"))
        assert bool(named) != is_said, f"{number}: {covered}"
        for path, name in named:
            source = (TESTS / path).read_text()
            assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), f"{path}::{name}"


def test_what_is_not_covered_is_counted() -> None:
    uncovered = sum(covered.startswith("not covered") for _, covered in rows().values())
    assert f"{uncovered} of {len(rows())} are not covered" in TEXT
