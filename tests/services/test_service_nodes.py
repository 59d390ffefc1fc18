"""A service whose queues are at three nodes: every drift, at each home; with one of the nodes away, and
back."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.catalog.databases import new_database
from tests.queues.queue_server import Certificates
from tests.services.homed import Homed, away, every, homed, spread, whole
from tests.services.service_server import take
from tests.waiting import until

from moorline.catalog import EmbeddedPostgres
from moorline.catalog.services import Part
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.errors import ConnectionLost, HomeAway, ServiceTaken, SubscriptionEnded, WrongNode

pytestmark = pytest.mark.process

HOMES = ("a", "b", "c")


@pytest.fixture
async def nodes(
    tmp_path: Path, postgres: EmbeddedPostgres, certificates: Certificates
) -> AsyncIterator[Homed]:
    async with homed(await new_database(postgres), tmp_path, certificates, *HOMES) as made:
        yield made


async def associated(nodes: Homed, count: int, *homes: str) -> dict[str, list[bytes]]:
    """So many queues at each home, all of them the service's; its client has left."""
    queues = await spread(nodes, count, *homes)
    async with nodes.connect("a") as moor, moor.service(nodes.file) as service:
        assert await service.associate(every(queues)) == []
        await nodes.check(service, queues)
    return queues


async def deliver(nodes: Homed, queues: dict[str, list[bytes]]) -> None:
    """One message into one queue of each home that is there, sent at that home."""
    for home, some in queues.items():
        if home in nodes.nodes and some:
            async with nodes.connect(home) as moor:
                await moor.send(some[0], home.encode())


async def test_one_subscription_has_the_messages_of_all_homes(nodes: Homed) -> None:
    queues = await associated(nodes, 20, *HOMES)
    await deliver(nodes, queues)
    for entry in HOMES:
        async with nodes.connect(entry) as moor, moor.service(nodes.file) as service:
            assert service.report.associated == service.report.dissociated == 0
            assert set(service.report.parts) == set(HOMES)
            assert service.report.digest == Digest.of(every(queues))
            await nodes.check(service, queues)
            found = await take(aiter(service), 3)
            assert {message.body for message in found} == {b"a", b"b", b"c"}
            await asyncio.wait_for(service.all_delivered.wait(), 15)
            await deliver(nodes, queues)
            assert {one.body for one in await take(aiter(service), 3)} == {b"a", b"b", b"c"}
        await deliver(nodes, queues)


@pytest.mark.parametrize("gone", [1, 7, 20])
@pytest.mark.parametrize("home", HOMES)
async def test_d18_d19_what_a_home_lost_is_associated_there_again(
    nodes: Homed, home: str, gone: int
) -> None:
    queues = await associated(nodes, 20, *HOMES)
    await nodes.any.lose(queues[home][:gone])
    async with nodes.connect("a") as moor, moor.service(nodes.file) as service:
        assert (service.report.associated, service.report.dissociated) == (gone, 0)
        await nodes.check(service, queues)


async def test_d16_d26_d31_more_fewer_and_other_at_each_home(nodes: Homed) -> None:
    """At a queues were swapped, at b there are too many, at c too few."""
    queues = await associated(nodes, 30, *HOMES)
    more = await spread(nodes, 5, "a", "b")
    services = nodes["a"].services.services
    number = await nodes.any.number()
    for home in ("a", "b"):
        part = Part(number, nodes.numbers[home])
        await services.associate(part, more[home], hash_ids(more[home]))
    await nodes.any.lose(queues["a"][:5] + queues["c"][:5])
    async with nodes.connect("c") as moor, moor.service(nodes.file) as service:
        assert (service.report.associated, service.report.dissociated) == (10, 10)
        await nodes.check(service, queues)


async def test_d13_the_service_is_gone_at_all_homes(nodes: Homed) -> None:
    queues = await associated(nodes, 12, *HOMES)
    await nodes.any.catalog.execute("delete from moorline.service")
    async with nodes.connect("b") as moor, moor.service(nodes.file) as service:
        assert service.report.associated == 36
        await nodes.check(service, queues)


@pytest.mark.parametrize("home", HOMES)
async def test_d20_a_queue_that_its_operator_blocks_or_deletes_is_named(
    nodes: Homed, home: str
) -> None:
    queues = await associated(nodes, 10, *HOMES)
    blocked, deleted = queues[home][:2]
    async with nodes.connect(home, "operator") as moor:
        await moor.queue(blocked).block()
        await moor.queue(deleted).delete()
    async with nodes.connect("a") as moor, moor.service(nodes.file) as service:
        assert set(service.report.lost) == {blocked, deleted}
        queues[home] = queues[home][2:]
        await nodes.check(service, queues)


