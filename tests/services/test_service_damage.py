"""Rows, hashes and digests that were changed behind everybody's back, on either side of a service.

Each state of the table "What can be wrong" in docs/design/services.md: entering never says that all is well,
nothing that either side still knows is lost, and afterwards the messages come.
"""

import sqlite3

import pytest
from tests.services.service_server import ServiceServer, associated, make_queues, take, within

from moorline.client.service_exchange import Report
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.errors import FolderUnusable

pytestmark = pytest.mark.process

STRANGER = b"s" * 24
"""An id that no queue has."""


async def entered(node: ServiceServer, queues: list[bytes]) -> Report:
    """Enters, and proves that a message of every one of the queues comes."""
    async with node.connect() as moor, moor.service(node.list_of(), window=4) as service:
        await moor.send_all([(queue, b"ahoy") for queue in queues])
        taken = await take(aiter(service), len(queues))
        assert {one.queue for one in taken} == set(queues)
        assert await node.associated() == set(queues)
        assert service.report.digest == Digest.of(queues) == await node.digest()
        with node.listed() as listed:
            assert listed.digest() == listed.recomputed() == Digest.of(queues)
            assert not listed.checked().is_doubtful
        return service.report


# --- the node's rows ------------------------------------------------------------------------------


async def change_id(node: ServiceServer, old: bytes, new: bytes) -> None:
    await node.catalog.execute("update association set queue = $2 where queue = $1", old, new)


async def test_an_id_that_was_changed_under_its_hash(node: ServiceServer) -> None:
    """What is kept, and every digest over stored hashes, is equal: only the ids know."""
    queues = await associated(node, 300)
    await change_id(node, queues[7], STRANGER)
    assert await node.digest() == Digest.of(queues)
    report = await entered(node, queues)
    assert (report.associated, report.dissociated, report.lost) == (1, 1, [])
    assert node.services.counts.put_right == 1


async def test_associating_again_what_was_changed_ends_in_agreement(node: ServiceServer) -> None:
    """Both rows have the hash of the one queue: no sketch and no range can tell them apart."""
    queues = await associated(node, 50)
    await change_id(node, queues[0], STRANGER)
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        await change_id(node, queues[1], b"t" * 24)
        assert await service.associate(queues[:2]) == []
        assert (await within(service.agree())).digest == Digest.of(queues)
    await entered(node, queues)


@pytest.mark.parametrize("width", [1, 23, 100])
async def test_an_id_that_can_be_none(node: ServiceServer, width: int) -> None:
    queues = await associated(node, 30)
    await change_id(node, queues[7], b"x" * width)
    report = await entered(node, queues)
    assert (report.associated, report.dissociated) == (1, 1)


@pytest.mark.parametrize("column", ["hash_high", "hash_low"])
async def test_a_hash_that_was_changed_under_its_id(node: ServiceServer, column: str) -> None:
    queues = await associated(node, 60)
    await node.catalog.execute(f"update association set {column} = {column} # 77 where true")
    report = await entered(node, queues)
    assert (report.associated, report.dissociated) == (0, 0), "the rows were right all along"


async def test_two_rows_that_have_swapped_their_ids(node: ServiceServer) -> None:
    """The digest over all ids is right, and those of the buckets; the rows are not."""
    queues = await associated(node, 40)
    await change_id(node, queues[0], STRANGER)
    await change_id(node, queues[1], queues[0])
    await change_id(node, STRANGER, queues[1])
    report = await entered(node, queues)
    assert (report.associated, report.dissociated) == (0, 0)


@pytest.mark.parametrize(
    "statement",
    [
        "update service_bucket set count = count + 1",
        "update service_bucket set count = -count",
        "update service_bucket set hash_high = hash_high # 5",
        "update service_bucket set bucket = bucket + 300",
        "delete from service_bucket",
        "insert into service_bucket select service, 999, 3, 4, 5 from service_bucket limit 1",
    ],
)
async def test_a_kept_digest_that_was_falsified(node: ServiceServer, statement: str) -> None:
    queues = await associated(node, 80)
    await node.catalog.execute(statement)
    report = await entered(node, queues)
    assert (report.associated, report.dissociated, report.lost) == (0, 0, [])


async def test_rows_that_were_put_in_or_given_away(node: ServiceServer) -> None:
    """An association that nobody asked for, and one that is another service's suddenly."""
    queues = await associated(node, 20)
    async with node.connect("other") as moor, moor.service(node.list_of("other")) as service:
        await service.associate(await make_queues(moor, 2))
    ours, theirs = await node.number(), await node.number("other")
    await node.catalog.execute(
        "update association set service = $1 where queue = $2", theirs, queues[3]
    )
    high, low = hash_ids([STRANGER]).view("int64")[0].tolist()
    await node.catalog.execute(
        "insert into association values ($1, $2, $3, $4)", STRANGER, ours, high, low
    )
    report = await entered(node, queues)
    assert (report.associated, report.dissociated) == (1, 1)
    await node.services._rows.put_all_right(theirs)


async def test_queues_that_are_gone_and_associated_still_are_named(node: ServiceServer) -> None:
    """Their files were lost, say, and the catalog was not: equal digests say nothing about that."""
    queues = await associated(node, 50)
    gone = queues[:3]
    for queue in gone:
        found = node.store.find(queue)
        assert found is not None
        node.store.delete(found)
    assert node.store.lacking(queues) == 3
    assert await node.digest() == Digest.of(queues)
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert set(service.report.lost) == set(gone)
        assert service.report.digest == Digest.of(queues[3:]) == await node.digest()
    assert sorted(set_aside(node)) == sorted((queue, "NOT_FOUND") for queue in gone)
    await entered(node, queues[3:])


