"""Subscribing to a service: SOKS, every message that waits, ALLS; then what is sent follows by itself."""

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.queues.queue_server import WITHIN_S, Certificates
from tests.services.interception import Sniffer
from tests.services.service_server import (
    ServiceServer,
    associated,
    make_queues,
    service_server,
    subscribe,
    take,
    within,
)
from tests.waiting import until

from moorline.catalog import Catalog
from moorline.config.settings import Queues as Settings
from moorline.core.sets.asker import Mode
from moorline.core.sets.digest import Digest
from moorline.net.clock import wall_ms
from moorline.net.session import Session
from moorline.wire.message import Message
from moorline.wire.queue import Delivery
from moorline.wire.service import AllDelivered, ServiceSubscribed

pytestmark = pytest.mark.process


async def test_d04_subs_is_answered_by_soks_then_the_messages_then_alls(
    node: ServiceServer, sniffer: Sniffer
) -> None:
    """D04: SOKS(count, hash), every waiting message, ALLS; new ones follow by themselves."""
    queues = await associated(node, 30)
    async with node.connect("other") as sender, node.connect() as moor:
        for queue in queues[:20]:
            await sender.send(queue, b"waits in " + queue)
        sniffer.sent.clear()
        async with moor.service(node.list_of()) as service:
            await within(service.all_delivered.wait())
            kinds = [
                type(message) for message in sniffer.of(ServiceSubscribed, Delivery, AllDelivered)
            ]
            assert kinds == [ServiceSubscribed, *[Delivery] * 20, AllDelivered]
            (soks,) = sniffer.of(ServiceSubscribed)
            assert Digest(soks.count, soks.hash) == Digest.of(queues)
            assert soks.mode == Mode.EQUAL.value
            assert sniffer.of(AllDelivered)[0].delivered == 20
            messages = aiter(service)
            taken = await take(messages, 20)
            assert {message.queue for message in taken} == set(queues[:20])
            assert all(message.body == b"waits in " + message.queue for message in taken)
            # One that had messages, and one that never had any.
            for queue in (queues[0], queues[-1]):
                await sender.send(queue, b"new")
                (message,) = await take(messages, 1)
                assert (message.queue, message.body) == (queue, b"new")


async def test_d04_messages_of_one_queue_come_in_order_within_the_window(
    node: ServiceServer,
) -> None:
    """D04: the head first; the next when it is acknowledged, or as far as the window goes."""
    queues = await associated(node, 3)
    async with node.connect("other") as sender, node.connect() as moor:
        for number in range(10):
            for queue in queues:
                await sender.send(queue, b"%d" % number)
        async with moor.service(node.list_of(), window=4) as service:
            await within(service.all_delivered.wait())
            assert node.queues.counts.delivered == 12
            taken = await take(aiter(service), 30)
            for queue in queues:
                bodies = [message.body for message in taken if message.queue == queue]
                assert bodies == [b"%d" % number for number in range(10)]


async def test_the_loop_of_a_service_outlives_what_is_gone_under_it(node: ServiceServer) -> None:
    """One message has expired, the queue of another was deleted: their acknowledgements end nothing."""
    expired, deleted, third = await associated(node, 3)
    async with node.connect("other") as sender, node.connect() as moor:
        for queue in (expired, deleted, third):
            await sender.send(queue, b"ahoy")
        async with moor.service(node.list_of()) as service:
            await within(service.all_delivered.wait())
            found = node.store.find(expired)
            assert found is not None
            assert node.queues.expire(found, wall_ms() + 60_000) == 1
            await moor.queue(deleted).delete()
            seen = {}
            async with asyncio.timeout(WITHIN_S):
                async for message in service:
                    await message.ack()
                    seen[message.queue] = message.is_gone
                    if len(seen) == 3:
                        break
    assert seen == {expired: True, deleted: True, third: False}


async def test_d04_what_is_not_acknowledged_comes_again_to_the_next_connection(
    node: ServiceServer,
) -> None:
    """D04: delivered is not done."""
    queues = await associated(node, 5)
    async with node.connect("other") as sender:
        for queue in queues:
            await sender.send(queue, b"1")
        for _ in range(2):
            async with node.connect() as moor, moor.service(node.list_of()) as service:
                messages = aiter(service)
                seen = {(await within(anext(messages))).queue for _ in queues}
                assert seen == set(queues)
            await until(lambda: len(node.listeners.sessions) == 1)
        async with node.connect() as moor, moor.service(node.list_of()) as service:
            await take(aiter(service), 5)


