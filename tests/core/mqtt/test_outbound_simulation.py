"""Q11 and Q12, of what a client gets: at QoS 2 once, in order, through cuts and crashes at each step."""

import pytest
from tests.core.mqtt.outbound_world import MESSAGES, World


@pytest.mark.parametrize("block", range(8))
def test_q12_what_is_delivered_at_qos_2_comes_once(block: int) -> None:
    for seed in range(block * 150, block * 150 + 150):
        try:
            World(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_without_breaks_everything_comes_once_at_qos_1_too() -> None:
    for seed in range(100):
        world = World(seed, breaks=False)
        world.run()
        assert len(world.given) == len(set(world.given)) <= MESSAGES
