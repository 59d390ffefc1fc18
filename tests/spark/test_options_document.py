"""docs/spark.md names every option and every column that there is, and no other."""

import re
from pathlib import Path

import pytest
import typer

from moorline.cli.pipeline import app
from moorline.errors import ConfigError
from moorline.spark.group_reader import GROUP
from moorline.spark.options import ASSOCIATIONS, KINDS, QUEUES, RECORDS, TOPICS, VALUES, kind_of
from moorline.spark.rows import FOR_QUEUES, FOR_TOPICS
from moorline.spark.source import ALL_COLUMNS
from moorline.spark.value_types import TYPES
from moorline.spark.writer import OPTIONS

WHOLE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
TEXT = re.sub(r"^```.*?^```$", "", WHOLE, flags=re.M | re.S)
"""Without code, in which a comment looks like a heading."""


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
    real = {*TOPICS, *QUEUES, *ASSOCIATIONS, *GROUP, *VALUES, *RECORDS} - set(KINDS)
    assert first_cells(section("Options")) == real


def test_an_unknown_option_is_named_before_it_is_said_that_nothing_is_read() -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'topik': there are address, .*topics"):
        kind_of({"address": "tcp://127.0.0.1:1", "topik": "x"})
    every = dict.fromkeys(
        {*TOPICS, *QUEUES, *ASSOCIATIONS, *GROUP, *VALUES, *RECORDS} - set(KINDS), "x"
    )
    with pytest.raises(ConfigError, match="nothing to read: give one of the options topics, "):
        kind_of(every)
    assert kind_of({"TOPICS": "x", "topik": "x"}) == "topics", "its own check names the other"


def test_what_can_be_read_and_its_columns() -> None:
    text = section("Reading")
    assert set(KINDS) <= first_cells(text)
    for columns in ALL_COLUMNS.values():
        for name, kind in columns.items():
            assert f"{name} {kind}" in text


def test_the_types_of_values() -> None:
    cells = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", section("Live values"), re.M)
    assert dict(cells) == {one.name: one.column for one in TYPES.values()}


def test_the_options_and_columns_of_writes() -> None:
    text = section("Writing")
    assert set(OPTIONS) == first_cells(text)
    assert all(f"`{name}" in text for name in (*FOR_TOPICS, *FOR_QUEUES))


@pytest.mark.parametrize(
    ("title", "jobs"),
    [
        ("archive", ["archive"]),
        ("verify", ["verify"]),
        ("replay", ["replay"]),
        ("audit and diff", ["audit", "diff"]),
        ("run: your own flows", ["run"]),
    ],
)
def test_the_options_of_jobs(title: str, jobs: list[str]) -> None:
    cells = re.findall(r"^\|([^|]*)\|", section(title), re.M)
    named = {name for cell in cells for name in re.findall(r"`(--[\w-]+)`", cell)}
    of_all = set(re.findall(r"`(--[\w-]+)", section("Jobs")))
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    options = [
        {*option.opts, *option.secondary_opts}
        for job in jobs
        for option in commands[job].params
        if option.param_type_name == "option"
    ]
    assert named <= set().union(*options)
    assert [one for one in options if not one & (named | of_all)] == []
