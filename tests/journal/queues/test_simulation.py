"""C17 and the rest, by chance: crashes at any step of anything, over many seeds."""

import random

import pytest
from tests.journal.queues.simulation import Simulation

from moorline.journal.queues import checkpoint
from moorline.journal.queues.files import StoreOptions
from moorline.journal.queues.store import Store
from moorline.testing import HandClock, MemoryDisk

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


@pytest.mark.slow
@pytest.mark.parametrize("block", range(3))
def test_process_crashes_lose_nothing_without_a_sync(block: int) -> None:
    crashes = 0
    for seed in range(block * 20, (block + 1) * 20):
        simulation = Simulation(1_000_000 + seed, sync=False)
        simulation.run(STEPS)
        crashes += simulation.crashes
    assert crashes > 0


def test_a_deletion_that_is_not_committed_is_in_no_index() -> None:
    """Seed 1000025: a checkpoint wrote an index without a queue whose deletion was still in the batch."""
    Simulation(1_000_025, sync=False).run(STEPS)
    disk, clock = MemoryDisk(), HandClock()
    store = Store(disk, StoreOptions(sync=True), clock.wall_ms)
    store.open()
    queue = store.create(b"owner")
    store.send(queue, b"kept", clock.wall_ms())
    store.commit()
    checkpoint.run(store, clock.wall_ms)
    store.delete(queue)
    # What a checkpoint does until it would have to wait for a commit, which never comes.
    waits = 0
    for disk_work in checkpoint.steps(store, clock.wall_ms, lambda: 0):
        if disk_work is not None:
            disk_work()
            waits = 0
        else:
            waits += 1
        if waits == 100:
            break
    assert waits == 100, "the checkpoint went on without the commit"
    disk.crash(random.Random(0), "all")
    again = Store(disk, StoreOptions(sync=True), clock.wall_ms)
    again.open()
    found = again.find(queue.id)
    assert found is not None, "a queue is gone whose deletion was never committed"
    head = again.head(found)
    assert head is not None
    assert head.body == b"kept"
