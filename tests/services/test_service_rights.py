"""Who may do what with a service and its queues, and what an operator takes away."""

import asyncio
import contextlib
import random
from collections.abc import Callable

import pytest
from tests.access.world import STALE_MS
from tests.services.interception import Gate
from tests.services.service_server import (
    ServiceServer,
    associated,
    make_queues,
    subscribe,
    take,
    unsubscribe,
    within,
)
from tests.waiting import until

from moorline.client.moor import Moor
from moorline.core.access.right import ADMINISTER, LIST, PUBLISH, SUBSCRIBE
from moorline.core.access.row import Row
from moorline.core.sets.digest import Digest
from moorline.errors import CallFailed, Denied, NotAuthorized, RightsUnknown, ServiceDisabled
from moorline.net.session import Session
from moorline.queues.owners import path_of
from moorline.wire.message import Answer, Message
from moorline.wire.service import (
    AskLists,
    AskRanges,
    Associate,
    Associated,
    Dissociate,
    Dissociated,
    ListsTold,
    OpenService,
    RangesTold,
    ServiceOpened,
    ServiceSubscribed,
    SubscribeService,
)
from moorline.wire.service_operator import (
    DescribeService,
    ListServices,
    ServiceDescribed,
    ServicesListed,
    ServiceSwitched,
    SwitchService,
)

pytestmark = pytest.mark.process


# --- D06: the service's proof ---------------------------------------------------------------------


CALLS_OF_A_SERVICE: list[tuple[Callable[[int], Message], type[Answer]]] = [
    (lambda call: Associate(call, [b"q" * 24]), Associated),
    (lambda call: Dissociate(call, [(0, 0)]), Dissociated),
    (lambda call: SubscribeService(call, 0, bytes(16)), ServiceSubscribed),
    (lambda call: AskRanges(call, [(0, 0)]), RangesTold),
    (lambda call: AskLists(call, [(0, 0)]), ListsTold),
]


@pytest.mark.parametrize("who", ["", "other"])
async def test_d06_a_service_command_without_the_services_proof_is_refused(
    node: ServiceServer, who: str
) -> None:
    """D06: without a certificate, or before the session was opened for its service."""
    queues = await associated(node, 5)
    async with node.connect(who) as moor:
        for make, reply in CALLS_OF_A_SERVICE:
            with pytest.raises(NotAuthorized, match="acts for no service"):
                await moor._caller.call(make, reply)
        if not who:
            with pytest.raises(NotAuthorized, match="TLS client certificate"):
                await moor._caller.call(OpenService, ServiceOpened)
    assert await node.associated() == set(queues)


async def test_d06_a_service_sees_and_changes_only_its_own(node: ServiceServer) -> None:
    """D06: another service, well proven, gets nothing of the first one's."""
    queues = await associated(node, 5)
    async with node.connect("other") as moor, moor.service(node.list_of("other")) as service:
        assert await service.associate(queues) == queues
        await service.dissociate(queues)
        answer = await moor._caller.call(lambda call: Dissociate(call, [(0, 0)]), Dissociated)
        assert (answer.changed, answer.count) == (0, 0)
        lists = await moor._caller.call(lambda call: AskLists(call, [(0, 0)]), ListsTold)
        assert lists.highs == [b""]
        ranges = await moor._caller.call(lambda call: AskRanges(call, [(0, 0)]), RangesTold)
        assert ranges.ranges[0].count == 0
        with node.listed("other") as listed:
            assert listed.digest() == Digest.empty(), "what was refused is not kept"
    assert await node.associated() == set(queues)


@pytest.mark.parametrize("granted", [0, SUBSCRIBE])
async def test_d06_a_strangers_sub_is_refused_and_takes_no_association(
    node: ServiceServer, granted: int
) -> None:
    """D06: only the owner may take a queue from its service; who may read only may not do that."""
    queues = await associated(node, 3)
    await node.rights.change(Row("/queues", "other", grants=granted | LIST))
    async with node.connect("other") as stranger:
        with pytest.raises(Denied, match="the right a" if granted else "the right s"):
            await within(anext(stranger.queue(queues[0]).read()))
        with pytest.raises(Denied):
            await stranger.queue(queues[1]).delete()
        assert ("Subscribe", path_of(queues[0]), "DENIED") in node.rights.refusals
        assert await node.associated() == set(queues)
        await node.rights.change(Row("/queues", "other", grants=SUBSCRIBE | ADMINISTER))
        await subscribe(stranger, queues[0])
    assert await node.associated() == set(queues[1:])


