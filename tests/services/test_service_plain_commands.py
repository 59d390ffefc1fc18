"""Commands of queues on the connection of a service: both sides hear of what they change, and they wait."""

import asyncio

import pytest
from tests.services.interception import Gate, Sniffer
from tests.services.service_server import ServiceServer, associated, make_queues, take, within
from tests.waiting import until

from moorline.client.moor import Moor
from moorline.core.sets.digest import Digest
from moorline.errors import CallFailed, ConnectionLost
from moorline.wire.message import Message
from moorline.wire.queue import Acknowledge, DeleteQueue, Subscribe
from moorline.wire.service import AllDelivered, OpenService, ServiceOpened
from moorline.wire.service_operator import OpenNamedService

pytestmark = pytest.mark.process


async def both_have(node: ServiceServer, queues: set[bytes]) -> None:
    with node.listed() as listed:
        assert listed.digest() == listed.recomputed() == Digest.of(queues)
    assert await node.associated() == queues
    assert await node.digest() == Digest.of(queues)


async def test_a_queue_that_is_read_on_the_connection_is_the_services(node: ServiceServer) -> None:
    """SUB within a service session associates: in the client's list as at the node."""
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        one, other = await make_queues(moor, 2)
        for queue in (one, other):
            await moor.send(queue, b"1")
        reader = moor.queue(one).read()
        assert (await take(reader, 1))[0].body == b"1"
        await both_have(node, {one})
        await service.associate([other])
        assert (await take(aiter(service), 1))[0].queue == other
        report = await service.agree()
        assert (report.associated, report.dissociated) == (0, 0)
        await moor.send(one, b"2")
        assert (await take(reader, 1))[0].body == b"2"
        # The reader leaves: the queue is the service's still, and so is what comes or was left.
        await moor.send(one, b"3")
        assert (await within(anext(reader))).body == b"3"
        await reader.aclose()  # type: ignore[attr-defined]
        assert (await take(aiter(service), 1))[0].body == b"3"
        await both_have(node, {one, other})


async def test_a_queue_that_cannot_be_read_is_not_in_the_list(node: ServiceServer) -> None:
    async with node.connect("other") as stranger, node.connect() as moor:
        (foreign,) = await make_queues(stranger, 1)
        async with moor.service(node.list_of()):
            for queue in (foreign, b"x" * 24):
                with pytest.raises(CallFailed):
                    await within(anext(moor.queue(queue).read()))
            await both_have(node, set())


async def test_after_a_service_its_connection_is_a_plain_one(node: ServiceServer) -> None:
    """What the service had and did not acknowledge comes again; a SUB takes a queue back (D05)."""
    queues = await associated(node, 3)
    async with node.connect() as moor:
        async with moor.service(node.list_of(), window=2) as service:
            await moor.send_all([(queues[0], b"1"), (queues[1], b"1"), (queues[1], b"2")])
            await service.all_delivered.wait()
            await until(lambda: len(service._deliveries) == 3)
        await until(lambda: not node.services.delivery.subscribed)
        reader = moor.queue(queues[1]).read()
        assert [one.body for one in await take(reader, 2)] == [b"1", b"2"]
        assert await node.associated() == {queues[0], queues[2]}
        # Entering again: the list is what counts, and the queue moves back to the service.
        async with moor.service(node.list_of()) as service:
            assert service.report.associated == 1
            taken = await take(aiter(service), 1)
            assert (taken[0].queue, taken[0].body) == (queues[0], b"1")
            await both_have(node, set(queues))


async def test_a_service_is_opened_and_closed_many_times_on_one_connection(
    node: ServiceServer, sniffer: Sniffer
) -> None:
    """Each time what waits comes once, and what the one before had on its way is not taken for it."""
    queues = await associated(node, 2)
    async with node.connect() as moor:
        await moor.send(queues[0], b"1")
        for _ in range(5):
            sniffer.sent.clear()
            async with moor.service(node.list_of()) as service:
                await within(service.all_delivered.wait())
                await within(anext(aiter(service)))
                assert not service._deliveries
            assert [one.delivered for one in sniffer.of(AllDelivered)] == [1]
        async with moor.service(node.list_of()) as service:
            await take(aiter(service), 1)
    await until(lambda: not node.services._watched)


