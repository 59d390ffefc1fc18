"""Writers, nodes and clients in every order that a seed brings: at rest each copy is what it may see.

The digest at every end of a sync is held against the table at its snapshot (RF4), what is sent against the
rights that the node has heard of (RF3), and no copy may differ at an end unless it was cut off within a sync
(RF1).
"""

import pytest
from tests.core.records.records_world import World

STEPS = 1_500


def world_of(seed: int) -> World:
    return World(
        seed, boots_all=seed % 5 == 0, recent_bytes_max=100_000 if seed % 3 == 0 else 2_000
    )


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_at_rest_every_copy_is_the_permitted_filtered_table(first: int) -> None:
    for seed in range(first, first + 10):
        world_of(seed).run(STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 1_400, 100))
def test_many_more_seeds(first: int) -> None:
    for seed in range(first, first + 100):
        world_of(seed).run(STEPS)


@pytest.mark.parametrize("seed", [8, 24, 28, 56, 1833, 1899])
def test_a_row_that_a_failed_step_brought_and_the_next_does_not(seed: int) -> None:
    """Found by these seeds: it fell in, was sent, and had fallen out when the step was read again."""
    world_of(seed).run(STEPS)


@pytest.mark.parametrize("seed", [13, 81])
def test_a_sync_by_digest_that_begins_anew_while_it_is_asked_about(seed: int) -> None:
    """Found by these seeds: the end of the former scan came with the rows of the later one."""
    world_of(seed).run(STEPS)


def test_t2_the_control_misses_what_commits_late() -> None:
    """Whoever asks for `seq > last` has not all rows, in the same worlds in which every copy has."""
    missed = 0
    for seed in range(20):
        world = world_of(seed)
        world.run(600)
        rows = world.db.rows(world.db.snapshot())
        missed += any(world.naive.get(key) != one.seq for key, one in rows.items())
    assert missed


def test_t5_a_transaction_that_stays_open_while_lines_go_resyncs_nobody() -> None:
    """Nobody is away for longer than lines are kept: then no step says that it does not know."""
    pruned = 0
    for seed in range(0, 40, 2):
        world = world_of(seed)
        world.rarity = 0.02
        world.disturbances = ("cut", "rights", "where", "crash")
        world.run(STEPS)
        pruned += world.db.reach.pruned_below > 0
        assert world.resyncs == 0, f"{seed}"
    assert pruned > 10, "lines went"


@pytest.mark.parametrize("boundary", range(0, 24, 4))
def test_t27_cut_at_every_message_boundary(boundary: int) -> None:
    """A first sync and live changes, cut behind so many messages, then resumed at either node."""
    for cut_at in range(boundary, boundary + 4):
        world = World(7)
        world.rarity = 0.0
        heard = 0
        client = world.clients[0]
        for _ in range(900):
            before = len(client.inbox)
            world.happen()
            heard += before > len(client.inbox)
            if heard == cut_at and client.node is not None:
                world.cut(client)
                heard += 1
        assert heard > cut_at, "never so far"
        world.settle()
