"""Lost replies, ended connections, restarts and changes in the middle of a repair: all is made good."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess
from tests.queues.queue_server import Certificates
from tests.services.interception import Gate, Sniffer
from tests.services.service_server import ServiceServer, associated, make_queues, take, within

from moorline.core.sets.asker import Mode
from moorline.core.sets.digest import Digest
from moorline.errors import ConnectionLost
from moorline.wire.message import Answer, Message
from moorline.wire.queue import Subscribe, Unsubscribe
from moorline.wire.service import (
    Associate,
    Associated,
    Dissociate,
    Dissociated,
    ListsTold,
    RangesTold,
    ServiceSubscribed,
    SubscribeService,
)

pytestmark = pytest.mark.process


# --- D07, D17: lost replies and requests ----------------------------------------------------------


async def test_d07_repeating_an_association_is_harmless(node: ServiceServer) -> None:
    """D07, D02: on both sides, at once and later, in one block and in several."""
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        queues = await make_queues(moor, 3)
        for again in (queues, queues[:1] * 5, queues):
            assert await service.associate(again) == []
            assert await node.digest() == Digest.of(queues)
        await asyncio.gather(*(service.associate(queues) for _ in range(5)))
        for _ in range(2):
            await service.dissociate(queues[:1])
        report = await service.agree()
        assert report.digest == Digest.of(queues[1:]) == await node.digest()
        assert (report.associated, report.dissociated) == (0, 0)


@pytest.mark.parametrize("lost", ["reply", "request"])
@pytest.mark.parametrize("change", ["associate", "dissociate"])
async def test_d17_a_lost_reply_or_request_is_made_good(
    node: ServiceServer, monkeypatch: pytest.MonkeyPatch, lost: str, change: str
) -> None:
    """D17: the connection ends between the node's commit and the client's hearing of it, or before."""
    old = await associated(node, 50)
    async with node.connect() as moor:
        new = await make_queues(moor, 20)
        async with moor.service(node.list_of()) as service:
            session = node.session_of(moor)
            if lost == "reply":
                monkeypatch.setattr(session, "answer", lambda _: session.abort())
            else:
                monkeypatch.setattr(session, "received", lambda _: session.abort())
            asked = change == "associate"
            with pytest.raises(ConnectionLost):
                await (service.associate(new) if asked else service.dissociate(old[:20]))
    wanted = {*old, *new} if change == "associate" else set(old[20:])
    assert (await node.associated() == wanted) is (lost == "reply")
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        report = service.report
        assert report.digest == Digest.of(wanted) == await node.digest()
        repaired = (report.associated, report.dissociated)
        if lost == "reply":
            assert repaired == (0, 0)
            assert (report.bytes_sent, report.bytes_received) == (24, 24)
        else:
            assert repaired == ((20, 0) if change == "associate" else (0, 20))


@pytest.mark.parametrize(
    "kind", [ServiceSubscribed, Associated, Dissociated, RangesTold, ListsTold]
)
async def test_d17_a_connection_lost_anywhere_in_a_repair_is_made_good(
    node: ServiceServer, monkeypatch: pytest.MonkeyPatch, kind: type[Answer]
) -> None:
    """D17: after each kind of answer of the exchange; the next connection finishes it."""
    queues = await associated(node, 400)
    await node.lose(queues[:30])
    with node.listed() as listed:
        listed.remove(queues[-30:])
    if kind in (RangesTold, ListsTold):
        monkeypatch.setattr(
            "moorline.core.sets.answerer.sketch_or_list", lambda *_: (Mode.EQUAL, 0)
        )
    async with node.connect() as moor:
        session = node.session_of(moor)
        answer = session.answer

        def cut(answers: list[Answer]) -> None:
            if any(isinstance(one, kind) for one in answers):
                session.abort()
            else:
                answer(answers)

        monkeypatch.setattr(session, "answer", cut)
        with pytest.raises(ConnectionLost):
            async with moor.service(node.list_of()):
                pass
    monkeypatch.undo()
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert service.report.digest == Digest.of(queues[:-30])
        assert await node.associated() == set(queues[:-30])


async def test_d17_a_repair_that_was_given_up_does_not_disturb_the_next_one(
    node: ServiceServer,
) -> None:
    """D17: cancelled while the pieces of a long answer were on their way; the link stays."""
    queues = await associated(node, 6_000)
    with node.listed() as listed:
        listed.remove(queues[:2_000])
    async with node.connect() as moor:
        service = moor.service(node.list_of())
        heard = moor._caller.received
        first = asyncio.create_task(service.agree())

        def stop_at_soks(messages: list[Message]) -> None:
            if any(isinstance(message, ServiceSubscribed) for message in messages):
                first.cancel()
            heard(messages)

        moor._caller.received = stop_at_soks  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await first
        moor._caller.received = heard  # type: ignore[method-assign]
        # Fewer differences now: the next sketch has another size.
        service._list.associations.add(queues[:700])
        report = await within(service.agree())
        assert report.digest == Digest.of([*queues[:700], *queues[2_000:]]) == await node.digest()
        await service.__aexit__(None, None, None)


# --- D30: changes during a repair, and their order ------------------------------------------------


async def test_d30_changes_wait_for_the_end_of_the_repair_and_are_not_lost(
    node: ServiceServer, sniffer: Sniffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D30: asked for while SUBS and the repair are under way; then done in the order of asking."""
    queues = await associated(node, 100)
    await node.lose(queues[:5])
    async with node.connect() as moor:
        new = await make_queues(moor, 7)
        with monkeypatch.context() as patch:
            gate = Gate(patch, node.services.services, "associate")
            service = moor.service(node.list_of())
            sniffer.sent.clear()
            repair = asyncio.create_task(service.agree())
            await gate.reached()
        changes = [
            asyncio.create_task(service.associate(new)),
            asyncio.create_task(service.dissociate(queues[-3:])),
            asyncio.create_task(service.dissociate(new[:1])),
        ]
        # Other commands of the connection pass, which shows that nobody only was too slow.
        await moor.queue(queues[0]).info()
        assert [len(message.queues) for message in sniffer.of(Associate)] == [5]
        assert not sniffer.of(Dissociate)
        assert service._list.associations.digest() == Digest.of(queues), (
            "nor are they in our list yet"
        )
        assert not any(change.done() for change in changes)
        gate.is_open.set()
        report = await within(repair)
        assert (report.digest, report.associated) == (Digest.of(queues), 5)
        await within(asyncio.gather(*changes))
        kinds = [type(one) for one in sniffer.of(SubscribeService, Associate, Dissociate)]
        assert kinds == [SubscribeService, Associate, Associate, Dissociate, Dissociate]
        wanted = {*queues[:-3], *new[1:]}
        assert await node.associated() == wanted
        assert (await service.agree()).digest == Digest.of(wanted)
        await service.__aexit__(None, None, None)


