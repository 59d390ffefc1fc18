"""C17 and the rest, by chance: crashes at any step of anything, over many seeds."""

import pytest
from tests.journal.queues.simulation import Simulation

SEEDS, STEPS = 60, 250
"""15,000 steps for each kind of crash."""


@pytest.mark.parametrize("block", range(6))
def test_c17_power_cuts_lose_nothing_that_was_acknowledged(block: int) -> None:
    """C17: killed at every step of write, rotate, ack, switch, compact, clean, delete."""
    crashes = 0
    for seed in range(block * SEEDS // 6, (block + 1) * SEEDS // 6):
        simulation = Simulation(seed)
        simulation.run(STEPS)
        crashes += simulation.crashes
    assert crashes > 0


@pytest.mark.parametrize("block", range(3))
def test_process_crashes_lose_nothing_without_a_sync(block: int) -> None:
    crashes = 0
    for seed in range(block * 20, (block + 1) * 20):
        simulation = Simulation(1_000_000 + seed, sync=False)
        simulation.run(STEPS)
        crashes += simulation.crashes
    assert crashes > 0
