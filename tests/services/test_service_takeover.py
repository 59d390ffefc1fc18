"""Whoever asked last gets the messages: plain clients and services, old and new connections."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.queues.queue_server import WITHIN_S
from tests.services.interception import Gate, Sniffer
from tests.services.service_server import ServiceServer, associated, make_queues, take, within
from tests.waiting import until

from moorline.client.queue import Message as QueueMessage
from moorline.core.sets.digest import Digest
from moorline.errors import ConnectionLost, SubscriptionEnded
from moorline.wire.queue import Delivery
from moorline.wire.service import OpenService, ServiceEnded, ServiceOpened, SubscribeService

pytestmark = pytest.mark.process


# --- D05: to and from plain clients ---------------------------------------------------------------


async def test_d05_a_plain_clients_queues_move_to_a_service_and_back(node: ServiceServer) -> None:
    """D05: whoever asked last gets the messages; the digest follows."""
    async with node.connect() as plain, node.connect() as moor:
        queues = await make_queues(plain, 4)
        for queue in queues:
            await plain.send(queue, b"to the plain one")
        reader = plain.queue(queues[0]).read()
        assert (await take(reader, 1))[0].body == b"to the plain one"
        await aclose(reader)
        async with moor.service(node.list_of()) as service:
            await service.associate(queues)
            messages = aiter(service)
            assert {one.queue for one in await take(messages, 3)} == set(queues[1:])
            await plain.send(queues[0], b"to the service")
            assert (await take(messages, 1))[0].body == b"to the service"
            # And back: a SUB of the owner that acts for no service.
            reader = plain.queue(queues[1]).read()
            following = asyncio.create_task(take(reader, 1))
            await until(lambda: len(node.queues.subscriptions) > 0)
            await plain.send(queues[1], b"back")
            assert (await following)[0].body == b"back"
            assert await node.associated() == {queues[0], *queues[2:]}
            assert await node.digest() == Digest.of([queues[0], *queues[2:]])
            await service.dissociate([queues[1]])
            assert (await service.agree()).digest == Digest.of([queues[0], *queues[2:]])


async def aclose(messages: AsyncIterator[QueueMessage]) -> None:
    await messages.aclose()  # type: ignore[attr-defined]


async def test_d05_an_association_takes_a_queue_from_its_plain_reader(node: ServiceServer) -> None:
    """D05: the reader is told, and the next message is the service's; nothing waited before."""
    async with node.connect() as plain, node.connect() as moor:
        (queue,) = await make_queues(plain, 1)
        await plain.send(queue, b"1")
        reader = plain.queue(queue).read()
        await take(reader, 1)
        async with moor.service(node.list_of()) as service:
            await service.associate([queue])
            await plain.send(queue, b"2")
            async with asyncio.timeout(WITHIN_S):
                assert (await anext(aiter(service))).body == b"2"
            with pytest.raises(SubscriptionEnded, match="TAKEN_OVER"):
                await within(anext(reader))


async def test_d05_a_plain_reader_that_leaves_takes_nothing_from_the_service(
    node: ServiceServer,
) -> None:
    """D05: it had the queue before; its end must not stop the service's deliveries."""
    async with node.connect() as moor, node.connect("other") as sender:
        plain = await node.connect()
        (queue,) = await make_queues(plain, 1)
        reader = plain.queue(queue).read(window=1)
        waiting = asyncio.ensure_future(anext(reader))
        for number in range(3):
            await sender.send(queue, b"%d" % number)
        assert (await within(waiting)).body == b"0"
        async with moor.service(node.list_of()) as service:
            await service.associate([queue])
            messages = aiter(service)
            first = await within(anext(messages))
            await plain.close()
            await until(lambda: len(node.listeners.sessions) == 2)
            assert first.body == b"0"
            await first.ack()
            async with asyncio.timeout(WITHIN_S):
                assert (await anext(messages)).body == b"1"


# --- D08: another connection of the service -------------------------------------------------------


