"""Writers, nodes and clients in every order that a seed brings: at rest each copy is the table that it may see."""

import pytest
from tests.core.records.records_world import World

STEPS = 450


@pytest.mark.parametrize("first", range(0, 48, 8))
def test_at_rest_every_copy_is_the_permitted_filtered_table(first: int) -> None:
    for seed in range(first, first + 8):
        World(seed).run(STEPS)
