"""What an operator does about a node that must go: it is removed, and the cluster gets another secret."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator

import pytest
from tests.catalog.nodes import pretend
from tests.cluster.running import SMALL, Nodes, links_of
from tests.process.nodes import NodeProcess, run_moor
from tests.process.proving import audited, over, proven
from tests.waiting import until

import moorline
from moorline.catalog import Catalog
from moorline.catalog.access import AccessCatalog
from moorline.errors import ConnectionLost, Denied, NodeAlive, NotFound, Refused, Untrusted
from moorline.net.credentials import NodeCredentials, PasswordCredentials

pytestmark = pytest.mark.process

REVOCATION_MS = 500
QUICK = SMALL | {"access.revocation_ms": REVOCATION_MS}
SLACK_S = 1.5
"""For a machine with other work, beside the bound that is stated."""


@pytest.fixture
async def catalog(dsn: str) -> AsyncIterator[Catalog]:
    async with Catalog.open(dsn) as opened:
        yield opened


async def test_a11_a_node_that_an_operator_removes_is_cut_within_the_bound(
    nodes: Nodes, catalog: Catalog
) -> None:
    """A11: one that stands still, so that it hears nothing of it, and one that holds a link by the secret."""
    a, b = await nodes.start("a", "b", settings=QUICK)
    await pretend(catalog, "ghost", addresses=["tcp://127.0.0.1:1"])
    secret = (await AccessCatalog(catalog).secrets()).current
    as_ghost = NodeCredentials(secret, "ghost", "a")
    b.signal(signal.SIGSTOP)
    async with proven(a.address, as_ghost) as ghost:
        removed_at = time.monotonic()
        done = await asyncio.to_thread(
            run_moor, "node", "remove", "ghost", "--force", "--json", f"--address={a.address}"
        )
        assert (done.returncode, json.loads(done.stdout)["home"]) == (0, "ghost")
        assert "EXPIRED: this node is not of the cluster any more" in await over(ghost)
        commands_s = time.monotonic() - removed_at  # a process that starts is in it
        assert commands_s < REVOCATION_MS / 1_000 + SLACK_S + 5
    async with moorline.connect(a.address, reconnect=False) as moor:
        removed_at = time.monotonic()
        assert await moor.access.remove_node("b", is_forced=True) == "b"
        await until(lambda: links_of(a.errors) == set(), what="the link is cut")
        assert time.monotonic() - removed_at < REVOCATION_MS / 1_000 + SLACK_S
        assert [one.home for one in await moor.nodes()] == ["a"]
        with pytest.raises(NotFound, match="no node of the home 'b'"):
            await moor.access.remove_node("b")
    for home in ("ghost", "b"):
        with pytest.raises(Refused, match="AUTH: this is no node of this cluster"):
            async with proven(a.address, NodeCredentials(secret, home, "a")):
                pass
    b.signal(signal.SIGCONT)
    await until(lambda: b.process.poll() is not None, what="its process ends by itself")
    assert "an operator has removed it" in b.errors
    lines = [
        line for line in audited(a) if line["act"] == "RemoveNode" and line["kind"] == "operator"
    ]
    assert {line["path"] for line in lines} >= {
        "/admin/cluster/nodes/ghost",
        "/admin/cluster/nodes/b",
    }


async def test_who_may_remove_a_node_and_which(nodes: Nodes) -> None:
    a, b = await nodes.start("a", "b", settings=QUICK)
    async with moorline.connect(a.address, reconnect=False) as moor:
        with pytest.raises(NodeAlive, match="gave a sign of life within"):
            await moor.access.remove_node("b")
        await moor.access.add_user("anna", b"x")
        async with moorline.connect(
            a.address, credentials=PasswordCredentials("anna", "x")
        ) as anna:
            for asked in (
                anna.access.remove_node("b", is_forced=True),
                anna.access.renew_cluster_secret(),
            ):
                with pytest.raises(Denied):
                    await asked
        assert {one.home for one in await moor.nodes()} == {"a", "b"}
    assert b.process.poll() is None


async def test_a_node_that_was_removed_has_its_home_again_when_it_is_started(nodes: Nodes) -> None:
    a, b = await nodes.start("a", "b", settings=QUICK)
    async with moorline.connect(b.address, reconnect=False) as moor:
        queue = (await moor.create_queue()).id
    b.signal(signal.SIGTERM)
    await asyncio.to_thread(b.process.wait, 30)
    async with moorline.connect(a.address, reconnect=False) as moor:
        await moor.access.remove_node("b", is_forced=True)
        (b,) = await nodes.start("b", settings=QUICK)
        assert {one.home for one in await moor.nodes()} == {"a", "b"}
    async with moorline.connect(b.address, reconnect=False) as moor:
        await moor.send(queue, b"still there")


async def is_taken(node: NodeProcess, secret: bytes) -> bool:
    try:
        async with proven(node.address, NodeCredentials(secret, "ghost", "a")):
            return True
    except (Refused, Untrusted, ConnectionLost):
        return False


async def test_a_renewed_secret_ends_what_the_old_one_proved_behind_its_time(
    nodes: Nodes, catalog: Catalog
) -> None:
    """A11: of a catalog that was stolen. The nodes themselves find each other again by the new one."""
    a, b = await nodes.start("a", "b", settings=QUICK)
    await pretend(catalog, "ghost", addresses=["tcp://127.0.0.1:1"])
    stolen = (await AccessCatalog(catalog).secrets()).current
    async with proven(a.address, NodeCredentials(stolen, "ghost", "a")) as thief:
        old_for_s = 3
        done = await asyncio.to_thread(
            run_moor,
            "cluster",
            "secret",
            "--renew",
            f"--old-for-s={old_for_s}",
            f"--address={a.address}",
        )
        renewed_at = time.monotonic()
        assert (done.returncode, done.stdout) == (
            0,
            "the secret was renewed; the one before is taken for 3 s\n",
        )
        assert await is_taken(a, stolen), "for the stated time"
        assert links_of(a.errors) == {"b"}
        assert "EXPIRED: the cluster's secret was renewed" in await over(thief)
        taken_s = time.monotonic() - renewed_at
        assert taken_s < old_for_s + REVOCATION_MS / 1_000 + SLACK_S
    assert not await is_taken(a, stolen)
    current = (
        await AccessCatalog(catalog).secrets()
    ).current  # the one before is not taken any more
    assert current != stolen
    assert await is_taken(a, current)
    for node, other in ((a, "b"), (b, "a")):
        await until(lambda node=node: "link lost" in node.errors, what="it is proven anew")  # type: ignore[misc]
        await until(
            lambda node=node, other=other: links_of(node.errors) == {other},  # type: ignore[misc]
            what="they find each other by the new one",
        )
    assert stolen.hex() not in a.errors + b.errors