async def test_d25_a_wrong_kept_digest_is_put_right_at_its_home_alone(nodes: Homed) -> None:
    queues = await associated(nodes, 10, *HOMES)
    wrong = "update moorline.service_bucket set count = count + 1 where home = $1"
    await nodes.any.catalog.execute(wrong, nodes.numbers["b"])
    async with nodes.connect("a") as moor, moor.service(nodes.file) as service:
        await nodes.check(service, queues)
    assert [nodes[home].services.counts.put_right for home in HOMES] == [0, 1, 0]


async def test_a_home_that_is_away_leaves_its_part_and_is_proven_when_it_is_back(
    nodes: Homed,
) -> None:
    """Entered while c is away: named, untouched; a and b are healed; c is healed when it is back."""
    queues = await associated(nodes, 15, *HOMES)
    await nodes.any.lose(queues["a"][:2] + queues["c"][:3])
    kept = await nodes.part("c")
    await nodes.stop("c")
    async with nodes.connect("a") as moor, moor.service(nodes.file) as service:
        assert service.report.away == service.away == ["c"]
        assert set(service.report.parts) == {"a", "b"}
        assert service.report.associated == 2
        assert await nodes.part("c") == kept, "nobody else changes its part"
        await deliver(nodes, queues)
        assert {one.body for one in await take(aiter(service), 2)} == {b"a", b"b"}
        await nodes.start("c")
        await whole(service)
        assert (service.report.away, set(service.report.parts)) == ([], set(HOMES))
        await nodes.check(service, queues)
        await deliver(nodes, queues)
        assert {one.body for one in await take(aiter(service), 3)} == {b"a", b"b", b"c"}


@pytest.mark.parametrize("home", ["b", "c"])
async def test_a_node_that_goes_while_its_service_is_used_is_waited_for(
    nodes: Homed, home: str
) -> None:
    """What is asked for meanwhile is in the list, and done when the node is back; the others go on."""
    queues = await associated(nodes, 10, *HOMES)
    fresh = await spread(nodes, 4, *HOMES)
    async with nodes.connect("a") as moor, moor.service(nodes.file) as service:
        await nodes.stop(home)
        await away(service, home)
        before = await nodes.part(home)
        with pytest.raises(HomeAway, match=f"the node of the home '{home}' is away"):
            await service.associate(every(fresh))
        with pytest.raises(HomeAway):
            await service.dissociate([queues[home][0]])
        assert await nodes.part(home) == before
        for one in HOMES:
            queues[one] = queues[one] + fresh[one]
        left = queues[home].pop(0)
        others = {one: some for one, some in queues.items() if one != home}
        for one, some in others.items():
            assert await nodes.part(one) == Digest.of(some)
        await nodes.start(home)
        await whole(service)
        await nodes.check(service, queues)
        async with nodes.connect(home) as other:
            await other.send(left, b"nobody's")
            await other.send(queues[home][0], b"ours")
        assert [one.body for one in await take(aiter(service), 1)] == [b"ours"]


async def test_messages_that_were_not_acknowledged_when_a_node_went_come_again(
    nodes: Homed,
) -> None:
    queues = await associated(nodes, 3, *HOMES)
    async with nodes.connect("a") as moor, moor.service(nodes.file) as service:
        async with nodes.connect("b") as other:
            for number in range(5):
                await other.send(queues["b"][0], b"%d" % number)
        messages = aiter(service)
        first = await asyncio.wait_for(anext(messages), 15)
        assert first.body == b"0"
        await nodes.stop("b")
        await away(service, "b")
        with pytest.raises(ConnectionLost):
            await first.ack()
        await nodes.start("b")
        await whole(service)
        assert [one.body for one in await take(messages, 5)] == [b"0", b"1", b"2", b"3", b"4"]


