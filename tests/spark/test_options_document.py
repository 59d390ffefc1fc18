"""docs/spark.md names every option and every column that there is, and no other."""

import re
from pathlib import Path

from moorline.spark.group_reader import GROUP
from moorline.spark.options import ASSOCIATIONS, KINDS, QUEUES, TOPICS
from moorline.spark.rows import FOR_QUEUES, FOR_TOPICS
from moorline.spark.source import ALL_COLUMNS
from moorline.spark.writer import OPTIONS

TEXT = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """From a heading to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ )", TEXT, re.M | re.S)
    assert found is not None, title
    return found[1]


def first_cells(text: str) -> set[str]:
    """What is written as code in the first column of the tables."""
    rows = re.findall(r"^\|([^|]*)\|", text, re.M)
    return {name for cell in rows for name in re.findall(r"`(\w+)`", cell)}


def test_the_options_of_reads() -> None:
    real = {*TOPICS, *QUEUES, *ASSOCIATIONS, *GROUP} - set(KINDS)
    assert first_cells(section("Options")) == real


def test_what_can_be_read_and_its_columns() -> None:
    text = section("Reading")
    assert set(KINDS) <= first_cells(text)
    for columns in ALL_COLUMNS.values():
        for name, kind in columns.items():
            assert f"{name} {kind}" in text


def test_the_options_and_columns_of_writes() -> None:
    text = section("Writing")
    assert set(OPTIONS) == first_cells(text)
    assert all(f"`{name}" in text for name in (*FOR_TOPICS, *FOR_QUEUES))
