"""The two sides of a service have drifted apart: each drift is found, named and repaired."""

import random

import pytest
from tests.services.interception import Sniffer
from tests.services.service_server import ServiceServer, associated, make_queues, take, within

from moorline.client.moor import Moor
from moorline.core.sets.asker import Mode
from moorline.core.sets.digest import Digest
from moorline.core.sets.estimate import ESTIMATE_BYTES
from moorline.core.sets.hashing import hash_ids
from moorline.core.sets.prefix import Prefix
from moorline.wire.service import (
    Associate,
    Associated,
    Dissociate,
    Dissociated,
    OpenService,
    ServiceOpened,
    ServiceSubscribed,
    SubscribeService,
)

pytestmark = pytest.mark.process


# --- D13: the service is gone ---------------------------------------------------------------------


async def delete_service(node: ServiceServer) -> None:
    await node.catalog.execute("delete from moorline.service where name = 'service'")


async def test_d13_the_service_is_gone_on_the_server(node: ServiceServer, sniffer: Sniffer) -> None:
    """D13: it is made anew, with another salt, and everything is associated again."""
    queues = await associated(node, 700)
    before = await node.number()
    await delete_service(node)
    async with node.connect("other") as sender, node.connect() as moor:
        await sender.send(queues[0], b"waits")
        async with moor.service(node.list_of()) as service:
            report = service.report
            assert (report.associated, report.dissociated, report.lost) == (700, 0, [])
            assert report.digest == Digest.of(queues) == await node.digest()
            assert await node.number() != before
            (message,) = await take(aiter(service), 1)
            assert message.body == b"waits"
    assert sniffer.of(ServiceSubscribed)[-1].mode == Mode.EMPTY.value


async def test_d13_the_service_is_gone_under_a_session_that_is_open(node: ServiceServer) -> None:
    """D13: the next agreement on the same connection makes it anew."""
    queues = await associated(node, 20)
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        await delete_service(node)
        report = await service.agree()
        assert report.digest == Digest.of(queues) == await node.digest()
        await moor.send(queues[0], b"1")
        assert (await take(aiter(service), 1))[0].body == b"1"


# --- D16, D18, D19: associations are gone ---------------------------------------------------------


@pytest.mark.parametrize(
    ("lost_by_node", "lost_by_client", "kind"),
    [(0, 7, "more"), (7, 0, "fewer"), (5, 5, "other"), (3, 8, "more"), (8, 3, "fewer")],
)
async def test_d16_each_drift_is_reported_as_what_it_is(
    node: ServiceServer, lost_by_node: int, lost_by_client: int, kind: str
) -> None:
    """D16: more, fewer, or equally many but other ids; in the node's figures and the client's report."""
    queues = await associated(node, 300)
    await node.lose(queues[:lost_by_node])
    with node.listed() as listed:
        listed.remove(queues[len(queues) - lost_by_client :])
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert service.report.associated == lost_by_node
        assert service.report.dissociated == lost_by_client
        assert service.report.lost == []
        wanted = set(queues[: len(queues) - lost_by_client])
        assert await node.associated() == wanted
        assert service.report.digest == Digest.of(wanted)
        # Once; or twice, if the first sketch did not decode and a larger one was asked for.
        drifts = dict(node.services.counts.drifts)
        found = drifts.pop(kind)
        assert found in (1, 2)
        assert set(drifts.values()) == {0}
        await service.agree()
        assert sum(node.services.counts.drifts.values()) == found, "no drift is left"


@pytest.mark.parametrize("lost", [1, 2, 40, 900])
async def test_d18_restored_from_a_backup_with_associations_gone(
    node: ServiceServer, lost: int
) -> None:
    """D18: k of them, and their part of the digest with them; all come back, with their messages."""
    queues = await associated(node, 1_000)
    gone = random.Random(lost).sample(queues, lost)
    await node.lose(gone)
    async with node.connect("other") as sender, node.connect() as moor:
        await sender.send(gone[0], b"nobody's for a while")
        async with moor.service(node.list_of()) as service:
            assert service.report.associated == lost
            assert service.report.digest == Digest.of(queues) == await node.digest()
            assert (await take(aiter(service), 1))[0].queue == gone[0]


