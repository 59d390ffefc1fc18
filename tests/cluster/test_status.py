"""A cluster as its operators see it: `moor node list`, `moor cluster status`, and the same in metrics."""

import asyncio
import json
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.cluster.running import Nodes, metric
from tests.cluster.test_clock import WallClock, configured, started, wall_clock
from tests.process.nodes import NodeProcess, run_moor
from tests.waiting import until

import moorline
from moorline.errors import Denied
from moorline.limits import NODES_PER_PAGE_MAX
from moorline.net.credentials import PasswordCredentials
from moorline.version import SOFTWARE

__all__ = ["wall_clock"]

pytestmark = pytest.mark.process

GROUP = "$shared/seen/seen/#"


async def moor(node: NodeProcess, *words: str) -> str:
    done = await asyncio.to_thread(run_moor, *words, "--address", node.address)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_every_node_tells_of_all_nodes_their_homes_groups_versions_and_clocks(
    calm: Nodes,
) -> None:
    async with moorline.connect(calm["a"].address, reconnect=False) as client:
        await client.group(GROUP).create()
        subscription = await client.subscribe(GROUP)
        await client.publish("seen/1", b"x")
        await subscription.get(20)
        seen: dict[str, Any] = {}

        async def compared() -> bool:
            seen.update(json.loads(await moor(calm["b"], "cluster", "status", "--json")))
            return all(one["clock_ahead_ms"] is not None for one in seen["nodes"])

        await until(compared)
        assert [one["home"] for one in seen["nodes"]] == ["a", "b", "c"]
        assert [one["homes"] for one in seen["nodes"]] == [["a"], ["b"], ["c"]]
        assert all(one["is_alive"] for one in seen["nodes"])
        assert seen["versions"] == {SOFTWARE: 3}
        assert 0 <= seen["clocks_apart_ms"] < 5_000
        leaders = {one["name"]: one["leader"] for one in seen["groups"]}
        assert leaders[GROUP] in {"a", "b", "c"}
        led = {one["home"]: one["groups_led"] for one in seen["nodes"]}
        assert led == {home: [*leaders.values()].count(home) for home in led}
        shown = await moor(calm["c"], "cluster", "status")
        assert GROUP in shown
        assert "3 of 3 nodes alive" in shown
    for node in ("a", "b", "c"):
        rows = [
            json.loads(line)
            for line in (await moor(calm[node], "node", "list", "--json")).splitlines()
        ]
        assert [(one["name"], one["version"]) for one in rows] == [
            (name, SOFTWARE) for name in "abc"
        ]
        assert calm[node].address in rows["abc".index(node)]["addresses"]
        await until(lambda node=node: metric(calm[node], "cluster_nodes_alive") == 3)  # type: ignore[misc]
        assert metric(calm[node], "cluster_nodes") == 3
        assert metric(calm[node], "cluster_versions") == 1


async def test_a_node_that_is_away_is_shown_as_away_and_keeps_its_home(nodes: Nodes) -> None:
    a, b = await nodes.start("a", "b")
    b.kill()

    async def is_away() -> bool:
        async with moorline.connect(a.address, reconnect=False) as client:
            _, away = await client.nodes()
            assert (away.home, away.homes) == ("b", ("b",))
            return not away.is_alive

    await until(is_away)
    assert "1 of 2 nodes alive, 1 away" in await moor(a, "cluster", "status")
    await until(lambda: metric(a, "cluster_nodes_alive") == 1)


async def test_a_clock_that_is_wrong_is_seen_by_how_much(
    dsn: str, tmp_path: Path, wall_clock: WallClock
) -> None:
    wall_clock.jump_ns = 90 * 10**9
    async with AsyncExitStack() as stack:
        client = await started(configured(dsn, tmp_path, {}), stack)

        async def is_seen() -> bool:
            (node,) = await client.nodes()
            return node.clock_ahead_ms is not None

        await until(is_seen)
        (node,) = await client.nodes()
        assert node.clock_ahead_ms is not None
        assert abs(node.clock_ahead_ms - 90_000) < 2_000


async def test_clocks_that_are_apart_are_seen_at_any_node(
    nodes: Nodes, dsn: str, tmp_path: Path, wall_clock: WallClock
) -> None:
    (b,) = await nodes.start("b")
    wall_clock.jump_ns = 90 * 10**9
    async with AsyncExitStack() as stack:
        await started(configured(dsn, tmp_path, {}), stack)

        async def are_apart() -> bool:
            seen = json.loads(await moor(b, "cluster", "status", "--json"))
            return bool(85_000 < (seen["clocks_apart_ms"] or 0) < 200_000)

        await until(are_apart)
        shown = await moor(b, "cluster", "status")
        assert re.search(r"clocks apart by (8[5-9]|9\d|1\d\d)\d{3} ms", shown), shown
        await until(lambda: 85 < metric(b, "cluster_clocks_apart_seconds") < 200)


async def test_nodes_are_told_by_the_page_and_only_to_those_who_may_see_them(
    nodes: Nodes,
) -> None:
    (a,) = await nodes.start("a")
    connection = await asyncpg.connect(nodes.dsn)
    try:
        await connection.execute(
            "insert into moorline.node (name, id, roles, addresses, version, started_at, seen_at, home) "
            "select 'old-' || n, decode(lpad(to_hex(n), 48, '0'), 'hex'), '{}', '{}', '', now(), "
            "'-infinity', 'old-' || lpad(n::text, 5, '0') from generate_series(1, $1::integer) n",
            NODES_PER_PAGE_MAX * 2,
        )
    finally:
        await connection.close()
    async with moorline.connect(a.address, reconnect=False) as client:
        found = await client.nodes()
        assert len(found) == NODES_PER_PAGE_MAX * 2 + 1
        assert [one.home for one in found] == sorted(one.home for one in found)
        assert sum(one.is_alive for one in found) == 1
        assert found[-1].silent_ms is None
        await client.access.add_user("guest", b"x")
    proof = PasswordCredentials("guest", "x")
    async with moorline.connect(a.address, credentials=proof, reconnect=False) as guest:
        with pytest.raises(Denied, match="/admin/cluster"):
            await guest.nodes()
