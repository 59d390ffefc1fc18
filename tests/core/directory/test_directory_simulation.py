"""Resolvers and publishers, seed after seed: what lives is found by everybody, and nothing dead for long."""

import pytest
from tests.core.directory.directory_world import DELAY_MS, TTL_MS, DirectoryWorld

STEPS = 100_000
STEPS_A_SEED = 600
QUIET_MS = 2 * TTL_MS + TTL_MS // 2 + 10 * DELAY_MS
"""Stated bound: the dead go within 1.25 ttl, and whoever lives says its digest every half ttl. A login that
was lost on its way is tried half a ttl later, and the repair follows the next answer."""


@pytest.mark.slow
def test_what_lives_is_found_by_everybody_and_nothing_dead_is() -> None:
    seen: dict[str, int] = {}
    steps = seed = 0
    while steps < STEPS:
        world = DirectoryWorld(seed)
        try:
            while world.steps < STEPS_A_SEED:
                world.step()
            world.is_quiet = True
            quiet_until_ms = world.now_ms + QUIET_MS
            while world.now_ms < quiet_until_ms:
                world.step()
            world.check_found()
        except AssertionError as error:
            pytest.fail(f"seed {seed}, {world.now_ms} ms: {error}")
        for resolver in world.resolvers:
            for _ in resolver.registry.purging():
                pass
            resolver.registry.check(world.now_ms, resolver.ticked_ms)
        for what, count in world.seen.items():
            seen[what] = seen.get(what, 0) + count
        steps += world.steps
        seed += 1
    # A simulation in which nothing of this happens proves nothing.
    for what in (
        "lost",
        "repeated",
        "repaired",
        "kill",
        "stop",
        "start",
        "crash",
        "cut",
        "half purged",
    ):
        assert seen.get(what, 0) > 50, (what, seen)