async def test_d30_a_change_on_the_server_during_the_repair_is_not_lost(
    node: ServiceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D30: the proof fails, the exchange begins again, and ends in agreement."""
    queues = await associated(node, 300)
    await node.lose(queues[:5])
    async with node.connect() as moor:
        with monkeypatch.context() as patch:
            gate = Gate(patch, node.services.services, "associate")
            service = moor.service(node.list_of())
            repair = asyncio.create_task(service.agree())
            await gate.reached()
        await node.lose(queues[5:9])
        gate.is_open.set()
        report = await within(repair)
        assert report.associated == 9
        assert report.digest == Digest.of(queues) == await node.digest()
        await service.__aexit__(None, None, None)


async def test_d30_commands_sent_together_are_handled_in_their_order(node: ServiceServer) -> None:
    """D30: SUB then UNSUB in one frame leaves nobody subscribed, as it does without services."""
    async with node.connect() as moor:
        (queue,) = await make_queues(moor, 1)
        await moor._caller.call_all(
            [lambda call: Subscribe(call, queue), lambda call: Unsubscribe(call, queue)]
        )
        assert not (await moor.queue(queue).info()).is_subscribed


# --- D09: restarts of a real node -----------------------------------------------------------------


def test_d09_associations_survive_two_restarts(tmp_path: Path, certificates: Certificates) -> None:
    """D09: once after a clean stop, once after kill -9; verified by 48 bytes each time."""
    flags = [
        "--listen=tls://127.0.0.1:0",
        f"--tls-certificate={certificates.path('server')}",
        f"--tls-key={certificates.path('server')}",
        f"--tls-client-ca={certificates.ca}",
    ]
    listed = tmp_path / "service.sqlite"
    queues: list[bytes] = []

    async def first(address: str) -> None:
        async with (
            certificates.connect(address, "service") as moor,
            moor.service(listed) as service,
        ):
            queues.extend(await make_queues(moor, 300))
            assert await service.associate(queues) == []

    async def again(address: str, body: bytes) -> None:
        async with certificates.connect(address, "other") as sender:
            await sender.send(queues[7], body)
        async with (
            certificates.connect(address, "service") as moor,
            moor.service(listed) as service,
        ):
            report = service.report
            assert report.digest == Digest.of(queues)
            assert (report.associated, report.dissociated) == (0, 0)
            assert (report.bytes_sent, report.bytes_received) == (24, 24)
            (message,) = await take(aiter(service), 1)
            assert (message.queue, message.body) == (queues[7], body)

    with NodeProcess(tmp_path / "data", *flags) as node:
        asyncio.run(first(tls_address(node)))
        assert node.stop() == 0
    with NodeProcess(tmp_path / "data", *flags) as node:
        asyncio.run(again(tls_address(node), b"after a stop"))
        node.kill()
    with NodeProcess(tmp_path / "data", *flags) as node:
        asyncio.run(again(tls_address(node), b"after a kill"))


def tls_address(node: NodeProcess) -> str:
    note = json.loads((node.data / "node.json").read_text())
    (address,) = [one for one in note["addresses"] if one.startswith("tls:")]
    return str(address)
