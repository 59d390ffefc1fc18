"""Where the other nodes are, by resolvers: what they say, and when it counts."""

from datetime import UTC, datetime

import pytest
from tests.resolver.server import ResolverServer

from moorline.catalog.catalog import NodeRow
from moorline.client.credentials import NOBODY
from moorline.config.settings import Config
from moorline.core.access.right import LIST, SUBSCRIBE
from moorline.core.access.row import Row
from moorline.errors import Unreachable
from moorline.node.found_nodes import NodesByResolvers, identity_of, nodes_by_resolvers

NOW = datetime.now(UTC)


def row(home: str, name: str, roles: list[str], *addresses: str) -> NodeRow:
    return NodeRow(
        home, name, home.encode().ljust(24), roles, list(addresses), None, "0", NOW, NOW, []
    )


ROWS = [
    row("home-1", "one", ["broker", "resolver"], "tcp://h:1"),
    # Its name is another one than its home, and it has two addresses.
    row("home-2", "renamed", ["broker"], "tcp://h:2", "tls://h:3"),
    row("home-3", "three", ["resolver"], "tcp://h:4"),
]


async def test_brokers_are_told_by_their_homes() -> None:
    async with ResolverServer.open() as server:
        server.nodes = ROWS
        await server.broker.cluster.look()
        config = Config(resolvers=server.address.replace("tcp://", "moor://127.0.0.1:1,"))
        async with nodes_by_resolvers(config, "home-1") as nodes:
            assert await nodes.live_nodes(0) == {
                "home-1": ["tcp://h:1"],
                "home-2": ["tcp://h:2", "tls://h:3"],
            }


async def test_what_does_not_have_us_counts_for_nothing() -> None:
    """Of another cluster, closed to us, or too young: to believe it would be to drop all links."""
    async with ResolverServer.open() as server:
        server.nodes = ROWS
        await server.broker.cluster.look()
        stranger = NodesByResolvers(server.address, "home-9", NOBODY)
        with pytest.raises(Unreachable, match="do not know this node"):
            await stranger.live_nodes(0)
        await stranger.close()
        known = NodesByResolvers(server.address, "home-1", NOBODY)
        assert await known.live_nodes(0)
        await server.change_rights(Row("/nodes", "@everyone", denies=LIST | SUBSCRIBE))
        with pytest.raises(Unreachable, match="do not know this node"):
            await known.live_nodes(0)
        await known.close()


def test_a_node_asks_as_whom_its_files_prove() -> None:
    plain = identity_of(Config())
    assert plain == NOBODY
    of_tls = identity_of(
        Config(tls_certificate="c", tls_key="k", tls_client_ca="a", tls_node_ca="n")
    )
    assert [str(path) for path in of_tls.files().values()] == ["n", "c", "k"]