async def test_two_clients_at_two_nodes_want_one_service(nodes: Homed) -> None:
    """The newest has it, at every node; the older one is told, and changes nothing any more."""
    queues = await associated(nodes, 8, *HOMES)
    fresh = await spread(nodes, 1, *HOMES)
    async with nodes.connect("a") as moor, moor.service(nodes.file) as older:
        assert older.report.away == []
        own = nodes.folder / "newer.sqlite"
        with nodes.listed() as listed:
            listed._db.execute("vacuum into ?", (str(own),))
        async with nodes.connect("b") as other, other.service(own) as newer:
            with pytest.raises(SubscriptionEnded, match="TAKEN_OVER"):
                await asyncio.wait_for(anext(aiter(older)), 15)
            for home in HOMES:
                with pytest.raises(ConnectionLost, match="took over"):
                    await older.associate(fresh[home])
                assert await nodes.part(home) == Digest.of(queues[home])
            await deliver(nodes, queues)
            assert {one.body for one in await take(aiter(newer), 3)} == {b"a", b"b", b"c"}
            assert newer.away == []


async def test_a_takeover_fences_the_older_client_also_where_the_newer_one_cannot_come(
    nodes: Homed,
) -> None:
    """The older one is at c, and the newer has not come there: the catalog refuses, and c finds out."""
    queues = await associated(nodes, 6, *HOMES)
    (fresh,) = (await spread(nodes, 1, "c"))["c"]
    async with nodes.connect("c") as moor, moor.service(nodes.file) as older:
        number = await nodes.any.number()
        taken = await nodes.any.services.services.take(number)
        part = Part(number, nodes.numbers["c"])
        with pytest.raises(ServiceTaken):
            await nodes["c"].services.services.associate(
                part, [fresh], hash_ids([fresh]), epoch=taken - 1
            )
        # Nobody tells it but the epoch of the catalog, at each of the nodes.
        with pytest.raises(SubscriptionEnded, match="TAKEN_OVER"):
            await asyncio.wait_for(anext(aiter(older)), 15)
        await until(
            lambda: not any(node.services.delivery.subscribed for node in nodes.nodes.values())
        )
        assert await nodes.part("c") == Digest.of(queues["c"])


async def test_a_queue_that_is_read_on_the_connection_is_associated_at_its_home(
    nodes: Homed,
) -> None:
    """SUB, DEL and BLOCK change both sides also where another node has the queue (0020)."""
    (queue, gone) = (await spread(nodes, 2, "c"))["c"]
    async with nodes.connect("a") as moor, moor.service(nodes.file) as service:
        await moor.send(queue, b"1")
        message = await asyncio.wait_for(anext(moor.queue(queue).read()), 15)
        assert message.body == b"1"
        await message.ack()
        await service.associate([gone])
        await moor.queue(gone).delete()
        report = await service.agree()
        assert (report.associated, report.dissociated, report.lost) == (0, 0, [])
        await nodes.check(service, {"c": [queue]})


async def test_a_list_of_another_cluster_is_refused_and_bind_takes_it_in(
    nodes: Homed, tmp_path: Path, postgres: EmbeddedPostgres, certificates: Certificates
) -> None:
    queues = await associated(nodes, 5, "a")
    dsn = await new_database(postgres)
    async with (
        homed(dsn, tmp_path / "other", certificates, "x") as other,
        other.connect("x") as moor,
    ):
        with pytest.raises(WrongNode, match="'a', which is no home of this cluster"):
            async with moor.service(nodes.file):
                pass
        with nodes.listed() as listed:
            assert listed.digest() == Digest.of(queues["a"])
        async with moor.service(nodes.file, bind=True) as service:
            assert set(service.report.lost) == set(queues["a"])


async def test_a_list_of_before_is_of_the_home_that_its_node_has(nodes: Homed) -> None:
    """It was bound to a node's id: that node's home is what its part is of, whichever node is entered."""
    queues = await associated(nodes, 9, "b")
    with nodes.listed() as listed:
        for statement in (
            "drop table digest",
            "create table digest (one integer primary key check (one = 1), count integer not null,"
            " high integer not null, low integer not null)",
            "alter table association drop column home",
            "drop table home",
            "create table home (one integer primary key check (one = 1), node blob not null,"
            " name text not null)",
            "drop table doubt",
            "create table doubt (one integer primary key check (one = 1))",
        ):
            listed._db.execute(statement)
        digest = Digest.of(queues["b"])
        halves = (
            int.from_bytes(half, "big", signed=True) for half in (digest.hash[:8], digest.hash[8:])
        )
        listed._db.execute("insert into digest values (1, ?, ?, ?)", (digest.count, *halves))
        node_id = b"b".ljust(24, b"-")
        listed._db.execute("insert into home values (1, ?, 'b')", (node_id,))
    async with nodes.connect("a") as moor, moor.service(nodes.file) as service:
        assert (service.report.associated, service.report.mended) == (0, 0)
        await nodes.check(service, queues)
