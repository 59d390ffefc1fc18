"""Shards of topics, found at a resolver that has none itself."""

from pathlib import Path

import pytest
from tests.cluster.running import Nodes
from tests.process.nodes import NodeProcess
from tests.waiting import until

from moorline.client.resolver import Resolver
from moorline.errors import NotFound

pytestmark = pytest.mark.process

SHARDS = 4
"""Of a node of these tests."""


async def test_a_resolver_without_topics_finds_the_shards_of_all_brokers(
    nodes: Nodes, tmp_path: Path
) -> None:
    (broker, _) = await nodes.start("a", "b")
    alone = NodeProcess(
        tmp_path / "alone", "--node=alone", f"--catalog={nodes.dsn}", "--roles=resolver"
    )
    with alone:
        async with Resolver(alone.address) as resolver:
            wanted = [f"/shards/{home}/{n}" for home in "ab" for n in range(SHARDS)]

            async def are_found() -> bool:
                return await resolver.match("/shards/**") == wanted

            await until(are_found, what="the shards of both")
            found = await resolver.resolve("/shards/a/3")
            assert [one.principal for one in found.publishers] == ["$node/a"]
            assert [one.address for one in found.publishers] == [broker.address]
            with pytest.raises(NotFound):
                await resolver.resolve(f"/shards/a/{SHARDS}")
