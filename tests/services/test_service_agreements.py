"""An operator asks a service to agree with its nodes anew: what differs is repaired by the service itself."""

import asyncio

import pytest
from tests.services.service_server import ServiceServer, associated, within
from tests.waiting import until

from moorline.client.moor import Moor
from moorline.core.sets.digest import Digest
from moorline.errors import Denied, NotAuthorized, NotFound, OutcomeUnknown
from moorline.wire.service import Agreement, AgreementTold, ServiceAgreed
from moorline.wire.service_operator import AgreeService, DescribeService, ServiceDescribed

pytestmark = pytest.mark.process

LOST = 10


async def agree(moor: Moor) -> Agreement:
    asked = moor._caller.call(lambda call: AgreeService(call, "service"), ServiceAgreed)
    return (await within(asked)).agreement


async def described(moor: Moor) -> ServiceDescribed:
    return await moor._caller.call(lambda call: DescribeService(call, "service"), ServiceDescribed)


async def test_what_has_drifted_is_repaired_by_the_service_and_its_cost_is_told(
    node: ServiceServer,
) -> None:
    queues = await associated(node, 2_000)
    async with (
        node.connect("operator") as operator,
        node.connect() as moor,
        moor.service(node.list_of()),
    ):
        told = await described(operator)
        assert told.can_agree
        assert (told.told_count, told.told_hash) == (told.answered_count, told.answered_hash)
        await node.lose(queues[:LOST])
        found = await agree(operator)
        assert (found.associated, found.dissociated, found.code) == (LOST, 0, "")
        assert found.count == 2_000
        assert Digest(found.count, found.hash) == await node.digest()
        # What was lost, and what it cost to find that out: far less than the set.
        assert found.bytes_sent + found.bytes_received < 2_000 + 24 * LOST
        assert found.rounds > 0
        again = await agree(operator)
        assert (again.associated, again.bytes_sent + again.bytes_received) == (0, 48)
        told = await described(operator)
        assert told.told_count == told.answered_count == 2_000


async def test_two_operators_at_once_hear_of_one_agreement(node: ServiceServer) -> None:
    await associated(node, 50)
    async with (
        node.connect("operator") as first,
        node.connect("operator") as second,
        node.connect() as moor,
        moor.service(node.list_of()),
    ):
        one, other = await asyncio.gather(agree(first), agree(second))
        assert one == other


async def test_a_service_that_is_away_is_not_asked(node: ServiceServer) -> None:
    await associated(node, 5)
    async with node.connect("operator") as operator:
        with pytest.raises(NotFound, match="not subscribed at this node"):
            await agree(operator)


async def test_who_may_not_administer_it_asks_for_nothing(node: ServiceServer) -> None:
    await associated(node, 5)
    async with node.connect("other") as other, node.connect() as moor, moor.service(node.list_of()):
        with pytest.raises(Denied):
            await agree(other)
        # Nor does the service itself, which agrees by itself.
        with pytest.raises(Denied):
            await agree(moor)


async def test_what_nobody_asked_for_means_nothing(node: ServiceServer) -> None:
    """A stranger answers for the service, and the service before it was asked."""
    await associated(node, 5)
    async with (
        node.connect("operator") as operator,
        node.connect("other") as other,
        node.connect() as moor,
        moor.service(node.list_of()),
    ):
        for one in (other, moor):
            one._caller.send(AgreementTold(1, Agreement(count=77)))
            await one.create_queue()  # the node has heard it
        assert (await agree(operator)).count == 5


async def test_an_older_client_is_not_asked(node: ServiceServer) -> None:
    await associated(node, 5)
    async with (
        node.connect("operator") as operator,
        node.connect() as moor,
        moor.service(node.list_of()),
    ):
        (acting,) = node.services.delivery.subscribed.values()
        acting.hears_agreement = False  # as its SUBS would have said
        with pytest.raises(NotAuthorized, match="older than the node"):
            await agree(operator)


async def test_a_service_that_goes_meanwhile_leaves_it_unknown(node: ServiceServer) -> None:
    await associated(node, 5)
    async with (
        node.connect("operator") as operator,
        node.connect() as moor,
        moor.service(node.list_of()) as service,
        service._agreement,  # held: another agreement cannot begin
    ):
        asked = asyncio.create_task(agree(operator))
        await until(lambda: bool(node.services._agreements._waiting))
        moor._caller.abort()
        with pytest.raises(OutcomeUnknown, match="has gone"):
            await asked