async def test_d08_another_connection_takes_over_and_the_old_one_gets_ends(
    node: ServiceServer, sniffer: Sniffer
) -> None:
    """D08: ENDS with count and hash; the new one gets what was not acknowledged, and all that follows."""
    queues = await associated(node, 5)
    async with node.connect("other") as sender, node.connect() as old, node.connect() as new:
        for queue in queues:
            await sender.send(queue, b"1")
        async with old.service(node.list_of()) as first:
            messages = aiter(first)
            await take(messages, 2)
            assert len(sniffer.of(Delivery)) == 5
            async with new.service(node.list_of()) as second:
                (ended,) = sniffer.of(ServiceEnded)
                assert Digest(ended.count, ended.hash) == Digest.of(queues)
                later = aiter(second)
                await take(later, 3)
                for queue in queues:
                    await sender.send(queue, b"2")
                assert {one.body for one in await take(later, 5)} == {b"2"}
                # What had come before the end can be read; then the old one learns of it.
                for _ in range(3):
                    assert (await within(anext(messages))).body == b"1"
                with pytest.raises(SubscriptionEnded, match="TAKEN_OVER"):
                    await within(anext(messages))
                with pytest.raises(ConnectionLost, match="took over"):
                    await first.agree()
            assert len(sniffer.of(ServiceEnded)) == 1


async def test_d08_the_old_one_leaving_takes_nothing_from_the_new_one(node: ServiceServer) -> None:
    """D08: its session ends later; deliveries go on."""
    queues = await associated(node, 2)
    async with node.connect("other") as sender, node.connect() as new:
        old = await node.connect()
        first = old.service(node.list_of())
        await first.agree()
        async with new.service(node.list_of()) as second:
            messages = aiter(second)
            await sender.send(queues[0], b"1")
            held = await within(anext(messages))
            await old.close()
            await until(lambda: len(node.listeners.sessions) == 2)
            await held.ack()
            for queue in queues:
                await sender.send(queue, b"2")
            assert {one.queue for one in await take(messages, 2)} == set(queues)
        await first.__aexit__(None, None, None)


async def test_d08_a_takeover_in_the_middle_of_a_repair_ends_it_with_an_error(
    node: ServiceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D08: as the design says; the new one repairs, and both sides agree."""
    queues = await associated(node, 200)
    await node.lose(queues[:10])
    with node.listed() as listed:
        listed.remove(queues[-10:])
    async with node.connect() as old, node.connect() as new:
        with monkeypatch.context() as patch:
            gate = Gate(patch, node.services.services, "queues_in")
            first, second = old.service(node.list_of()), new.service(node.list_of())
            repair = asyncio.create_task(first.agree())
            await gate.reached()
        following = asyncio.create_task(second.agree())
        await until(lambda: first._exchange.ended is not None)
        gate.is_open.set()
        assert (await within(following)).digest == Digest.of(queues[:-10])
        assert await node.associated() == set(queues[:-10])
        try:
            with pytest.raises(ConnectionLost, match="took over"):
                await within(repair)
        finally:
            for service in (first, second):
                await service.__aexit__(None, None, None)


async def test_d08_whoever_was_taken_over_can_take_back_on_the_same_connection(
    node: ServiceServer,
) -> None:
    """D08: a new `service` on the old link; the messages that wait come to it."""
    queues = await associated(node, 3)
    async with node.connect("other") as sender, node.connect() as one, node.connect() as two:
        async with one.service(node.list_of()), two.service(node.list_of()):
            pass
        for queue in queues:
            await sender.send(queue, b"waits")
        async with one.service(node.list_of()) as again:
            async with asyncio.timeout(WITHIN_S):
                await again.all_delivered.wait()
                assert len([await anext(aiter(again)) for _ in queues]) == 3


async def test_d08_a_session_that_is_gone_takes_nothing_over(
    node: ServiceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D08: its SUBS was slow in the catalog; meanwhile it left and another one came."""
    queues = await associated(node, 3)
    async with node.connect("other") as sender, node.connect() as new:
        old = await node.connect()
        await old._caller.call(OpenService, ServiceOpened)
        with monkeypatch.context() as patch:
            gate = Gate(patch, node.services.services, "digest")
            digest = Digest.of(queues)
            old._caller.cast(lambda call: SubscribeService(call, digest.count, digest.hash))
            await gate.reached()
        await old.close()
        await until(lambda: len(node.listeners.sessions) == 2)
        async with new.service(node.list_of()) as service:
            await within(service.all_delivered.wait())
            gate.is_open.set()
            await until(lambda: node.services.counts.verifies == 2 + 1)
            for queue in queues:
                await sender.send(queue, b"1")
            async with asyncio.timeout(WITHIN_S):
                messages = aiter(service)
                assert {(await anext(messages)).queue for _ in queues} == set(queues)
