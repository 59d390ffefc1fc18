"""Q12, of what a client publishes: exactly once, and nothing lost, through cuts and crashes at each step."""

import pytest
from tests.core.mqtt.inbound_world import World


@pytest.mark.parametrize("block", range(8))
def test_q12_what_is_published_at_qos_2_is_stored_once(block: int) -> None:
    for seed in range(block * 150, block * 150 + 150):
        try:
            World(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("block", range(4))
def test_q12_a_client_that_says_new_ones_first_loses_none_of_the_old(block: int) -> None:
    for seed in range(block * 150, block * 150 + 150):
        try:
            World(seed, is_impatient=True).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("block", range(4))
def test_q04_q12_what_pubrec_has_answered_is_stored_by_no_other_node(block: int) -> None:
    doubtful = 0
    for seed in range(block * 150, block * 150 + 150):
        world = World(seed, moves=True)
        try:
            world.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        doubtful += len(world.doubtful)
    assert doubtful, "no node was lost between storing and saying so"


def test_without_breaks_everything_is_stored_once_at_qos_1_too() -> None:
    for seed in range(100):
        world = World(seed, crashes=False)
        world.run()
        assert set(world.stored.values()) == {1}
