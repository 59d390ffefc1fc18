"""The performer of tests/net/test_reconcile.py against a real node: its set is in Postgres, ours here."""

import random

import pytest
from tests.services.service_server import ServiceServer, associated

from moorline.client.service_exchange import ServiceExchange, as_service
from moorline.core.sets.answerer import Answerer, InMemory
from moorline.core.sets.asker import Mode
from moorline.core.sets.digest import Digest
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.memory_set import MemorySet
from moorline.core.sets.prefix import ALL, Prefix
from moorline.core.sets.sketch import Words
from moorline.net.reconcile import reconcile
from moorline.services.service_set import AuditedServiceSet, ServiceSet
from moorline.wire.message import Message

pytestmark = pytest.mark.process


class InMemoryList:
    """A service's list without a file: the node is to have what is in it."""

    def __init__(self, own: MemorySet, exchange: ServiceExchange) -> None:
        self._own, self._exchange = own, exchange

    async def own_set(self) -> IdSet:
        return self._own.frozen()

    async def repair(self, own: IdSet, missing: Words, extra: list[Prefix]) -> Digest | None:
        assert own.digest() == self._own.digest()
        if extra:
            await self._exchange.dissociate(extra)
        if len(missing):
            assert await self._exchange.associate(self._own.having(missing)) == []
        return self._exchange.theirs


@pytest.mark.parametrize(
    ("lost", "surplus"), [(0, 0), (1, 0), (0, 1), (7, 9), (150, 80), (600, 0), (0, 600)]
)
async def test_a_set_in_memory_and_a_node_come_to_agree(
    node: ServiceServer, lost: int, surplus: int
) -> None:
    queues = await associated(node, 600)
    random.Random(lost).shuffle(queues)
    await node.lose(queues[:lost])
    async with node.connect() as moor:
        caller = moor._caller
        exchange = ServiceExchange(caller, as_service(1))

        def hear(messages: list[Message]) -> None:
            for message in messages:
                exchange.hear(message)

        caller.pushed = hear
        await exchange.open()
        own = MemorySet(exchange.salt, queues[: len(queues) - surplus])
        repairer = InMemoryList(own, exchange)
        digest = await reconcile("test", exchange, repairer, exchange.salt, exchange.theirs)
        assert digest == own.digest() == await node.digest()
        assert await node.associated() == set(own)


@pytest.mark.parametrize("kind", [ServiceSet, AuditedServiceSet])
async def test_postgres_and_memory_answer_alike(
    node: ServiceServer, kind: type[ServiceSet] | type[AuditedServiceSet]
) -> None:
    """One answerer over both: the same digests, sketches, lists and choices."""
    queues = await associated(node, 900)
    services = node.services
    (row,) = await services._rows.meant("service")
    far = kind(services._rows, services.sketches, row.opened())
    near = MemorySet(far.salt, queues)
    theirs = MemorySet(far.salt, queues[40:])
    both = Answerer(far), Answerer(InMemory(near))
    for asked in (
        (near.digest(), b"", 0),
        (Digest.empty(), b"", 0),
        (theirs.digest(), b"", 0),
        (theirs.digest(), bytes(theirs.estimate()), 0),
        (theirs.digest(), bytes(theirs.estimate()), 200),
        (theirs.digest(), bytes(theirs.estimate()), 5_000),
        (Digest(1, b"x" * 16), bytes(MemorySet(far.salt, queues[:1]).estimate()), 0),
    ):
        one, other = [await answerer.verify(*asked) for answerer in both]
        assert (one.digest, one.mode, one.cells) == (other.digest, other.mode, other.cells)
        if one.mode is not Mode.LIST:
            assert one.payload == other.payload
    prefixes = [*ALL.children(8), *Prefix(8, 3).children(4)]
    for some in (prefixes[:256], prefixes[256:], [ALL]):
        assert await both[0].ranges(some) == await both[1].ranges(some)
        lists = [await answerer.lists(some) for answerer in both]
        assert [sorted_of(one) for one in lists[0]] == [sorted_of(one) for one in lists[1]]


def sorted_of(listed: bytes) -> list[bytes]:
    """In which order a list comes is its store's affair."""
    return sorted(listed[place : place + 8] for place in range(0, len(listed), 8))