async def test_d04_a_message_that_is_being_committed_at_the_subscription_is_not_skipped(
    tmp_path: Path, catalog: Catalog, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D04: sent before SUBS, on disk only after it; nobody else wakes the queue."""
    settings = Settings(sync="power", max_queue_messages=100, max_file_messages=101)
    async with service_server(tmp_path, catalog, certificates, settings) as node:
        queues = await associated(node, 2)
        written = threading.Event()
        write = node.store.write

        def slow(batch: Any) -> None:
            assert threading.current_thread() is not threading.main_thread()
            written.wait(WITHIN_S)
            write(batch)

        async with node.connect("other") as sender, node.connect() as moor:
            monkeypatch.setattr(node.store, "write", slow)
            # Two of them: a lone one would be committed at once.
            messages = [(queue, b"just in time") for queue in queues]
            sending = asyncio.create_task(sender.send_all(messages))
            await until(lambda: node.store.writing is not None)
            async with moor.service(node.list_of()) as service:
                await within(service.all_delivered.wait())
                written.set()
                await sending
                monkeypatch.undo()
                async with asyncio.timeout(WITHIN_S):
                    message = await anext(aiter(service))
                assert message.body == b"just in time"


async def test_d11_a_second_subs_in_one_session_delivers_nothing_twice(
    node: ServiceServer, sniffer: Sniffer
) -> None:
    """D11: nor does a third, with unacknowledged messages on their way."""
    queues = await associated(node, 10)
    async with node.connect("other") as sender, node.connect() as moor:
        for queue in queues:
            await sender.send(queue, b"1")
        async with moor.service(node.list_of()) as service:
            await within(service.all_delivered.wait())
            for _ in range(3):
                assert (await service.agree()).digest == Digest.of(queues)
            messages = aiter(service)
            await take(messages, 10)
            await service.agree()
            await sender.send(queues[0], b"2")
            assert [message.body for message in await take(messages, 1)] == [b"2"]
            assert len(sniffer.of(Delivery)) == 11
            assert node.queues.counts.delivered == 11


async def test_d12_subs_without_queues(node: ServiceServer) -> None:
    """D12: agreed in 48 bytes, ALLS comes, and the first association works from there."""
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert service.report.digest == Digest.empty()
        assert (service.report.bytes_sent, service.report.bytes_received) == (24, 24)
        await within(service.all_delivered.wait())
        (queue,) = await make_queues(moor, 1)
        await service.associate([queue])
        await moor.send(queue, b"first")
        (message,) = await take(aiter(service), 1)
        assert message.body == b"first"
        assert await node.digest() == Digest.of([queue])


# --- D22: a full send buffer ----------------------------------------------------------------------


async def test_d22_a_full_send_buffer_during_mass_delivery_loses_nothing(
    node: ServiceServer,
) -> None:
    """D22: the service does not read for a while; every message comes once, then ALLS."""
    count, body = 500, bytes(16_000)
    queues = await associated(node, count)
    async with node.connect("other") as sender, node.connect() as moor:
        session = node.session_of(moor)
        # The kernel's buffers grow to tens of megabytes by themselves; ours is the one to be tried.
        for end, option in ((moor._caller, socket.SO_RCVBUF), (session, socket.SO_SNDBUF)):
            assert end._transport is not None
            end._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, 65_536)
        for start in range(0, count, 50):
            await sender.send_all([(queue, body) for queue in queues[start : start + 50]])
        heard = moor._caller.received
        deliveries: list[bytes] = []

        def slow(messages: list[Message]) -> None:
            if any(isinstance(message, ServiceSubscribed) for message in messages):
                moor._caller.hold_reading("a slow test")
            deliveries.extend(one.queue for one in messages if isinstance(one, Delivery))
            heard(messages)

        moor._caller.received = slow  # type: ignore[method-assign]
        async with moor.service(node.list_of()) as service:
            await until(lambda: not session.writable)
            assert node.queues.counts.delivered < count
            # Meanwhile some queues get more, and one that has none gets its first.
            for queue in [*queues[:5], *queues[-5:]]:
                await sender.send(queue, b"more")
            assert not session.writable
            moor._caller.release_reading("a slow test")
            await within(service.all_delivered.wait())
            assert len(deliveries) == count
            assert set(deliveries) == set(queues)
            messages = aiter(service)
            taken = await take(messages, count + 10)
            assert sum(one.body == b"more" for one in taken) == 10
            assert sum(one.body == body for one in taken) == count
            assert node.queues.counts.delivered == count + 10


async def test_d22_too_many_unacknowledged_wait_and_are_not_lost(
    node: ServiceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D22: at the bound of what one service may hold, acknowledgements let the rest through."""
    monkeypatch.setattr("moorline.services.delivery.SERVICE_IN_FLIGHT_MAX", 10)
    queues = await associated(node, 60)
    async with node.connect("other") as sender, node.connect() as moor:
        await sender.send_all([(queue, b"%d" % n) for n in range(2) for queue in queues])
        async with moor.service(node.list_of()) as service:
            await until(lambda: node.queues.counts.delivered == 10)
            # Others, through another door, at the same bound.
            (late,) = await make_queues(moor, 1)
            await sender.send(late, b"0")
            await service.associate([late])
            assert node.queues.counts.delivered == 10
            taken = await take(aiter(service), 121)
            assert len({(one.queue, one.body) for one in taken}) == 121
            await within(service.all_delivered.wait())


# --- the end of a session -------------------------------------------------------------------------


async def test_sessions_that_are_gone_are_forgotten(node: ServiceServer) -> None:
    """Plain ones too: a node lives longer than its clients."""
    for name in ("service", "other"):
        async with node.connect(name) as moor:
            (queue,) = await make_queues(moor, 1)
            await subscribe(moor, queue)
            if name == "service":
                async with moor.service(node.list_of()):
                    pass
    await until(lambda: not node.listeners.sessions)
    assert not [key for key in node.services.turns._locks if isinstance(key, Session)]
    assert not node.services._by_session
    assert not node.services.delivery.subscribed
