"""One identity, one process: copies of data folders, stopped and killed nodes, and another name."""

import asyncio
import shutil
import signal
from pathlib import Path

import pytest
from tests.catalog.nodes import pretend
from tests.cluster.running import SMALL, Got, Nodes, all_stored, join, members, numbered, publish
from tests.process.nodes import NodeProcess
from tests.waiting import until

import moorline
from moorline.catalog import Catalog
from moorline.catalog.groups import Groups
from moorline.catalog.identity import Identities, Refused
from moorline.catalog.sessions import Sessions
from moorline.core.identity import Claim
from moorline.core.topic import shared_name
from moorline.errors import IdentityTaken, MoorlineError

pytestmark = pytest.mark.process

GROUP = "$shared/billing/orders/#"
QUICK = SMALL | {"identity_lease_ms": 2_000, "access.stale_ms": 1_900}
IDENTITY_TAKEN = 20


def copied(source: NodeProcess, target: Path) -> Path:
    """As an operator copies a folder, of a node that runs or not."""
    shutil.copytree(source.data, target, ignore=shutil.ignore_patterns("*.new"))
    return target


def serve(
    data: Path, name: str, dsn: str, settings: dict[str, object], *, wait: bool = True
) -> NodeProcess:
    flags = [f"--set={key}={value}" for key, value in settings.items()]
    return NodeProcess(data, f"--node={name}", f"--catalog={dsn}", *flags, wait=wait)


async def ended(node: NodeProcess) -> int:
    code = await asyncio.to_thread(node.process.wait, 60)
    assert node.process.stdout is not None
    node.process.stdout.close()
    return code


async def test_copies_of_a_running_node_are_refused(nodes: Nodes, tmp_path: Path) -> None:
    """Under its own name and under another; the node itself does not notice."""
    (a,) = await nodes.start("a")
    await publish(a, "orders/eu", numbered("before", 20))
    for name in ("a", "b"):
        copy = serve(copied(a, tmp_path / f"copy-{name}"), name, nodes.dsn, SMALL, wait=False)
        assert await ended(copy) == IDENTITY_TAKEN, copy.errors
        assert "runs under the identity of this data folder" in copy.errors
        assert "Stop that node first" in copy.errors
    got = Got()
    async with members(join(a, GROUP, got, "m", start="beginning")):
        await publish(a, "orders/eu", numbered("after", 20))
        await got.has([*numbered("before", 20), *numbered("after", 20)])


async def test_a_killed_node_starts_again_at_once(nodes: Nodes, tmp_path: Path) -> None:
    """Its lease would last for half a minute; a copy has to wait for it, the folder itself has not."""
    (a,) = await nodes.start("a")
    await publish(a, "orders/eu", numbered("m", 5))
    copy = copied(a, tmp_path / "copy")
    a.kill()
    (a,) = await nodes.start("a")
    assert "we look whether it lives" not in a.errors
    assert "older copy" not in a.errors
    refused = serve(copy, "a", nodes.dsn, SMALL, wait=False)
    assert await ended(refused) == IDENTITY_TAKEN, refused.errors


async def test_a_copy_starts_when_the_node_is_gone_and_the_other_is_told(
    nodes: Nodes, tmp_path: Path
) -> None:
    (a,) = await nodes.start("a", settings=QUICK)
    await publish(a, "orders/eu", numbered("first", 10))
    copy = copied(a, tmp_path / "copy")
    a.kill()
    moved = await asyncio.to_thread(serve, copy, "a", nodes.dsn, QUICK)
    try:
        await publish(moved, "orders/eu", numbered("second", 10))
        assert await asyncio.to_thread(moved.stop) == 0
    finally:
        moved.__exit__(None, None, None)
    # In order: nobody has to wait. But the first folder lacks what the copy took in, and says so.
    (a,) = await nodes.start("a", settings=QUICK)
    assert "we look whether it lives" not in a.errors
    assert "this data folder is an older copy" in a.errors


