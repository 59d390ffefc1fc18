"""Who may do what with a queue: its owner, strangers who know its id, and operators."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest
from tests.access.rows import operator
from tests.queues.queue_server import SMALL, Certificates, queue_server, take
from tests.waiting import until

from moorline.client.moor import Moor
from moorline.core.access.principal import EVERYONE
from moorline.core.access.right import ADMINISTER, LIST, PUBLISH, SUBSCRIBE, WRITE
from moorline.core.access.row import Row
from moorline.errors import Denied, NotAuthorized, NotFound, SubscriptionEnded
from moorline.ids import text_of
from moorline.net import slices
from moorline.queues import owners
from moorline.wire.queue import Acknowledge, Acknowledged
from moorline.wire.queue_contents import PeekQueue, QueuePeeked

OPERATORS = (operator("captain"),)


def path_of(queue_id: bytes) -> str:
    return f"/queues/{text_of(queue_id)}"


async def peek(moor: Moor, queue_id: bytes) -> QueuePeeked:
    return await moor._caller.call(lambda call: PeekQueue(call, queue_id), QueuePeeked)


async def acknowledge(moor: Moor, queue_id: bytes, message: int) -> Acknowledged:
    return await moor._caller.call(lambda call: Acknowledge(call, queue_id, message), Acknowledged)


async def refused(call: Awaitable[object]) -> str:
    with pytest.raises(Denied) as caught:
        await call
    return str(caught.value)


async def test_only_the_owner_reads_and_changes_a_queue(
    tmp_path: Path, certificates: Certificates
) -> None:
    """AUTH between two identities: anyone who knows the id may send, the owner alone may read."""
    async with (
        queue_server(tmp_path, SMALL, certificates.context(), OPERATORS) as node,
        certificates.connect(str(node.address), "billing") as owner,
        certificates.connect(str(node.address), "shipping") as stranger,
    ):
        queue = await owner.create_queue()
        theirs = stranger.queue(queue.id)
        sent = await stranger.send(queue.id, b"anyone may send")
        for call in (theirs.get, theirs.off, theirs.delete, theirs.info, theirs.block):
            with pytest.raises(NotAuthorized):
                await call()
        with pytest.raises(NotAuthorized):
            await take(theirs.read())
        with pytest.raises(NotAuthorized):
            await stranger.list_queues()
        mine = await queue.get()
        assert mine is not None
        (refused,) = await stranger.ack_all([mine])
        assert isinstance(refused, NotAuthorized)
        info = await queue.info()
        assert (info.waiting, info.is_suspended, info.is_blocked) == (1, False, False)
        message = await take(queue.read())
        assert message.id == sent
        # The owner is no operator.
        with pytest.raises(NotAuthorized):
            await queue.block()
        assert await message.ack() == 0


async def test_operators_with_all_rights_do_everything(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with (
        queue_server(tmp_path, SMALL, certificates.context(), OPERATORS) as node,
        certificates.connect(str(node.address), "billing") as owner,
        certificates.connect(str(node.address), "captain") as operator,
    ):
        queue = await owner.create_queue()
        await owner.send(queue.id, b"private")
        seen = operator.queue(queue.id)
        assert (await operator.list_queues()).queues == [(queue.id, 1)]
        assert (await seen.info()).waiting == 1
        head = await seen.get()
        assert head is not None
        assert head.body == b"private"
        await seen.off()
        await seen.block()
        await seen.delete()
        for gone in (seen, queue):
            with pytest.raises(NotFound):
                await gone.info()


async def test_a29_the_owner_of_a_deleted_queue_hears_that_it_is_gone(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A29: its reader is done with what it got before; a stranger hears what it always heard."""
    monkeypatch.setattr(owners, "QUEUES_GONE_MAX", 1)
    async with (
        queue_server(tmp_path, SMALL, certificates.context(), OPERATORS) as node,
        certificates.connect(str(node.address), "billing") as owner,
        certificates.connect(str(node.address), "shipping") as stranger,
        certificates.connect(str(node.address), "captain") as captain,
    ):
        queue, other = await owner.create_queues(2)
        await stranger.send_all([(queue.id, b"1"), (queue.id, b"2")])
        reading = queue.read()
        first, second = await take(reading), await take(reading)
        heard = await refused(acknowledge(stranger, queue.id, first.id))
        await captain.queue(queue.id).delete()
        assert await first.ack() == 0
        assert first.is_gone
        assert await refused(acknowledge(stranger, queue.id, first.id)) == heard
        with pytest.raises(NotFound):
            await queue.get()
        # What is remembered is bounded; then it is as if it had never been.
        await other.delete()
        await refused(acknowledge(owner, queue.id, second.id))


