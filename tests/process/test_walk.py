"""How long the way of a message is: the architecture tells it, and it does not grow unseen."""

import re
from pathlib import Path

import pytest
from bench.walk import counts, walks

DOCUMENT = Path(__file__).parents[2] / "ARCHITECTURE.md"
GROWTH_MAX = 1.08
"""Some functions more are no matter; beyond that the document is to say so, and why."""


@pytest.mark.process
async def test_a_message_runs_through_about_as_many_functions_as_the_architecture_says() -> None:
    told = re.search(
        r"runs (\d+) functions in\s+(\d+) files in a group, and (\d+) in (\d+) of a private",
        DOCUMENT.read_text(),
    )
    assert told is not None, "ARCHITECTURE.md tells how many there are"
    numbers = [int(number) for number in told.groups()]
    for found, functions, files in zip(
        (await walks()).values(), numbers[::2], numbers[1::2], strict=True
    ):
        measured = counts(found)
        assert measured[0] > functions / 2, "a walk was cut short"
        assert measured[0] <= functions * GROWTH_MAX
        assert measured[1] <= files * GROWTH_MAX
