"""What a publisher hears of those who hold tokens for its paths."""

from tests.access.world import STALE_MS
from tests.resolver.publishing import codes
from tests.resolver.server import ResolverServer

from moorline.core.access.right import EVERYTHING, SUBSCRIBE
from moorline.core.access.row import Row
from moorline.core.directory.path import DEFAULT
from moorline.resolver.commands import PATHS_AT_ONCE
from moorline.resolver.holders import judging
from moorline.wire.resolver import Holder, ResolvePaths

ROWS = (
    Row("/", "publisher", grants=EVERYTHING),
    Row("/", "alice", grants=SUBSCRIBE),
)


async def test_what_a_resolver_cannot_judge_is_told_apart_from_no_right() -> None:
    async with ResolverServer.open(*ROWS) as server:
        publisher = await server.publisher("/a", principal="publisher")
        await publisher.publish("/made", flags=DEFAULT)
        await server.publisher("/another", principal="publisher")
        alice, bob = Holder("alice", "password", False), Holder("bob", "password", False)
        claims = [
            ("/a", SUBSCRIBE, alice),
            ("/a", SUBSCRIBE, bob),
            ("/made/below", SUBSCRIBE, alice),
            ("/another", SUBSCRIBE, alice),
            ("/nothing", SUBSCRIBE, bob),
            ("/a", SUBSCRIBE, Holder("alice", "unheard-of", False)),
        ]
        answer = await publisher.judge(claims)
        assert answer.permissions == [SUBSCRIBE, 0, SUBSCRIBE, 0, 0, 0]
        assert answer.unknown == [3, 4, 5]


async def test_while_rights_are_unknown_nobody_has_lost_any() -> None:
    async with ResolverServer.open(*ROWS) as server:
        publisher = await server.publisher("/a", principal="publisher")
        claims = [("/a", SUBSCRIBE, Holder("alice", "password", False))]
        assert (await publisher.judge(claims)).unknown == []
        server.world.source.is_away = True
        server.world.pass_ms(STALE_MS + 1)
        answer = await publisher.judge(claims)
        assert (answer.permissions, answer.unknown) == ([0], [0])


async def test_a_thousand_holders_are_judged_in_steps() -> None:
    """Each has a table of its own verdicts to fill: together they would hold the loop for many slices."""
    async with ResolverServer.open() as server:
        publisher = await server.publisher("/a", flags=DEFAULT)
        (registration,) = server.broker.registry
        claims = [
            (f"/a/{number}", 1, Holder(f"user-{number}", "password", False))
            for number in range(1_000)
        ]
        assert len(list(judging(server.world.table, registration, claims))) == 1_000
        told = await publisher.judge(claims)
        assert (len(told.permissions), told.unknown) == (1_000, [])


async def test_a_long_resolve_gives_others_their_turn() -> None:
    async with ResolverServer.open() as server:
        await server.publisher("/a")
        paths = [f"/b/{number}" for number in range(1_000)]
        reader = await server.caller()
        session = next(iter(server._listeners.sessions))
        steps = server.broker.finder.resolving(session, ResolvePaths(1, paths), 0)
        assert len(list(steps)) >= 50
        # The answer is the same by either way, short or long.
        for count in (1, PATHS_AT_ONCE, PATHS_AT_ONCE + 1, 1_000):
            found = await codes(reader, "/a", *paths[: count - 1])
            assert found == ["", *["NOT_FOUND"] * (count - 1)]
