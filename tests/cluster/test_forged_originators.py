"""What a message says of its originator is a node's word: from anybody else it means nothing, and who asks
through a node is judged as itself."""

from collections.abc import Callable
from typing import get_args

import pytest
from tests.catalog.nodes import pretend
from tests.cluster.running import Nodes
from tests.process.proving import proven

import moorline
from moorline.catalog import Catalog
from moorline.catalog.access import AccessCatalog
from moorline.errors import Denied
from moorline.net.caller import Caller
from moorline.net.credentials import NodeCredentials, PasswordCredentials
from moorline.wire.group import (
    AskLeader,
    DescribeGroup,
    GroupDescribed,
    Originator,
    SeekGroup,
)
from moorline.wire.message import Answer, Call
from moorline.wire.node import Describe, Described
from moorline.wire.protocol import HeardByNode
from moorline.wire.queue import Done
from moorline.wire.topic_deletion import DeleteTopic, TopicDeleted
from moorline.wire.value import ValuesSubscribed
from moorline.wire.view import FiguresRead, ReadFigures

GROUP, TOPIC = "$shared/g/t/#", "t/kept"
OPERATOR = Originator("anonymous", "nothing", is_local=True)
FORGER, BOSS = Originator("forger", "password"), Originator("boss", "password")

Make = Callable[[int, Originator], Call]

FORGED: dict[type[Call], tuple[Make, type[Answer]]] = {
    AskLeader: (lambda n, by: AskLeader(n, 1, 1, 1, "x", SeekGroup(0, GROUP, "now"), by), Done),
    DeleteTopic: (lambda n, by: DeleteTopic(n, TOPIC, is_here=True, originator=by), TopicDeleted),
    Describe: (Describe, Described),
    DescribeGroup: (lambda n, by: DescribeGroup(n, GROUP, originator=by), GroupDescribed),
    ReadFigures: (lambda n, by: ReadFigures(n, "", 0, by), FiguresRead),
}
"""Each message that says for whom it asks, as a call of some originator."""


class ForgedView(Call, frozen=True, gc=False, tag=660):
    """`SubscribeView`, and behind its fields an originator, which it has none of."""

    view: str
    originator: Originator


def test_every_message_that_names_an_originator_is_forged_here() -> None:
    naming = {kind for kind in get_args(HeardByNode) if "originator" in kind.__struct_fields__}
    assert naming == set(FORGED)


def call_of(make: Make, by: Originator) -> Callable[[int], Call]:
    return lambda number: make(number, by)


def view_of(name: str) -> Callable[[int], Call]:
    return lambda number: ForgedView(number, name, OPERATOR)


async def is_shown(caller: Caller, by: Originator) -> bool:
    """Whether it is told what is for those who look after a node."""
    told = await caller.call(call_of(Describe, by), Described)
    return bool(told.addresses or told.catalog)


@pytest.mark.process
async def test_a10_an_originator_is_a_nodes_word(nodes: Nodes, dsn: str) -> None:
    (a,) = await nodes.start("a")
    judged = {kind: calls for kind, calls in FORGED.items() if kind is not Describe}
    async with moorline.connect(a.address, reconnect=False) as operator:
        for name in ("forger", "boss"):
            await operator.access.add_user(name, b"x")
        await operator.access.add_grant("/", "boss", "slwpdag")
        await operator.publish(TOPIC, b"kept")
        await operator.group(GROUP).create()
        async with proven(a.address, PasswordCredentials("forger", "x")) as forger:
            for by in (OPERATOR, BOSS):
                assert not await is_shown(forger, by)
                for make, answer in judged.values():
                    with pytest.raises(Denied):
                        await forger.call(call_of(make, by), answer)
            for view in ("nodes", "figures/a", f"groups/{GROUP}"):
                with pytest.raises(Denied):
                    await forger.call(view_of(view), ValuesSubscribed)
        await pretend_node(dsn)
        async with proven(a.address, await as_node(dsn)) as node:
            assert not await is_shown(node, FORGER)
            # That of a Leader's call is judged where it leads: tests/access/test_topic_rights.py.
            for make, answer in (judged[kind] for kind in judged.keys() - {AskLeader}):
                with pytest.raises(Denied):
                    await node.call(call_of(make, FORGER), answer)
            assert [topic for topic, _ in await operator.topics(TOPIC)] == [TOPIC]
            assert await is_shown(node, BOSS)
            for kind in (DescribeGroup, ReadFigures, DeleteTopic):
                make, answer = FORGED[kind]
                await node.call(call_of(make, BOSS), answer)
        assert await operator.topics(TOPIC) == []


async def pretend_node(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        await pretend(catalog, "ghost", addresses=["tcp://127.0.0.1:1"])


async def as_node(dsn: str) -> NodeCredentials:
    async with Catalog.open(dsn) as catalog:
        return NodeCredentials((await AccessCatalog(catalog).secrets()).current, "ghost", "a")