async def test_what_waits_comes_although_a_row_can_be_no_id(node: ServiceServer) -> None:
    """The deliveries pass over it."""
    queues = await associated(node, 20)
    async with node.connect("other") as sender:
        await sender.send(queues[1], b"waited")
    await change_id(node, queues[0], b"odd")
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        await within(service.all_delivered.wait())
        assert (await take(aiter(service), 1))[0].body == b"waited"
    await entered(node, queues)


async def test_pages_of_queues_pass_a_row_with_a_wrong_hash(node: ServiceServer) -> None:
    """The next page begins behind where the row stands, and not where its id belongs."""
    queues = await associated(node, 30)
    number = await node.number()
    await node.catalog.execute("update association set hash_high = ~hash_high where true")
    found, after = list[bytes](), b""
    while page := await node.services._rows.page(number, after, 4):
        found, after = found + page, page[-1]
        assert len(found) <= len(queues)
    assert sorted(found) == sorted(queues)
    await entered(node, queues)


# --- the client's own list ------------------------------------------------------------------------


def change(node: ServiceServer, statement: str, *values: object) -> None:
    database = sqlite3.connect(node.list_of(), isolation_level=None)
    database.execute(statement, values)
    database.close()


def set_aside(node: ServiceServer) -> list[tuple[bytes, str]]:
    database = sqlite3.connect(node.list_of())
    rows = database.execute("select queue, why from set_aside order by time_s, why").fetchall()
    database.close()
    return rows


@pytest.mark.parametrize(
    "statement", ["update digest set count = count + 5, high = high + 1", "drop table digest"]
)
async def test_a_falsified_digest_of_the_list_is_mended(
    node: ServiceServer, statement: str
) -> None:
    queues = await associated(node, 60)
    change(node, statement)
    report = await entered(node, queues)
    assert (report.mended, report.restored, report.associated, report.dissociated) == (1, 0, 0, 0)
    report = await entered(node, queues)
    assert report.mended == 0


@pytest.mark.parametrize("count", [1, 59, 60])
async def test_rows_that_the_list_has_lost_come_back_from_the_node(
    node: ServiceServer, count: int
) -> None:
    """The list is what counts, but not one that fails its check: it takes nothing away."""
    queues = await associated(node, 60)
    change(
        node,
        "delete from association where queue in (select queue from association limit ?)",
        count,
    )
    report = await entered(node, queues)
    assert (report.mended, report.restored, report.dissociated) == (1, count, 0)


async def test_an_id_of_the_list_that_was_changed_under_its_hash(node: ServiceServer) -> None:
    queues = await associated(node, 60)
    change(node, "update association set queue = ? where queue = ?", STRANGER, queues[3])
    report = await entered(node, queues)
    assert (report.mended, report.restored, report.dissociated) == (2, 1, 0)
    assert report.lost == [STRANGER], "it was tried, and the node has no such queue"
    assert set_aside(node) == [(STRANGER, "DAMAGED"), (STRANGER, "NOT_FOUND")]


async def test_an_id_of_the_list_that_can_be_none(node: ServiceServer) -> None:
    queues = await associated(node, 10)
    change(node, "update association set queue = x'0102' where queue = ?", queues[3])
    report = await entered(node, queues)
    assert (report.restored, report.lost) == (1, [])
    assert set_aside(node) == [(b"\x01\x02", "DAMAGED")]


async def test_a_hash_of_the_list_that_was_changed_under_its_id(node: ServiceServer) -> None:
    queues = await associated(node, 60)
    change(node, "update association set low = low + 1 where queue = ?", queues[3])
    report = await entered(node, queues)
    assert (report.mended, report.restored, report.dissociated, report.lost) == (1, 0, 0, [])


async def test_a_list_stays_in_doubt_until_it_agreed(node: ServiceServer) -> None:
    """Whoever dies between the mending and the agreement takes nothing away afterwards."""
    queues = await associated(node, 30)
    change(node, "delete from association where queue = ?", queues[0])
    with node.listed() as listed:
        listed.mend()
        check = listed.checked()
        assert (check.is_doubtful, check.is_digest_right, check.wrong_hashes) == (True, True, 0)
    report = await entered(node, queues)
    assert (report.mended, report.restored, report.dissociated) == (0, 1, 0)


async def test_both_sides_are_damaged_at_once(node: ServiceServer) -> None:
    queues = await associated(node, 90)
    await change_id(node, queues[0], STRANGER)
    await node.catalog.execute("delete from association where queue = $1", queues[1])
    change(node, "delete from association where queue = ?", queues[2])
    change(node, "update association set queue = ? where queue = ?", b"t" * 24, queues[3])
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        # What the node has is taken over, an id included that is no queue's, until the node refuses it.
        assert await node.associated() == set(queues)
        assert set(service.report.lost) == {STRANGER, b"t" * 24}
    await entered(node, queues)


@pytest.mark.parametrize(
    "statement", ["update association set high = 'x'", "update association set queue = 7"]
)
async def test_a_list_with_rows_that_are_none_is_refused_by_name(
    node: ServiceServer, statement: str
) -> None:
    queues = await associated(node, 1)
    change(node, statement)
    async with node.connect() as moor:
        with pytest.raises(FolderUnusable, match=r"service\.sqlite"):
            async with moor.service(node.list_of()):
                pass
    assert await node.associated() == set(queues)