async def test_a_takeover_leaves_plain_readers_alone(node: ServiceServer) -> None:
    """A queue that was read before the service was opened stays with its reader."""
    queues = await associated(node, 1)
    async with node.connect() as old, node.connect() as new:
        (plain,) = await make_queues(old, 1)
        await old.send(plain, b"1")
        reader = old.queue(plain).read()
        await take(reader, 1)
        async with old.service(node.list_of()), new.service(node.folder / "copy.sqlite", bind=True):
            await old.send(plain, b"2")
            assert (await take(reader, 1))[0].body == b"2"
            with pytest.raises(ConnectionLost, match="took over"):
                await within(anext(old.queue(queues[0]).read()))


@pytest.mark.parametrize("how", ["delete", "block"])
async def test_a_queue_that_goes_through_the_connection_leaves_the_list(
    node: ServiceServer, how: str
) -> None:
    async with node.connect("operator") as moor, moor.service(node.list_of("operator")) as service:
        queues = await make_queues(moor, 3)
        await service.associate(queues)
        queue = moor.queue(queues[0])
        await (queue.delete() if how == "delete" else queue.block())
        with node.listed("operator") as listed:
            assert listed.digest() == Digest.of(queues[1:]) == await node.digest("operator")
        report = await service.agree()
        assert (report.lost, report.associated, report.dissociated) == ([], 0, 0)


async def test_d30_what_changes_the_set_waits_for_soks_and_the_rest_does_not(
    node: ServiceServer, sniffer: Sniffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D30, as the table "What waits for SOKS" says."""
    queues = await associated(node, 5)
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        await moor.send(queues[0], b"1")
        message = await within(anext(aiter(service)))
        fresh, doomed = await make_queues(moor, 2)
        with monkeypatch.context() as patch:
            gate = Gate(patch, node.services.services, "checked")
            agreement = asyncio.create_task(service.agree())
            await gate.reached()
        sniffer.sent.clear()
        waiting = [
            asyncio.create_task(work)  # type: ignore[arg-type]
            for work in (
                service.associate([fresh]),
                anext(moor.queue(queues[1]).read()),
                moor.queue(doomed).delete(),
                message.ack(),
                moor.ack_all([message]),
            )
        ]
        await passes(moor, queues[2])
        assert not any(task.done() for task in waiting)
        assert not sniffer.of(Subscribe, DeleteQueue, Acknowledge)
        gate.is_open.set()
        await within(agreement)
        await moor.send(queues[1], b"for the reader")
        await within(asyncio.gather(*waiting))
        await both_have(node, {*queues, fresh})


async def passes(moor: Moor, queue: bytes) -> None:
    """Commands that change nobody's queues."""
    await moor.create_queue()
    await moor.send(queue, b"x")
    await moor.queue(queue).info()
    assert await moor.queue(queue).get() is not None


async def test_a_client_that_went_while_the_catalog_was_asked_does_not_have_the_queue(
    node: ServiceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the queue from the service; then nobody has it, until somebody asks for it."""
    (queue,) = await associated(node, 1)
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        with monkeypatch.context() as patch:
            gate = Gate(patch, node.services.services, "dissociate", after=True)
            async with node.connect() as gone:
                session = node.session_of(gone)
                leaving = asyncio.create_task(within(anext(gone.queue(queue).read())))
                await gate.reached()
            await until(lambda: session not in node.listeners.sessions)
        gate.is_open.set()
        with pytest.raises(ConnectionLost):
            await leaving
        await until(lambda: not node.services.turns._tasks)
        assert not (await moor.queue(queue).info()).is_subscribed
        await service.associate([queue])
        await moor.send(queue, b"ahoy")
        assert (await take(aiter(service), 1))[0].body == b"ahoy"


@pytest.mark.parametrize("kind", [OpenService, OpenNamedService])
async def test_a_client_that_went_while_its_service_was_opened_acts_for_none(
    node: ServiceServer, monkeypatch: pytest.MonkeyPatch, kind: type[Message]
) -> None:
    await associated(node, 1)
    named = kind is OpenNamedService
    with monkeypatch.context() as patch:
        gate = Gate(patch, node.services.services, "meant" if named else "open", after=True)
        async with node.connect("operator") as gone:
            session = node.session_of(gone)
            make = (lambda call: OpenNamedService(call, "service")) if named else OpenService
            leaving = asyncio.create_task(gone._caller.call(make, ServiceOpened))
            await gate.reached()
        await until(lambda: session not in node.listeners.sessions)
    gate.is_open.set()
    with pytest.raises(ConnectionLost):
        await leaving
    await until(lambda: not node.services.turns._tasks)
    assert session not in node.services._by_session
