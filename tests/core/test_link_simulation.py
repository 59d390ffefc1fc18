"""Handshakes of two ends, seed after seed: nothing passes early, and every one of them ends."""

from collections import Counter

import pytest
from tests.core.link_world import World

from moorline.core.link import LinkState

SEEDS = 3_000


def run(seed: int) -> World:
    world = World(seed)
    try:
        world.run()
    except Exception as error:
        stories = f"{world.node.link.story()}\n{world.client.link.story()}"
        pytest.fail(f"seed {seed}: {error}\n{stories}")
    return world


def test_no_order_of_events_opens_a_link_early_or_leaves_it_half_open() -> None:
    seen = Counter[str]()
    for seed in range(SEEDS):
        world = run(seed)
        node = world.node
        seen["accepted"] += node.is_accepted
        seen["opened"] += node.opened_ms is not None
        seen["calls"] += bool(node.handled)
        seen["expired"] += node.expires_at_ms is not None and node.opened_ms is not None
        seen["cut"] += world.cut_ms is not None
        wrapped = [end.wraps_behind is not None for end in (node, world.client)]
        seen["wrapped"] += all(wrapped)
        seen["wrapped calls"] += all(wrapped) and bool(node.handled)
        seen["half wrapped"] += wrapped == [True, False]
        seen["forged"] += bool(world.client.forged)
        if node.handled:
            assert node.opened_ms is not None
        if node.expires_at_ms is not None:
            assert node.link.state is LinkState.CLOSED, "a session outlived its proof"
        if not world.client.misdeeds and world.cut_ms is None and node.opened_ms is not None:
            seen["well-behaved"] += 1
    # A simulation in which nothing of this happens proves nothing.
    assert all(seen[word] > SEEDS / 30 for word in ("accepted", "opened", "calls", "cut")), seen
    assert seen["expired"] > 10
    assert seen["wrapped"] > SEEDS / 30
    assert seen["wrapped calls"] > SEEDS / 60
    assert seen["half wrapped"] > 10
    assert seen["forged"] > 10
    assert seen["well-behaved"] > 100


def test_a_seed_is_the_same_again() -> None:
    first, again = run(7), run(7)
    assert first.node.link.story() == again.node.link.story()
    assert first.client.link.story() == again.client.link.story()
