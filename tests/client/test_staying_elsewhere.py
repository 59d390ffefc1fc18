"""A client of two addresses whose first node dies: where it goes on, and where it publishes."""

import asyncio

import pytest
from tests.cluster.conftest import dsn as dsn
from tests.cluster.conftest import nodes as nodes
from tests.cluster.running import PATIENT, Nodes
from tests.waiting import until

import moorline
from moorline import EventKind
from moorline.client.events import ClientEvent, Events

pytestmark = pytest.mark.process


@pytest.fixture
async def addresses(nodes: Nodes) -> list[str]:
    await nodes.start("a", "b", settings=PATIENT)
    return [nodes[name].address for name in ("a", "b")]


async def resumed(events: Events) -> ClientEvent:
    async for event in events:
        if event.kind is EventKind.RESUMED:
            return event
    raise AssertionError("the client is over")


async def test_it_goes_on_at_the_other_node_and_publishes_there_only_if_it_may(
    nodes: Nodes, addresses: list[str]
) -> None:
    async with (
        moorline.connect(addresses) as moor,
        moorline.connect(addresses, publish_elsewhere=True) as free,
    ):
        assert [str(one.address) for one in (moor, free)] == addresses[:1] * 2
        reader = await moor.subscribe("x/#")
        await moor.publish("x/1", b"at home")
        home = (await anext(reader)).stream
        assert home is not None
        assert home.home == "a"
        heard = [moor.events(), free.events()]
        await asyncio.to_thread(nodes["a"].kill)
        for events in heard:
            event = await resumed(events)
            assert (event.home, event.is_elsewhere) == ("b", True)
        with moorline.deadline(0.2), pytest.raises(moorline.Unreachable):
            await moor.publish("x/1", b"never")
        await free.publish("x/1", b"elsewhere")
        message = await anext(reader)
        assert message.body == b"elsewhere"
        assert message.stream is not None
        assert message.stream.home == "b"
        await message.ack()
        waiting = asyncio.create_task(moor.describe())
        assert (await waiting).node == "b"


async def test_what_the_dead_node_has_comes_when_it_is_back_and_once(
    nodes: Nodes, addresses: list[str]
) -> None:
    """The place in the shards of a node that is away is kept by the client alone."""
    async with moorline.connect(addresses) as moor:
        reader = await moor.subscribe("y/#")
        for number in range(10):
            await moor.publish("y/1", b"%d" % number)
        for number in range(5):
            message = await anext(reader)
            assert message.body == b"%d" % number
            await message.ack()
        events = moor.events()
        await asyncio.to_thread(nodes["a"].kill)
        assert (await resumed(events)).home == "b"
        await nodes.start("a", settings=PATIENT)
        got = [(await anext(reader)).body for _ in range(5)]
        assert got == [b"%d" % number for number in range(5, 10)]
        assert await reader.get(0.2) is None
        await until(lambda: moor.is_connected)