@pytest.mark.parametrize("filter_text", [GROUP, "$queue/billing/orders/#", "orders/#"])
async def test_readers_go_on_where_a_put_back_folder_has_the_same_generation_elsewhere(
    nodes: Nodes, tmp_path: Path, filter_text: str
) -> None:
    """The reader was in generation 2; in the folder that was put back this is another one, far behind it."""
    small = QUICK | {"streams.shards": 1, "streams.generation_bytes_max": 4_096}
    a, b = await nodes.start("a", "b", settings=small)
    filling = [b"%d" % number + bytes(1_000) for number in range(3)]
    got = Got()
    async with members(join(b, filter_text, got, "m", start="beginning")):
        await publish(a, "orders/eu", filling[:2])
        await got.has(filling[:2])
        assert await asyncio.to_thread(a.stop) == 0
        copy = copied(a, tmp_path / "copy")
        (a,) = await nodes.start("a", settings=small)
        await publish(a, "orders/eu", filling[2:])
        await got.has(filling)
        assert {message.stream.generation for _, message in got.messages if message.stream} == {
            1,
            2,
        }
        assert await asyncio.to_thread(a.stop) == 0
        with await asyncio.to_thread(serve, copy, "a", nodes.dsn, small) as restored:
            await publish(restored, "orders/eu", numbered("after", 3))
            await got.has(numbered("after", 3))


async def test_a_stopped_node_that_was_replaced_answers_nobody_and_ends(
    nodes: Nodes, tmp_path: Path
) -> None:
    (a,) = await nodes.start("a", settings=QUICK)
    got = Got()
    async with moorline.connect(a.address, reconnect=False) as moor:
        await moor.publish("orders/eu", b"before")
        copy = copied(a, tmp_path / "copy")
        a.signal(signal.SIGSTOP)
        late = asyncio.create_task(moor.publish("orders/eu", b"late"))
        replaced = await asyncio.to_thread(serve, copy, "a", nodes.dsn, QUICK)
        try:
            a.signal(signal.SIGCONT)
            with pytest.raises(MoorlineError):
                await late
            assert await asyncio.to_thread(a.process.wait, 60) == IDENTITY_TAKEN, a.errors
            assert "another process runs under the identity of this node" in a.errors
            async with members(join(replaced, GROUP, got, "m", start="beginning")):
                await publish(replaced, "orders/eu", [b"after"])
                await got.has([b"before", b"after"])
            assert b"late" not in got.bodies()
        finally:
            replaced.__exit__(None, None, None)


async def test_without_the_catalog_answers_wait_and_then_leave(nodes: Nodes) -> None:
    """As far as the node knows another process could have begun: it answers when that is excluded."""
    (a,) = await nodes.start("a", settings=QUICK)
    async with (
        Catalog.open(nodes.dsn) as catalog,
        moorline.connect(a.address, reconnect=False) as moor,
    ):
        queue = await moor.create_queue()
        async with catalog.transaction() as held:
            # Nobody can renew: the catalog hangs as far as this row goes.
            await held.execute("select from moorline.node for update")
            await until(lambda: "nothing is answered until it does" in a.errors, what="the lease")
            publishing = asyncio.create_task(moor.publish("orders/eu", b"m"))
            sending = asyncio.create_task(moor.send(queue.id, b"m"))
            done, _ = await asyncio.wait([publishing, sending], timeout=0.5)
            assert not done, "an answer left without a lease"
        await publishing
        await sending
    assert a.errors.count("answers leave again") == 1