async def test_a29_a_service_hears_nothing_of_the_queues_of_others(node: ServiceServer) -> None:
    """A29: one that is another's cannot be associated, and is refused as one that is not there."""
    queues = await associated(node, 1)
    async with node.connect("other") as moor, moor.service(node.list_of("other")):
        asked = [queues[0], b"n" * 24]
        answer = await moor._caller.call(lambda call: Associate(call, asked), Associated)
        assert {code for _, code in answer.refused} == {"NOT_FOUND"}
        assert [queue for queue, _ in answer.refused] == asked
    # The operators hear which was which.
    assert node.rights.refusals == [("Associate", path_of(queues[0]), "DENIED")]
    assert await node.associated() == set(queues)


# --- whose a service is ---------------------------------------------------------------------------


async def test_a02_a_renewed_certificate_has_the_service_of_the_old_one(
    node: ServiceServer,
) -> None:
    """A02: with its queues."""
    queues = await associated(node, 3)
    (fingerprint,) = node.rights.fingerprints
    async with node.connect("other"):
        await until(lambda: len(node.rights.fingerprints) == 2)
    (renewed,) = node.rights.fingerprints - {fingerprint}
    node.rights.principals[renewed] = "service"
    async with node.connect("other") as moor, moor.service(node.list_of()) as service:
        assert service.report.digest == Digest.of(queues)
        (facts,) = await node.services.services.all()
        assert (facts.principal, facts.fingerprint) == ("service", renewed)


@pytest.mark.parametrize("how", ["returned", "mapped"])
async def test_a09_a_service_of_a_fingerprint_is_its_principals(
    node: ServiceServer, how: str
) -> None:
    """A09: when its certificate comes again, or an operator said whose it is; nobody else gets it."""
    queues = await associated(node, 3)
    old = "fingerprint" if how == "returned" else "$1"
    sql = f"update moorline.service set principal = null, fingerprint = {old}"
    if how == "mapped":
        print_of_lost = b"f" * 32
        await node.catalog.execute(sql, print_of_lost)
        added = "insert into moorline.access_owner values ($1, 'service', 0)"
        await node.catalog.execute(added, print_of_lost.hex())
    else:
        await node.catalog.execute(sql)
    async with node.connect("other") as moor, moor.service(node.list_of("other")) as service:
        assert service.report.digest == Digest.empty()
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert service.report.digest == Digest.of(queues)
    assert {row.principal for row in await node.services.services.all()} == {"service", "other"}


async def test_a09_a_service_that_an_operator_mapped_is_not_its_certificates(
    node: ServiceServer,
) -> None:
    """A09: the certificate comes again, and finds a service of its own that is new."""
    queues = await associated(node, 3)
    await node.catalog.execute("update moorline.service set principal = null")
    (fingerprint,) = node.rights.fingerprints
    added = "insert into moorline.access_owner values ($1, 'other', 0)"
    await node.catalog.execute(added, fingerprint.hex())
    number = await node.number()
    opened = await node.services.services.open("service", fingerprint, b"i" * 24, b"s" * 16)
    assert opened.number != number
    theirs = await node.services.services.open("other", b"o" * 32, b"j" * 24, b"t" * 16)
    assert theirs.number == number
    assert await node.services.services.sum(theirs.number) == Digest.of(queues)


async def test_a24_a_service_that_may_not_be_one_any_more_ends(node: ServiceServer) -> None:
    """A24: with the code DENIED, and what waits stays; its connection goes on, and so may the service."""
    queues = await associated(node, 2)
    async with node.connect("other") as sender, node.connect() as moor:
        async with moor.service(node.list_of()) as service:
            await until(lambda: len(node.services.delivery.subscribed) == 1)
            waiting = asyncio.ensure_future(anext(aiter(service)))
            await node.rights.change(Row("/services", "service", denies=PUBLISH))
            with pytest.raises(Denied):
                await within(waiting)
            assert node.services.delivery.subscribed == {}
            assert node.rights.refusals == [("OpenService", "/services", "DENIED")]
            with pytest.raises(Denied):
                await service.associate(queues)
            with pytest.raises(NotAuthorized, match="acts for no service"):
                await moor._caller.call(lambda call: Associate(call, queues), Associated)
        await sender.send(queues[0], b"1")
        assert (await moor.queue(queues[0]).info()).waiting == 1, "it is a plain client again"
        await node.rights.change(Row("/services", "service", grants=PUBLISH))
        async with moor.service(node.list_of()) as service:
            assert [one.body for one in await take(aiter(service), 1)] == [b"1"]


