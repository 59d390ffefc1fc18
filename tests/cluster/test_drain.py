"""`moor drain` on real nodes: who goes, who stays, and that nothing is lost or comes twice."""

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections import Counter

import pytest
from tests.cluster.running import Nodes, is_found, led_by
from tests.process.nodes import NodeProcess, run_moor
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.client.topic import Subscription

pytestmark = pytest.mark.process

GROUP = "$shared/g/drained/#"
COUNT = 400


class Reader:
    """Reads as `acking` does, and says where it is."""

    def __init__(self, moor: Moor, subscription: Subscription) -> None:
        self.got: list[bytes] = []
        self.moor = moor
        self._task = asyncio.create_task(self._read(subscription))

    async def _read(self, subscription: Subscription) -> None:
        async for message in subscription.acking():
            self.got.append(message.body)

    async def home(self) -> str:
        return (await self.moor.describe()).home

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.moor.close()


async def reading(addresses: list[str], filter_text: str) -> Reader:
    moor = await moorline.connect(addresses)
    return Reader(moor, await moor.subscribe(filter_text, start="beginning"))


async def drained(node: NodeProcess, *flags: str) -> dict[str, object]:
    done = await asyncio.to_thread(run_moor, "drain", "--json", *flags, f"--address={node.address}")
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def ready(node: NodeProcess) -> int:
    try:
        with urllib.request.urlopen(f"{node.http}/readyz", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


async def test_whoever_can_be_elsewhere_goes_and_nothing_is_lost(nodes: Nodes) -> None:
    a, b = await nodes.start("a", "b")
    both = [a.address, b.address]
    async with moorline.connect(both) as publisher, moorline.connect(a.address) as single:
        queue = await publisher.create_queue()
        members = [await reading(both, GROUP) for _ in range(2)]
        plain = await reading(both, "drained/#")
        await led_by(a, GROUP, "a")
        sent: list[bytes] = []

        async def publish() -> None:
            for _ in range(COUNT):
                number = len(sent)
                body = b"%d" % number
                topic = f"drained/{number % 8}"
                await publisher.publish(topic, body, key=body, producer="p", sequence=number)
                sent.append(body)

        await publish()
        publishing = asyncio.create_task(publish())
        found = await drained(a, "a", "--rate=20")
        await publishing
        assert found["clients"] == found["groups_led"] == 0
        # The single one, and perhaps by now the link by which the publisher stays at its home.
        assert found["staying"] in (1, 2)
        assert await single.echo(b"here") == b"here"
        assert {await one.home() for one in (*members, plain)} == {"b"}
        assert (await publisher.describe()).home == "b"
        await led_by(b, GROUP, "b")
        assert await asyncio.to_thread(ready, a) == 503
        async with moorline.connect(both) as late:
            assert (await late.describe()).home == "b"
        # Its queue stays where it is, and is led to, as soon as the home is known there: it is new.
        await until(lambda: is_found(publisher, queue.id), what="the home")
        await publisher.send(queue.id, b"m")
        assert (await anext(publisher.queue(queue.id).read())).body == b"m"
        assert await asyncio.to_thread(a.stop) == 0
        await nodes.start("a")
        await publish()
        everything = set(sent)
        await until(lambda: everything <= set(plain.got), what="all of the plain one")
        await until(
            lambda: everything <= {one for member in members for one in member.got},
            what="all of the group",
        )
        assert max(Counter(plain.got).values()) <= 2, "only what was in hand comes again"
        for one in (*members, plain):
            await one.leave()


async def test_a_drain_is_undone_and_asked_for_at_any_node(nodes: Nodes) -> None:
    a, b = await nodes.start("a", "b")
    found = await drained(b, "a")
    assert found["home"] == "a"
    assert await asyncio.to_thread(ready, a) == 503
    assert await asyncio.to_thread(ready, b) == 200
    await drained(b, "a", "--undo")
    assert await asyncio.to_thread(ready, a) == 200
    async with moorline.connect([a.address, b.address]) as moor:
        assert (await moor.describe()).home == "a"
    unknown = await asyncio.to_thread(run_moor, "drain", "mist", f"--address={b.address}")
    assert unknown.returncode != 0
    assert "there is no home 'mist'" in unknown.stderr


async def test_clients_go_no_faster_than_is_wanted(nodes: Nodes) -> None:
    """Time is a bound from below here: a machine that is busy only takes longer."""
    a, b = await nodes.start("a", "b")
    per_s, count = 2, 8
    clients = [await moorline.connect([a.address, b.address]) for _ in range(count)]
    async with moorline.connect(a.address, reconnect=False) as operator:
        began_s = time.monotonic()
        await operator.cluster.drain("a", per_s=per_s)

        async def are_gone() -> bool:
            return not (await operator.cluster.drain("a", is_look=True)).clients

        await until(are_gone, what="all are sent away")
        # What a second allows may be saved up, and the first one goes at once.
        assert time.monotonic() - began_s >= (count - per_s - 1) / per_s
    for client in clients:
        assert (await client.describe()).home == "b"
        await client.close()


async def test_who_watches_a_drain_does_not_begin_another(nodes: Nodes) -> None:
    """One operator ends what another one began, and looks at: each look began it anew."""
    a, b = await nodes.start("a", "b")
    clients = [await moorline.connect([a.address, b.address]) for _ in range(8)]
    where = ("drain", "a", "--rate=1", f"--address={b.address}")
    watching = asyncio.create_task(asyncio.to_thread(run_moor, *where))
    async with moorline.connect(b.address) as asked:
        await until(lambda: ready(a) == 503, what="the drain")
        await asked.cluster.drain("a", is_over=True)
        done = await watching
        assert (done.returncode, "drained no more" in done.stderr) == (12, True), done.stderr
        assert await asyncio.to_thread(ready, a) == 200
        with pytest.raises(moorline.NotFound):
            await asked.cluster.drain("a", is_look=True)
    for one in clients:
        await one.close()
