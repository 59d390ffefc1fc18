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


def test_without_breaks_everything_is_stored_once_at_qos_1_too() -> None:
    for seed in range(100):
        world = World(seed, crashes=False)
        world.run()
        assert set(world.stored.values()) == {1}
