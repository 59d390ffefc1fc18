"""Postgres goes while a command changes associations: nobody is told that nothing was done."""

from collections.abc import Awaitable, Callable

import pytest
from tests.catalog.losing import lost_at
from tests.services.service_server import ServiceServer, associated, make_queues, subscribe, within

from moorline.client.moor import Moor
from moorline.core.sets.digest import Digest
from moorline.errors import OutcomeUnknown
from moorline.wire.queue import BlockQueue, Done
from moorline.wire.service import OpenService, ServiceOpened

pytestmark = pytest.mark.process

Command = Callable[[Moor, bytes], Awaitable[object]]


async def block(moor: Moor, queue: bytes) -> object:
    return await moor._caller.call(lambda call: BlockQueue(call, queue, True), Done)


async def read(moor: Moor, queue: bytes) -> object:
    return await anext(aiter(moor.queue(queue)))


async def delete(moor: Moor, queue: bytes) -> None:
    await moor.queue(queue).delete()


async def test_a_lost_association_may_be_there_and_is_asked_for_again(node: ServiceServer) -> None:
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        queues = await make_queues(moor, 3)
        async with lost_at(node.catalog._dsn, "association"):
            with pytest.raises(OutcomeUnknown, match="to ask again is harmless"):
                await within(service.associate(queues[:2]))
            with pytest.raises(OutcomeUnknown, match="to ask again is harmless"):
                await within(subscribe(moor, queues[2]))
        assert await service.associate(queues) == []
        assert (await service.agree()).digest == Digest.of(queues) == await node.digest()


async def test_a_lost_dissociation_may_be_done_and_is_asked_for_again(node: ServiceServer) -> None:
    queues = await associated(node, 5)
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        async with lost_at(node.catalog._dsn, "association"):
            with pytest.raises(OutcomeUnknown, match="to ask again is harmless"):
                await within(service.dissociate(queues[:2]))
        await service.dissociate(queues[:2])
        assert (await service.agree()).digest == Digest.of(queues[2:]) == await node.digest()


@pytest.mark.parametrize(
    ("command", "name"), [(subscribe, "service"), (delete, "service"), (block, "operator")]
)
async def test_a_plain_command_may_have_taken_the_queue_from_its_service(
    node: ServiceServer, command: Command, name: str
) -> None:
    (queue,) = await associated(node, 1)
    async with node.connect(name) as moor:
        async with lost_at(node.catalog._dsn, "association"):
            with pytest.raises(OutcomeUnknown, match="to ask again is harmless"):
                await within(command(moor, queue))
        await within(command(moor, queue))
        assert await node.associated() == set()


async def test_a_service_that_was_opened_first_may_be_there(node: ServiceServer) -> None:
    async with node.connect() as moor:
        async with lost_at(node.catalog._dsn, "service"):
            with pytest.raises(OutcomeUnknown, match="to ask again is harmless"):
                await within(moor._caller.call(OpenService, ServiceOpened))
        await within(moor._caller.call(OpenService, ServiceOpened))


async def test_a_queue_stays_in_the_list_if_nobody_knows(node: ServiceServer) -> None:
    """The next agreement finds out; taken from the list, it would be taken from the node too."""
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        (queue,) = await make_queues(moor, 1)
        async with lost_at(node.catalog._dsn, "association"):
            with pytest.raises(OutcomeUnknown):
                await within(read(moor, queue))
        assert service._list.associations.digest() == Digest.of([queue])
        assert (await service.agree()).digest == Digest.of([queue]) == await node.digest()