async def test_d18_rows_that_vanish_under_their_digest_are_found_by_entering(
    node: ServiceServer,
) -> None:
    """D18, D25: a bare DELETE leaves the buckets as they were; a SOKS tells what is there all the same."""
    queues = await associated(node, 200)
    await node.catalog.execute("delete from association where queue = any ($1)", queues[:9])
    assert await node.digest() == Digest.of(queues), "what is kept says nothing"
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert service.report.associated == 9
        assert service.report.digest == Digest.of(queues) == await node.digest()
        assert await node.associated() == set(queues)
        assert node.services.counts.put_right == 1


@pytest.mark.parametrize("count", [1, 1_300])
async def test_d19_all_associations_are_gone(node: ServiceServer, count: int) -> None:
    """D19: a downgrade and an upgrade; the service's row stays, its queues and digest do not."""
    queues = await associated(node, count)
    number = await node.number()
    await node.catalog.execute("truncate moorline.association, moorline.service_bucket")
    async with node.connect("other") as sender, node.connect() as moor:
        await sender.send(queues[-1], b"waits")
        async with moor.service(node.list_of()) as service:
            report = service.report
            assert (report.associated, report.digest) == (count, Digest.of(queues))
            assert await node.number() == number
            assert await node.digest() == Digest.of(queues)
            assert (await take(aiter(service), 1))[0].queue == queues[-1]


async def test_d19_a_client_that_lost_its_list_frees_the_queues(node: ServiceServer) -> None:
    """D19, the other way: its list is what counts; an empty one means nothing is its own."""
    queues = await associated(node, 1_300)
    async with node.connect() as moor, moor.service(node.folder / "new.sqlite") as service:
        assert service.report.dissociated == 1_300
        assert await node.digest() == Digest.empty()
        assert await service.associate(queues) == []
    await node.check_digests()


# --- D31: nothing but the difference --------------------------------------------------------------


async def test_d31_the_repair_is_sub_for_what_is_missing_and_bus_for_what_is_extra(
    node: ServiceServer, sniffer: Sniffer
) -> None:
    """D31: exactly those, nothing else; afterwards the digests are equal, proven by the last answer."""
    queues = await associated(node, 500)
    missing, extra = queues[:6], queues[-4:]
    await node.lose(missing)
    with node.listed() as listed:
        listed.remove(extra)
    sniffer.sent.clear()
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        asked = [queue for message in sniffer.of(Associate) for queue in message.queues]
        assert sorted(asked) == sorted(missing)
        freed = [Prefix(*pair) for message in sniffer.of(Dissociate) for pair in message.prefixes]
        highs = hash_ids(extra)[:, 0].tolist()
        assert sorted(prefix.first >> 16 for prefix in freed) == sorted(
            high >> 16 for high in highs
        )
        wanted = Digest.of(queues[:-4])
        last = sniffer.of(Associated, Dissociated)[-1]
        assert Digest(last.count, last.hash) == wanted == await node.digest()
        assert service.report.digest == wanted
        assert service._list.associations.digest() == wanted


async def test_d31_a_stale_sketch_is_not_taken_for_the_catalogs(node: ServiceServer) -> None:
    """D31: the node keeps a sketch; rows change elsewhere; then one changes here. Both must be seen."""
    queues = await associated(node, 400)
    await node.lose(queues[:1])
    with node.listed() as listed:
        # One that the client freed, and that another node frees too.
        listed.remove(queues[1:2])
    async with node.connect() as moor:
        (fresh,) = await make_queues(moor, 1)
        service = moor.service(node.list_of())
        await moor._caller.call(OpenService, ServiceOpened)
        await keep_a_sketch(node, moor)
        await node.lose(queues[1:3])
        # Through this node: it stamps the sketch that it keeps with the catalog's digest.
        service._list.associations.add([fresh])
        await moor._caller.call(lambda call: Associate(call, [fresh]), Associated)
        wanted = {fresh, queues[0], *queues[2:]}
        try:
            assert (await within(service.agree())).digest == Digest.of(wanted)
            assert await node.associated() == wanted
        finally:
            await service.__aexit__(None, None, None)


async def keep_a_sketch(node: ServiceServer, moor: Moor) -> None:
    """The node scans for a sketch of the service, as it does for any drift, and keeps it."""
    digest, zeros = Digest(1, bytes(16)), bytes(ESTIMATE_BYTES)
    await moor._caller.call(
        lambda call: SubscribeService(call, digest.count, digest.hash, zeros), ServiceSubscribed
    )
    assert node.services.sketches.scans == 1