async def test_what_a_replaced_process_does_in_the_catalog_changes_nothing(dsn: str) -> None:
    name = shared_name(GROUP)
    assert name is not None
    async with Catalog.open(dsn) as old, Catalog.open(dsn) as new:
        await pretend(old, "a")
        group, _ = await Groups(old).declare(name, deliveries_max=0, start_us=0)
        claim = await Groups(old).claim(group.reader, "a", 60_000)
        session = await Sessions(old).open("s", "owner", "a", 60)
        assert claim is not None
        # The same node, by another process.
        identities = Identities(new, b"a", b"another")
        refused = await identities.claim(
            Claim((), "another lock"), name="b", home_wanted="", lease_ms=60_000
        )
        assert isinstance(refused, Refused)
        granted = await identities.claim(
            Claim((), f"lock of {b'a'.hex()}"), name="b", home_wanted="", lease_ms=60_000
        )
        assert not isinstance(granted, Refused)
        assert (granted.home, granted.name_before) == ("a", "a")
        assert not await old.is_ours()
        assert not await Groups(old).commit(group.reader, claim.epoch, [])
        assert not await Groups(old).renew(group.reader, claim.epoch, 60_000)
        assert await Groups(old).claim(group.reader, "a", 60_000) is None
        assert not await Sessions(old).seen("s", session.epoch)
        assert await Sessions(old).subscribe("s", session.epoch, "orders/#", 1) is None
        with pytest.raises(IdentityTaken):
            await Sessions(old).open("s", "owner", "a", 60)
        other = shared_name("$shared/other/orders/#")
        assert other is not None
        with pytest.raises(IdentityTaken):
            await Groups(old).declare(other, deliveries_max=0, start_us=0)
        # The group is free for the new process at once.
        assert await Groups(new).claim(group.reader, "a", 60_000) is not None


async def test_a_node_with_another_name_keeps_its_places(nodes: Nodes) -> None:
    """Acknowledged messages do not come again, and what was not read yet comes under the same streams."""
    a, b = await nodes.start("a", "b")
    got = Got()
    async with members(join(b, GROUP, got, "first", start="beginning")):
        await publish(a, "orders/eu", numbered("m", 40))
        await got.has(numbered("m", 40))
        await all_stored(nodes.dsn, GROUP, got)
    assert await asyncio.to_thread(a.stop) == 0
    flags = [f"--set={key}={value}" for key, value in SMALL.items()]
    renamed = await asyncio.to_thread(
        NodeProcess, a.data, "--node=quay", f"--catalog={nodes.dsn}", *flags
    )
    with renamed:
        assert "moor: quay ready" in renamed.ready_line
        assert "the name of this node has changed" in renamed.errors
        async with members(join(b, GROUP, got, "second", start="beginning")):
            await publish(renamed, "orders/eu", numbered("n", 40))
            await got.has(numbered("n", 40))
            await until(lambda: len(got.messages) >= 80, what="all")
        got.is_exactly([*numbered("m", 40), *numbered("n", 40)])
        assert {message.stream.home for _, message in got.messages if message.stream} == {"a"}
        async with moorline.connect(renamed.address, reconnect=False) as moor:
            described = await moor.describe()
        assert (described.node, described.home) == ("quay", "a")


async def test_a_fresh_folder_with_a_name_of_old_has_a_home_of_its_own(
    nodes: Nodes, tmp_path: Path
) -> None:
    """A node whose disk was lost: the new one has its name, and nothing of its places."""
    a, b = await nodes.start("a", "b")
    got = Got()
    async with members(join(b, GROUP, got, "m", start="beginning")):
        await publish(a, "orders/eu", numbered("m", 10))
        await got.has(numbered("m", 10))
        assert await asyncio.to_thread(a.stop) == 0
        async with Catalog.open(nodes.dsn) as catalog:
            await catalog.execute("update moorline.node set seen_at = '-infinity' where name = 'a'")
        fresh = await asyncio.to_thread(serve, tmp_path / "fresh", "a", nodes.dsn, SMALL)
        with fresh:
            await publish(fresh, "orders/eu", numbered("n", 10))
            await got.has(numbered("n", 10))
            homes = {message.stream.home for _, message in got.messages if message.stream}
            assert len(homes) == 2
            assert "a" in homes
