"""What a publisher hears of those who hold tokens for its paths."""

from tests.access.world import STALE_MS
from tests.resolver.server import ResolverServer

from moorline.core.access.right import EVERYTHING, SUBSCRIBE
from moorline.core.access.row import Row
from moorline.core.directory.path import DEFAULT
from moorline.wire.resolver import Holder

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
