"""What the cluster publishes of itself: nodes, homes and shards, found at once and by whoever is let in."""

from datetime import UTC, datetime

from tests.resolver.publishing import codes, resolve
from tests.resolver.server import ResolverServer

from moorline.catalog.catalog import NodeRow
from moorline.catalog.homes import HomeRow
from moorline.core.access.right import LIST, SUBSCRIBE
from moorline.core.access.row import Row
from moorline.wire.resolver import MatchPaths, PathsMatched

NOW = datetime.now(UTC)
ID = bytes(range(24))
NODE = NodeRow(
    "home-1", "node-1", ID, ["broker"], ["tcp://h:1", "tls://h:2"], None, "0", NOW, NOW, [3]
)
HOME = HomeRow(b"\1\2\3\4", "home-1", ID, "node-1", ["tcp://h:1"], True, False)


async def test_nodes_homes_and_shards_are_found_before_the_resolver_is_ready() -> None:
    rows = (Row("/x", "nobody", grants=LIST), Row("/nodes", "@mallory", denies=LIST | SUBSCRIBE))
    async with ResolverServer.open(*rows, is_new=False) as server:
        server.nodes, server.homes = [NODE], {HOME.number: HOME}
        await server.broker.cluster.look()
        reader = await server.caller()
        paths = ("/nodes/node-1", "/homes/01020304", "/shards/home-1/3")
        answer = await resolve(reader, *paths, "/nodes/other", "/shards/gone/1")
        assert [found.code for found in answer.found] == ["", "", "", "NOT_FOUND", "NOT_FOUND"]
        assert [(one.address, one.roles) for one in answer.publishers] == [
            ("tcp://h:1", ("broker",)),
            ("tls://h:2", ("broker",)),
        ]
        assert [found.publishers for found in answer.found[:3]] == [[(0, b""), (1, b"")]] * 3
        matched = await reader.call(lambda call: MatchPaths(call, "/nodes/*"), PathsMatched)
        assert matched.paths == ["/nodes/node-1"]
        # A row may keep them from somebody.
        server.world.source.add_member("@mallory", "mallory")
        await server.world.table.refresh()
        mallory = await server.caller("mallory")
        assert await codes(mallory, *paths) == ["DENIED", "", ""]
        # A node that left the catalog is found no more.
        server.nodes = []
        await server.broker.cluster.look()
        assert await codes(reader, *paths) == ["NOT_FOUND"] * 3