async def test_ownership_survives_restarts(tmp_path: Path, certificates: Certificates) -> None:
    """From the log, and from the index after a checkpoint."""
    queue_id = b""
    for turn in range(3):
        async with (
            queue_server(tmp_path, SMALL, certificates.context(), OPERATORS) as node,
            certificates.connect(str(node.address), "billing") as owner,
            certificates.connect(str(node.address), "shipping") as stranger,
        ):
            if not turn:
                # An owner with a smaller number, so that numbers cannot be right by chance.
                await stranger.create_queue()
                queue_id = (await owner.create_queue()).id
            await stranger.send(queue_id, b"%d" % turn)
            with pytest.raises(NotAuthorized):
                await stranger.queue(queue_id).get()
            head = await owner.queue(queue_id).get()
            assert head is not None
            assert head.body == b"%d" % turn
            await head.ack()


async def test_the_operator_pages_through_all_queues(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as node, node.connect() as moor:
        queues = await moor.create_queues(25)
        await node.broker.checkpoints.checkpoint()
        queues += await moor.create_queues(25)
        doomed = [queues.pop(3), queues.pop(-3)]
        for queue in doomed:
            await queue.delete()
        found: list[bytes] = []
        while page := (await moor.list_queues(found[-1] if found else b"", 7)).queues:
            found += [queue_id for queue_id, _ in page]
        assert found == sorted(queue.id for queue in queues)
        assert (await moor.list_queues()).total == 48


async def test_a29_the_id_of_a_queue_is_the_right_to_send_to_it_and_no_other(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A29: and what is not there is refused in the same words as what is another's."""
    async with (
        queue_server(tmp_path, SMALL, certificates.context()) as node,
        certificates.connect(str(node.address), "billing") as owner,
        certificates.connect(str(node.address), "shipping") as stranger,
    ):
        queue = await owner.create_queue()
        sent = await stranger.send(queue.id, b"anyone")
        none = bytes(24)
        for queue_id in (queue.id, none):
            seen = stranger.queue(queue_id)
            calls = (seen.get, seen.off, seen.delete, seen.info, seen.block, seen.check)
            refusals = [await refused(call()) for call in calls]
            refusals += [await refused(take(seen.read())), await refused(peek(stranger, queue_id))]
            assert {one.rpartition(" ")[2] for one in refusals} == {path_of(queue_id)}
            await refused(acknowledge(stranger, queue_id, sent))
        told = [(act, code) for act, path, code in node.rights.refusals if path == path_of(none)]
        assert told == [
            (act, code) for act, path, code in node.rights.refusals if path == path_of(queue.id)
        ]
        assert told[-1] == ("Acknowledge", "DENIED")
        # Who may send learns nothing from it but what the id says.
        with pytest.raises(NotFound):
            await stranger.send(none, b"")
        assert (await queue.info()).waiting == 1


async def test_a29_a_queue_that_is_closed_takes_nothing_from_strangers(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A29: unless it is closed; its owner may still send, and those to whom a deeper row gives it."""
    async with (
        queue_server(tmp_path, SMALL, certificates.context()) as node,
        certificates.connect(str(node.address), "billing") as owner,
        certificates.connect(str(node.address), "shipping") as stranger,
    ):
        closed, other = await owner.create_queues(2)
        await node.rights.change(Row(path_of(closed.id), EVERYONE, denies=WRITE))
        with pytest.raises(Denied, match="the right w"):
            await stranger.send(closed.id, b"no")
        await stranger.send(other.id, b"1")
        await owner.send(closed.id, b"mine")
        await node.rights.change(
            Row("/queues", EVERYONE, denies=WRITE), Row(path_of(other.id), "shipping", grants=WRITE)
        )
        await stranger.send(other.id, b"2")
        assert (await other.info()).waiting == 2
        assert (await closed.info()).waiting == 1


async def test_a20_each_call_with_its_right_and_without(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A20, A21: a row for one queue is none for another, and each right is for its own calls."""
    async with (
        queue_server(tmp_path, SMALL, certificates.context()) as node,
        certificates.connect(str(node.address), "billing") as owner,
        certificates.connect(str(node.address), "shipping") as stranger,
    ):
        queue, other = await owner.create_queues(2)
        await owner.send(queue.id, b"1")
        seen = stranger.queue(queue.id)
        calls = {
            SUBSCRIBE: (seen.get, lambda: peek(stranger, queue.id), lambda: take(seen.read())),
            LIST: (seen.info,),
            ADMINISTER: (seen.check, seen.block, lambda: seen.block(blocked=False), seen.off),
        }
        for right in calls:
            await node.rights.change(Row(path_of(queue.id), "shipping", grants=right))
            for needed, some in calls.items():
                for call in some:
                    if needed == right:
                        await call()
                    else:
                        with pytest.raises(Denied):
                            await call()
            with pytest.raises(Denied):
                await stranger.queue(other.id).get()
        with pytest.raises(Denied):
            await stranger.list_queues()
        await node.rights.change(Row("/queues", "shipping", grants=LIST, denies=PUBLISH))
        assert (await stranger.list_queues()).total == 2
        with pytest.raises(Denied, match="the right p"):
            await stranger.create_queue()
        with pytest.raises(Denied):
            await stranger.checkpoint()


async def test_a02_a_renewed_certificate_owns_what_the_old_one_owned(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A02: a queue is its principal's, whatever that proves itself with."""
    async with queue_server(tmp_path, SMALL, certificates.context()) as node:
        address = str(node.address)
        async with certificates.connect(address, "billing") as first:
            queue_id = (await first.create_queue()).id
        (fingerprint,) = [one for one in node.fingerprints if one]
        async with certificates.connect(address, "shipping") as renewed:
            with pytest.raises(Denied):
                await renewed.queue(queue_id).get()
        node.rights.principals = dict.fromkeys(node.fingerprints - {fingerprint}, "billing")
        async with certificates.connect(address, "shipping") as renewed:
            assert await renewed.queue(queue_id).get() is None
            assert (await renewed.queue(queue_id).info()).owner == "billing"


async def test_a09_the_queues_of_a_fingerprint_are_mapped_when_it_returns(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A09: for good, also if the certificate never comes again."""
    context = certificates.context()
    old = b"f" * 32
    async with queue_server(tmp_path, SMALL, context) as node:
        queue_id = node.store.create(old).id
        async with certificates.connect(str(node.address), "billing") as billing:
            await billing.create_queue()
            with pytest.raises(Denied):
                await billing.queue(queue_id).info()
            assert not node.broker.claim(b"e" * 32, "billing")
            assert not node.broker.claim(old, "anonymous")
            assert node.broker.claim(old, "billing")
            assert (await billing.queue(queue_id).info()).owner == "billing"
    async with (
        queue_server(tmp_path, SMALL, context) as node,
        certificates.connect(str(node.address), "billing") as billing,
    ):
        assert not node.broker.claim(old, "shipping")
        await billing.send(queue_id, b"1")
        message = await take(billing.queue(queue_id).read())
        assert await message.ack() == 0


async def test_a09_an_operator_maps_a_fingerprint_that_never_returns(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A09: by the catalog alone; and queues without an owner are for those who have a right to them."""
    old = b"f" * 32
    async with (
        queue_server(tmp_path, SMALL, certificates.context(), OPERATORS) as node,
        certificates.connect(str(node.address), "billing") as billing,
        certificates.connect(str(node.address), "captain") as captain,
    ):
        queue_id, ownerless = node.store.create(old).id, node.store.create(b"").id
        node.rights.world.source.map_owner(old.hex(), "billing")
        await node.rights.change()
        await billing.send(queue_id, b"1")
        message = await billing.queue(queue_id).get()
        assert message is not None
        assert await message.ack() == 0
        with pytest.raises(Denied):
            await billing.queue(ownerless).get()
        assert (await captain.queue(ownerless).info()).owner == "", "it is nobody's"
        await captain.queue(ownerless).delete()


async def test_a09_what_an_operator_mapped_is_not_claimed(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A09: the certificate may return, with a principal of its own; the operator said whose it is."""
    old = b"f" * 32
    async with (
        queue_server(tmp_path, SMALL, certificates.context()) as node,
        certificates.connect(str(node.address), "billing") as billing,
        certificates.connect(str(node.address), "shipping") as shipping,
    ):
        queue_id = node.store.create(old).id
        node.rights.world.source.map_owner(old.hex(), "billing")
        await node.rights.change()
        assert not node.broker.claim(old, "shipping")
        await refused(shipping.queue(queue_id).get())
        assert await billing.queue(queue_id).get() is None
        assert not node.broker.claim(old, "billing"), "the operator may say otherwise tomorrow"
        node.rights.world.source.map_owner(old.hex(), "shipping")
        await node.rights.change()
        await refused(billing.queue(queue_id).get())
        assert await shipping.queue(queue_id).get() is None


async def test_a09_what_was_claimed_is_an_operators_to_map_also_behind_a_restart(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A09: the certificate came first, and its name was wrong; the operator says whose its queues are."""
    old = b"f" * 32
    context = certificates.context()
    for life in range(2):
        async with (
            queue_server(tmp_path, SMALL, context) as node,
            certificates.connect(str(node.address), "billing") as billing,
            certificates.connect(str(node.address), "shipping") as shipping,
        ):
            if life == 0:
                queue_id = node.store.create(old).id
                await billing.create_queue()
                assert node.broker.claim(old, "billing")
            assert not node.broker.claim(old, "shipping"), "the first one has it"
            assert (await billing.queue(queue_id).info()).owner == "billing"
            await refused(shipping.queue(queue_id).get())
            node.rights.world.source.map_owner(old.hex(), "shipping")
            await node.rights.change()
            await refused(billing.queue(queue_id).get())
            assert await shipping.queue(queue_id).get() is None
            assert (await shipping.queue(queue_id).info()).owner == "shipping"
            assert not node.broker.claim(old, "billing")
            await node.broker.checkpoints.checkpoint_anew()


async def test_a09_a_principal_that_is_called_like_a_fingerprint_owns_nothing_by_that(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A09: a common name can be any 64 hex digits; the map of owners alone says whose a fingerprint is."""
    old = b"f" * 32
    async with queue_server(tmp_path, SMALL, certificates.context()) as node:
        queue_id, address = node.store.create(old).id, str(node.address)
        async with certificates.connect(address, "billing"):
            node.rights.principals = dict.fromkeys(node.fingerprints, old.hex())
        async with certificates.connect(address, "billing") as pretender:
            await pretender.send(queue_id, b"not for its sender")
            await refused(pretender.queue(queue_id).get())
            await refused(take(pretender.queue(queue_id).read()))
            await refused(pretender.queue(queue_id).delete())
            own = await pretender.create_queue()
            assert await own.get() is None
            node.rights.world.source.map_owner(old.hex(), "shipping")
            await node.rights.change()
            await refused(pretender.queue(queue_id).get())
            assert (await own.info()).owner == old.hex()
        async with certificates.connect(address, "shipping") as shipping:
            assert (await take(shipping.queue(queue_id).read())).body == b"not for its sender"


async def test_a24_a_right_that_is_taken_away_ends_a_subscription(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A24: with the code DENIED; the owner's goes on, and so does the connection."""
    async with (
        queue_server(tmp_path, SMALL, certificates.context()) as node,
        certificates.connect(str(node.address), "billing") as owner,
        certificates.connect(str(node.address), "shipping") as stranger,
    ):
        queue, kept = await owner.create_queues(2)
        await node.rights.change(Row(path_of(queue.id), "shipping", grants=SUBSCRIBE))
        reading, owners = stranger.queue(queue.id).read(), kept.read()
        waiting = [asyncio.ensure_future(anext(one)) for one in (reading, owners)]
        async with asyncio.timeout(15):
            while len(node.broker.subscriptions) < 2:
                await asyncio.sleep(0)
            await node.rights.change(Row(path_of(queue.id), "shipping", denies=SUBSCRIBE))
            with pytest.raises(SubscriptionEnded, match="DENIED"):
                await waiting[0]
            await stranger.send(queue.id, b"not for its sender")
            await stranger.send(kept.id, b"1")
            assert (await waiting[1]).body == b"1"
        assert (await queue.info()).waiting == 1
        assert not (await queue.info()).is_subscribed


async def test_a24_a_call_that_waited_for_a_repair_is_judged_again(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A24: what was granted when it came is not when the queue is mended; the owner's goes on."""
    async with (
        queue_server(tmp_path, SMALL, certificates.context()) as node,
        certificates.connect(str(node.address), "billing") as owner,
        certificates.connect(str(node.address), "shipping") as stranger,
    ):
        queue = await owner.create_queue()
        path, seen = path_of(queue.id), stranger.queue(queue.id)
        await node.rights.change(Row(path, "shipping", grants=SUBSCRIBE | ADMINISTER))
        await owner.send(queue.id, b"1")
        node.store.mending.add(queue.id)
        denied = [
            asyncio.ensure_future(call)
            for call in (seen.get(), seen.delete(), stranger.send(queue.id, b"2"))
        ]
        granted = asyncio.ensure_future(queue.get())
        await until(lambda: len(node.broker.parking) == 4)
        everything = SUBSCRIBE | ADMINISTER | WRITE
        await node.rights.change(Row(path, "shipping", denies=everything))
        node.store.mending.remove(queue.id)
        node.broker.parking.release(queue.id)
        async with asyncio.timeout(15):
            for one in denied:
                await refused(one)
            assert (await granted) is not None
        acts = [(act, code) for act, _, code in node.rights.refusals]
        assert acts == [("Get", "DENIED"), ("DeleteQueue", "DENIED"), ("Send", "DENIED")]
        assert (await queue.info()).waiting == 1


async def test_others_have_their_turn_while_all_subscriptions_are_judged(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is a slice here: between the first that ends and the last the loop turns."""
    monkeypatch.setattr(slices, "SLICE_MS", 0)
    async with (
        queue_server(tmp_path, SMALL, certificates.context()) as node,
        certificates.connect(str(node.address), "billing") as owner,
        certificates.connect(str(node.address), "shipping") as reader,
    ):
        await node.rights.change(Row("/queues", "shipping", grants=SUBSCRIBE))
        queues = await owner.create_queues(20)
        readings = [asyncio.ensure_future(anext(reader.queue(one.id).read())) for one in queues]
        await until(lambda: len(node.broker.subscriptions) == 20)
        await node.rights.change(Row("/queues", "shipping", denies=SUBSCRIBE))
        seen: set[int] = set()
        while len(node.broker.subscriptions):
            seen.add(len(node.broker.subscriptions))
            await asyncio.sleep(0)
        assert len(seen) == 20
        ended = await asyncio.gather(*readings, return_exceptions=True)
        assert {str(one) for one in ended} == {str(ended[0])}
        assert "DENIED" in str(ended[0])