async def test_a24_a_service_is_not_subscribed_by_a_right_that_it_lost_meanwhile(
    node: ServiceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A24: its call has waited for the catalog."""
    await associated(node, 1)
    async with node.connect() as moor:
        with monkeypatch.context() as patch:
            gate = Gate(patch, node.services.services, "checked", after=True)
            entering = asyncio.create_task(moor.service(node.list_of()).__aenter__())
            await gate.reached()
        await node.rights.change(Row("/services", "service", denies=PUBLISH))
        gate.is_open.set()
        with pytest.raises((Denied, NotAuthorized)):
            await within(entering)
        assert node.services.delivery.subscribed == {}


async def test_a27_services_are_not_listed_while_nobodys_rights_are_known(
    node: ServiceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A27: UNAVAILABLE, and the catalog is not asked: the call would wait at the gate for ever."""
    await associated(node, 1)
    async with node.connect() as moor:
        world = node.rights.world
        world.source.is_away = True
        world.now_ms += STALE_MS + 1
        world.table._judge_freshness()
        with monkeypatch.context() as patch:
            Gate(patch, node.services.services, "all")
            with pytest.raises(RightsUnknown):
                await within(
                    moor._caller.call(lambda call: ListServices(call, 0, 9), ServicesListed)
                )


async def test_a24_a_queue_that_is_anothers_now_is_not_delivered_to_the_service(
    node: ServiceServer,
) -> None:
    """A24: its owner was mapped to another principal; the service goes on with its other queues."""
    old = b"f" * 32
    node.rights.world.source.map_owner(old.hex(), "service")
    await node.rights.change()
    lost, unread = node.store.create(old).id, node.store.create(old).id
    async with node.connect("other") as other, node.connect() as moor:
        (kept,) = await make_queues(moor, 1)
        async with moor.service(node.list_of()) as service:
            assert await service.associate([lost, unread, kept]) == []
            await other.send(lost, b"1")
            assert [one.queue for one in await take(aiter(service), 1)] == [lost]
            node.rights.world.source.map_owner(old.hex(), "other")
            await node.rights.change()
            await until(lambda: ("Subscribe", path_of(lost), "DENIED") in node.rights.refusals)
            for queue in (lost, unread, kept):
                await other.send(queue, b"2")
            assert [one.queue for one in await take(aiter(service), 1)] == [kept]
        # Another agreement, which sends all that waits, brings them no nearer.
        async with moor.service(node.list_of()) as service:
            await within(service.all_delivered.wait())
            assert not service._deliveries
        for queue in (lost, unread):
            head = await other.queue(queue).get()
            assert head is not None
            assert head.body == b"2"


async def test_a20_what_is_asked_about_services_needs_its_right(node: ServiceServer) -> None:
    """A20: a stranger hears the same of one that is there and of one that is not."""
    await associated(node, 1)
    async with node.connect("other") as stranger, node.connect() as service:
        for name in ("service", "nobody"):
            with pytest.raises(Denied, match=f"the right l .* at /services/{name}"):
                await describe(stranger, name)
        with pytest.raises(Denied):
            await stranger._caller.call(lambda call: ListServices(call, 0, 9), ServicesListed)
        assert (await describe(service, "service")).facts.name == "service"
        with pytest.raises(Denied, match="the right a"):
            await switch(service, "service")
        await node.rights.change(Row("/services/service", "other", grants=LIST))
        assert (await describe(stranger, "service")).facts.name == "service"
        await node.rights.change(Row("/services/service", "other", grants=ADMINISTER))
        await switch(stranger, "service")


async def describe(moor: Moor, name: str) -> ServiceDescribed:
    return await moor._caller.call(lambda call: DescribeService(call, name), ServiceDescribed)


async def switch(moor: Moor, name: str) -> ServiceSwitched:
    return await moor._caller.call(
        lambda call: SwitchService(call, name, is_disabled=False), ServiceSwitched
    )


async def test_an_operators_act_on_a_service_is_written_down_before_it_is_done(
    node: ServiceServer,
) -> None:
    await associated(node, 1)
    number = await node.number()
    recorded: list[tuple[str, str, str, bool]] = []

    async def record(session: Session, act: str, path: str) -> None:
        (row,) = [row for row in await node.services.services.all() if row.number == number]
        recorded.append((session.rights.principal, act, path, row.is_disabled))

    node.services.audited = record
    (service,) = [row for row in await node.services.services.all() if row.number == number]
    path = f"/services/{service.name}"
    async with node.connect("operator") as operator:
        await operator._caller.call(
            lambda call: SwitchService(call, service.name, is_disabled=True), ServiceSwitched
        )
        await switch(operator, service.name)
    assert recorded == [
        ("operator", "SwitchService", path, False),
        ("operator", "SwitchService", path, True),
    ]
    recorded.clear()
    async with node.connect("shipping") as stranger:
        with pytest.raises(Denied):
            await switch(stranger, service.name)
    assert recorded == []
    assert ("SwitchService", path, "DENIED") in node.rights.refusals


async def test_d06_a_disabled_service_is_refused(node: ServiceServer) -> None:
    """D06: until the operator enables it again; its associations stay."""
    queues = await associated(node, 3)
    services, number = node.services.services, await node.number()
    await services.disable(number, is_disabled=True)
    async with node.connect() as moor:
        with pytest.raises(ServiceDisabled, match="the operator can enable it"):
            async with moor.service(node.list_of()):
                pass
    await services.disable(number, is_disabled=False)
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert service.report.digest == Digest.of(queues)


# --- D20: the operator blocks and deletes ---------------------------------------------------------


@pytest.mark.parametrize("how", ["block", "delete"])
@pytest.mark.parametrize("when", ["subscribed", "away"])
async def test_d20_a_queue_that_the_operator_takes_away(
    node: ServiceServer, how: str, when: str
) -> None:
    """D20: both sides converge, the service learns which were lost, and nothing else is skipped."""
    queues = await associated(node, 50)
    taken, left = queues[:3], queues[3:]

    async def act() -> None:
        async with node.connect("operator") as operator:
            for queue in taken:
                await (
                    operator.queue(queue).block if how == "block" else operator.queue(queue).delete
                )()

    if when == "away":
        await act()
    async with node.connect("other") as sender, node.connect() as moor:
        for queue in left:
            await sender.send(queue, b"1")
        async with moor.service(node.list_of()) as service:
            report = service.report
            if when == "subscribed":
                await act()
                assert await node.digest() == Digest.of(left)
                report = await service.agree()
            assert sorted(report.lost) == sorted(taken)
            assert report.digest == Digest.of(left) == await node.digest()
            assert {one.queue for one in await take(aiter(service), 47)} == set(left)
            assert (await service.agree()).lost == [], "told once"
            if how == "block":
                async with node.connect("operator") as operator:
                    await operator.queue(taken[0]).block(blocked=False)
                assert await service.associate(taken) == taken[1:]
                await sender.send(taken[0], b"free again")
                assert (await take(aiter(service), 1))[0].queue == taken[0]


@pytest.mark.parametrize("how", ["block", "delete"])
@pytest.mark.parametrize("first", ["operator", "service"])
async def test_d20_a_queue_blocked_just_as_it_is_associated_is_not_associated(
    node: ServiceServer, monkeypatch: pytest.MonkeyPatch, how: str, first: str
) -> None:
    """D20: each of the two has done its first half when the other one comes and does all of its own."""
    (queue,) = await associated(node, 1)
    async with (
        node.connect("operator") as operator,
        node.connect() as moor,
        moor.service(node.list_of()) as service,
    ):

        async def take_away() -> None:
            target = operator.queue(queue)
            await (target.block() if how == "block" else target.delete())

        async def associate() -> None:
            await service.associate([queue])

        halved, whole = (take_away, associate) if first == "operator" else (associate, take_away)
        with monkeypatch.context() as patch:
            kept = node.services.services
            if first == "operator":
                gate = Gate(patch, kept, "dissociate", after=True)
            else:
                gate = Gate(patch, kept, "associate")
            halving = asyncio.create_task(halved())
            await gate.reached()
        following = asyncio.create_task(whole())
        # All of it, or as far as it comes: it may have to wait for its turn.
        turns = node.services.turns._locks.values()
        await until(lambda: following.done() or any(turn._waiters for turn in turns))
        gate.is_open.set()
        await within(asyncio.gather(halving, following))
        # Nobody means a queue that cannot be served.
        assert (await service.agree()).digest == Digest.empty() == await node.digest()


async def test_d20_a_claim_between_the_halves_lets_no_association_in(
    node: ServiceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D20: the owner of the queue has another name now, and the turns of its queues are the same."""
    old = b"f" * 32
    node.rights.world.source.map_owner(old.hex(), "service")
    await node.rights.change()
    queue = node.store.create(old).id
    async with (
        node.connect("operator") as operator,
        node.connect() as moor,
        moor.service(node.list_of()) as service,
    ):
        assert await service.associate([queue]) == []
        with monkeypatch.context() as patch:
            gate = Gate(patch, node.services.services, "dissociate", after=True)
            deleting = asyncio.create_task(operator.queue(queue).delete())
            await gate.reached()
        assert node.store.rename_owner(old, b"principal:service")
        associating = asyncio.create_task(service.associate([queue]))
        turns = node.services.turns._locks.values()
        await until(lambda: associating.done() or any(turn._waiters for turn in turns))
        gate.is_open.set()
        await within(deleting)
        assert await within(associating) == [queue]
    assert await node.associated() == set()


@pytest.mark.parametrize("how", ["block", "delete"])
async def test_a24_a_right_that_is_taken_away_while_a_queue_leaves_its_service(
    node: ServiceServer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A24: the call has waited for the catalog, and does nothing to the queue any more."""
    (queue,) = await associated(node, 1)
    await node.rights.change(Row("/queues", "other", grants=ADMINISTER))
    async with node.connect("other") as other:
        target = other.queue(queue)
        with monkeypatch.context() as patch:
            gate = Gate(patch, node.services.services, "dissociate", after=True)
            changing = asyncio.create_task(target.block() if how == "block" else target.delete())
            await gate.reached()
        await node.rights.change(Row("/queues", "other", denies=ADMINISTER))
        gate.is_open.set()
        with pytest.raises(Denied):
            await within(changing)
    held = node.store.glance(queue)
    assert held is not None
    assert not held.blocked


async def test_a24_a_right_that_is_taken_away_while_a_read_waits_for_the_catalog(
    node: ServiceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A24: it is refused, and the audit hears of that too."""
    (queue,) = await associated(node, 1)
    await node.rights.change(Row("/queues", "other", grants=SUBSCRIBE | ADMINISTER))
    async with node.connect("other") as other:
        with monkeypatch.context() as patch:
            gate = Gate(patch, node.services.services, "dissociate", after=True)
            reading = asyncio.create_task(subscribe(other, queue))
            await gate.reached()
        await node.rights.change(Row("/queues", "other", denies=SUBSCRIBE | ADMINISTER))
        gate.is_open.set()
        with pytest.raises(Denied):
            await within(reading)
    assert node.rights.refusals == [("Subscribe", path_of(queue), "DENIED")]


# --- D03: by all of them together -----------------------------------------------------------------


async def test_d03_a_mix_of_commands_keeps_the_digests_right(node: ServiceServer) -> None:
    """D03: by those who may and those who may not; after each the kept digest is a recompute's."""
    chance = random.Random(20)
    async with (
        node.connect("operator") as operator,
        node.connect() as plain,
        node.connect() as moor,
        moor.service(node.list_of()) as service,
    ):
        queues = await make_queues(moor, 40)
        seen = dict.fromkeys(["associate", "dissociate", "block", "unblock", "delete", "plain"], 0)
        for _ in range(120):
            some = chance.sample(queues, chance.randint(1, 6))
            act = chance.choice([*list(seen)[:5], "associate", "plain"])
            seen[act] += 1
            with contextlib.suppress(CallFailed):
                if act == "associate":
                    await service.associate(some)
                elif act == "dissociate":
                    await service.dissociate(some)
                elif act == "plain":
                    await subscribe(plain, some[0])
                    await unsubscribe(plain, some[0])
                elif act == "delete" and chance.random() < 0.2:
                    await operator.queue(some[0]).delete()
                else:
                    await operator.queue(some[0]).block(blocked=act != "unblock")
            await node.check_digests()
        assert min(seen.values()) > 5, seen
        report = await service.agree()
        assert report.digest == await node.digest() == service._list.associations.recomputed()
        for queue in await node.associated():
            held = node.store.glance(queue)
            assert held is not None
            assert not held.blocked
