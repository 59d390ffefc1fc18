"""`moor home move` on real nodes: what a home has is at the other node, once, whoever dies on the way."""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from tests.cluster.running import PATIENT, Nodes, is_found
from tests.process.nodes import MOOR, NodeProcess, clean_environment, run_moor
from tests.waiting import until

import moorline
from moorline.errors import Unreachable
from moorline.wire.topic import Record

pytestmark = pytest.mark.process

WITHIN_S = 60


async def moor(node: NodeProcess, *arguments: str) -> dict[str, Any]:
    given = (*arguments, "--json", f"--address={node.address}")
    done = await asyncio.to_thread(run_moor, *given)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def homes(node: NodeProcess) -> dict[str, Any]:
    async with moorline.connect(node.address, reconnect=False) as asked:
        return {one.name: one for one in await asked.cluster.homes()}


async def test_queues_and_streams_go_with_their_home_and_clients_follow(nodes: Nodes) -> None:
    a, b = await nodes.start("a", "b", settings=PATIENT)
    addresses = [b.address, a.address]
    async with moorline.connect(a.address, reconnect=False) as here:
        queues = [queue.id for queue in await here.create_queues(30)]
        await here.send_all([(queue, queue) for queue in queues])
        for number in range(100):
            await here.publish(f"t/{number % 7}", b"%d" % number)
    done = await moor(b, "home", "move", "a", "--to", "b")
    assert done["node"] == "a-at-b"
    assert done["move_files"] > 30
    assert done["moves"] == 1
    async with moorline.connect(addresses) as client:
        await until(partial(is_found, client, queues[0]), what="the home, for those that ask")
        for queue in queues:
            assert (await anext(client.queue(queue).read())).body == queue
        reader = await client.subscribe("t/#", start="beginning")
        got = [(await anext(reader)).body for _ in range(100)]
        assert sorted(got, key=int) == [b"%d" % number for number in range(100)]
    async with moorline.connect(a.address, reconnect=False) as old:
        # The node that had it is there, empty, and sends on.
        assert (await old.describe()).home != "a"
        await until(partial(is_found, old, queues[0]), what="the home, for those at its old node")
    assert (b.data / "homes" / "a" / "node.moves").read_text() == "1\n"
    assert (a.data / "moved" / "a-1" / "node.id").exists(), "its files stay, set aside"
    # Both go on as they are behind another start.
    for name in ("a", "b"):
        assert await asyncio.to_thread(nodes[name].stop) == 0
    a, b = await nodes.start("a", "b", settings=PATIENT)
    async with moorline.connect([a.address, b.address]) as client:
        await until(partial(is_found, client, queues[0]), what="the home behind another start")
        await client.send(queues[1], b"later")


async def test_who_sends_meanwhile_hears_what_became_of_each_message(nodes: Nodes) -> None:
    """Stored once, or nobody can say: never that there is no such queue."""
    a, b, c = await nodes.start("a", "b", "c", settings=PATIENT)
    stored, unknown = set[bytes](), set[bytes]()
    async with moorline.connect([c.address, a.address, b.address]) as client:
        async with moorline.connect(a.address, reconnect=False) as here:
            queue = (await here.create_queue()).id
        await until(partial(is_found, client, queue), what="the home, for those that ask")
        moving = asyncio.create_task(moor(b, "home", "move", "a", "--to", "b"))
        for number in range(110):
            body = b"%d" % number
            try:
                await client.send(queue, body)
                stored.add(body)
            except moorline.OutcomeUnknown:
                unknown.add(body)
            await asyncio.sleep(0.02 if not moving.done() else 0)
        await moving
        assert len(unknown) <= 2, "one call was under way when the home was closed"
        reader = client.queue(queue).read()
        got = list[bytes]()
        while not stored <= set(got):
            message = await anext(reader)
            got.append(message.body)
            await message.ack()
        assert len(got) == len(set(got))
        assert set(got) <= stored | unknown


@pytest.mark.long
async def test_a_home_goes_back_and_forth_and_on(nodes: Nodes) -> None:
    a, b = await nodes.start("a", "b", settings=PATIENT)
    async with moorline.connect(a.address, reconnect=False) as here:
        queue = (await here.create_queue()).id
    async with moorline.connect([a.address, b.address]) as client:
        for moves, to in enumerate(("b", "a", "b"), 1):
            done = await moor(b, "home", "move", "a", "--to", to)
            assert (done["node"], done["moves"]) == (f"a-at-{to}", moves)
            await until(partial(is_found, client, queue), what="the home")
            await client.send(queue, b"%d" % moves)
        reader = client.queue(queue).read()
        for moves in (1, 2, 3):
            message = await anext(reader)
            assert message.body == b"%d" % moves
            await message.ack()
    assert [one.name for one in (await homes(a)).values() if one.moves] == ["a"]


@pytest.mark.parametrize(
    "killed",
    [
        "taken",
        *(
            pytest.param(one, marks=pytest.mark.long)
            for one in ("source copies", "target copies", "taken by")
        ),
    ],
)
async def test_whoever_is_killed_the_move_comes_to_its_end(nodes: Nodes, killed: str) -> None:
    a, b = await nodes.start("a", "b", settings=PATIENT)
    async with moorline.connect(a.address, reconnect=False) as here:
        queues = [queue.id for queue in await here.create_queues(10)]
        await here.send_all([(queue, queue) for queue in queues])
        for _ in range(12):
            await here.publish_all(
                [Record("big", bytes([number]) * 50_000) for number in range(32)]
            )
    watching = await watched(b, "home", "move", "a", "--to", "b")
    line, name = {
        "source copies": ("a home comes", "a"),
        "target copies": ("a home comes", "b"),
        "taken": ("a home has moved here", "a"),
        "taken by": ("a home has moved here", "b"),
    }[killed]
    await until(lambda: line in b.errors, within_s=WITHIN_S, what=line)
    nodes[name].kill()
    # It would wait for a node that is away; the move needs nobody who watches.
    watching.terminate()
    await watching.wait()
    if killed.startswith("taken"):
        # By then the catalog had given it away, whatever the processes had done of it: the other one may
        # be about to start again, without its home.
        await until(partial(has_moved, nodes["a" if name == "b" else "b"]), what="the move")
    a, b = await again(nodes, name)
    await moor(b if name == "a" else a, "home", "move", "a", "--to", "b")
    found = (await homes(b))["a"]
    assert (found.node, found.moves, found.move_state) == ("a-at-b", 1, "done")
    async with moorline.connect([a.address, b.address]) as client:
        await until(partial(is_found, client, queues[0]), what="the home")
        for queue in queues:
            assert (await anext(client.queue(queue).read())).body == queue
        reader = await client.subscribe("big", start="beginning")
        got = [(await anext(reader)).body for _ in range(12 * 32)]
        assert Counter(got) == {bytes([number]) * 50_000: 12 for number in range(32)}


async def again(nodes: Nodes, name: str) -> list[NodeProcess]:
    await nodes.start(name, settings=PATIENT)
    return [nodes["a"], nodes["b"]]


async def has_moved(asked: NodeProcess) -> bool:
    with suppress(Unreachable):
        return bool((await homes(asked))["a"].moves == 1)
    return False


async def watched(node: NodeProcess, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(*MOOR, *arguments, f"--address={node.address}"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=clean_environment(),
    )
