"""Groups in a real Postgres: who leads, who is fenced, and how far each reader is."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.catalog.one_connection import OneConnection
from tests.catalog.processes import WAIT_S_MAX
from tests.waiting import until

from moorline.catalog import Catalog
from moorline.catalog.groups import CursorRow, Groups
from moorline.catalog.operations import Taking, Ticket, Tickets
from moorline.core.topic import Mode, SharedName

pytestmark = pytest.mark.process

BILLING = SharedName(Mode.SHARED, "billing", "orders/#")
LONG_MS = 60_000
SHORT_MS = 50
TABLES = ("shared_group", "session", "subscription", "reader", "progress")


@pytest.fixture
async def catalog(dsn: str) -> AsyncIterator[Catalog]:
    async with Catalog.open(dsn) as catalog:
        yield catalog


@pytest.fixture
async def groups(catalog: Catalog) -> Groups:
    return Groups(catalog)


async def declared(groups: Groups, name: SharedName = BILLING) -> int:
    """The reader of a group."""
    row, _ = await groups.declare(name, deliveries_max=5, start_us=7)
    return row.reader


async def claimed(groups: Groups, reader: int, node: str = "alpha") -> int:
    """The epoch of a claim that is granted."""
    claim = await groups.claim(reader, node, LONG_MS)
    assert claim is not None
    return claim.epoch


async def removed(groups: Groups, reader: int, epoch: int = 0) -> Taking:
    """What became of an operator's call to delete a group."""
    operations = Tickets(groups._catalog)
    number = await operations.open(
        reader, "DeleteGroup", asked_by="me", asked_at="alpha", within_ms=LONG_MS
    )
    return await operations.delete(Ticket(number, reader, epoch))


def cursor(offset: int, *, node: str = "alpha", shard: int = 0) -> CursorRow:
    """A place whose bytes say which commit they came with."""
    return CursorRow(node, shard, offset, b"acked %d" % offset, b"failures %d" % offset)


# --- groups ---------------------------------------------------------------------------------------


async def test_group_is_declared_once_and_stays_as_it_is(groups: Groups) -> None:
    assert await groups.find(BILLING) is None
    first, is_created = await groups.declare(BILLING, deliveries_max=5, start_us=7)
    assert is_created
    assert (first.name, first.deliveries_max, first.start_us) == (BILLING, 5, 7)
    assert (first.epoch, first.leader, first.lease_left_ms) == (0, "", 0)
    assert first.created_us > 0
    assert await groups.declare(BILLING, deliveries_max=9, start_us=9) == (first, False)
    assert await groups.find(BILLING) == first


async def test_groups_differ_by_mode_name_and_filter(groups: Groups) -> None:
    names = [
        SharedName(Mode.SHARED, "audit", "orders/#"),
        BILLING,
        SharedName(Mode.QUEUE, "billing", "orders/+"),
        SharedName(Mode.SHARED, "billing", "orders/+"),
    ]
    readers = [await declared(groups, name) for name in names]
    assert len(set(readers)) == len(names)
    assert {row.name: row.reader for row in await groups.list()} == dict(
        zip(names, readers, strict=True)
    )


async def test_concurrent_declarations_make_one(catalog: Catalog, groups: Groups) -> None:
    made = await asyncio.gather(
        *(groups.declare(BILLING, deliveries_max=number, start_us=0) for number in range(1, 21))
    )
    assert sum(is_created for _, is_created in made) == 1
    assert len({row for row, _ in made}) == 1
    assert await catalog.fetchval("select count(*) from reader") == 1


async def test_declarations_and_removals_at_once(catalog: Catalog, groups: Groups) -> None:
    """However they fall, a declaration has a group and a group has one reader."""

    async def declare_and_remove() -> None:
        for _ in range(20):
            await removed(groups, await declared(groups))

    await asyncio.gather(*(declare_and_remove() for _ in range(6)))
    assert [await catalog.fetchval(f"select count(*) from {table}") for table in TABLES] == [0] * 5


async def test_removed_group_leaves_nothing(catalog: Catalog, groups: Groups) -> None:
    reader = await declared(groups)
    epoch = await claimed(groups, reader)
    assert await groups.commit(reader, epoch, [cursor(1), cursor(1, shard=1)])
    assert await removed(groups, reader, epoch) is Taking.TAKEN
    assert [await catalog.fetchval(f"select count(*) from {table}") for table in TABLES] == [0] * 5
    assert await removed(groups, reader, epoch) is Taking.FENCED
    assert not await groups.commit(reader, epoch, [cursor(2)])
    assert not await groups.renew(reader, epoch, LONG_MS)
    assert await groups.claim(reader, "alpha", LONG_MS) is None
    # Made again it is another reader, and its epochs are above all that were.
    again = await declared(groups)
    assert again != reader
    assert await groups.cursors(again) == []
    assert await claimed(groups, again) > epoch


# --- leaders --------------------------------------------------------------------------------------


async def test_one_node_leads(groups: Groups) -> None:
    reader = await declared(groups)
    assert await groups.leader(reader) is None
    epoch = await claimed(groups, reader, "alpha")
    assert await groups.claim(reader, "beta", LONG_MS) is None
    assert await groups.leader(reader) == ("alpha", epoch)
    row = await groups.find(BILLING)
    assert row is not None
    assert (row.leader, row.epoch) == ("alpha", epoch)
    assert 0 < row.lease_left_ms <= LONG_MS


async def test_of_many_that_claim_at_once_one_wins(groups: Groups) -> None:
    reader = await declared(groups)
    for _ in range(5):
        claims = await asyncio.gather(
            *(groups.claim(reader, f"node {number}", LONG_MS) for number in range(20))
        )
        won = [(number, claim) for number, claim in enumerate(claims) if claim is not None]
        ((number, claim),) = won
        assert await groups.leader(reader) == (f"node {number}", claim.epoch)
        await groups.resign(reader, claim.epoch)


async def test_many_that_claim_when_a_lease_ends(groups: Groups) -> None:
    reader = await declared(groups)
    assert await groups.claim(reader, "lost", SHORT_MS)
    won: list[int] = []

    async def claim_until_won(node: str) -> None:
        while not won:
            claim = await groups.claim(reader, node, LONG_MS)
            if claim is not None:
                won.append(claim.epoch)

    async with asyncio.timeout(WAIT_S_MAX):
        await asyncio.gather(*(claim_until_won(f"node {number}") for number in range(6)))
    assert len(won) == 1


async def test_same_node_claims_again_with_a_higher_epoch(groups: Groups) -> None:
    reader = await declared(groups)
    lost = await claimed(groups, reader, "alpha")
    epoch = await claimed(groups, reader, "alpha")
    assert epoch > lost
    assert not await groups.commit(reader, lost, [cursor(1)])
    assert not await groups.renew(reader, lost, LONG_MS)
    assert await groups.commit(reader, epoch, [cursor(2)])


async def test_lease_that_is_over_can_be_claimed(groups: Groups) -> None:
    reader = await declared(groups)
    first = await groups.claim(reader, "alpha", SHORT_MS)
    assert first is not None

    async def is_over() -> bool:
        return await groups.leader(reader) is None

    await until(is_over)
    row = await groups.find(BILLING)
    assert row is not None
    assert (row.leader, row.lease_left_ms, row.epoch) == ("", 0, first.epoch)
    # Nobody has claimed it yet: the epoch is still the first one's.
    assert await groups.commit(reader, first.epoch, [cursor(1)])
    second = await claimed(groups, reader, "beta")
    assert second > first.epoch
    assert not await groups.renew(reader, first.epoch, LONG_MS)
    assert not await groups.commit(reader, first.epoch, [cursor(2)])
    await groups.resign(reader, first.epoch)
    assert await groups.leader(reader) == ("beta", second)
    assert await groups.cursors(reader) == [cursor(1)]


async def test_lease_that_is_over_is_renewed_while_nobody_claims(groups: Groups) -> None:
    reader = await declared(groups)
    claim = await groups.claim(reader, "alpha", 0)
    assert claim is not None
    assert await groups.leader(reader) is None
    assert await groups.renew(reader, claim.epoch, LONG_MS)
    assert await groups.claim(reader, "beta", LONG_MS) is None


async def test_resigned_group_is_free_at_once(groups: Groups) -> None:
    reader = await declared(groups)
    first = await claimed(groups, reader, "alpha")
    await groups.resign(reader, first)
    assert await groups.leader(reader) is None
    assert not await groups.renew(reader, first, LONG_MS)
    # What was on its way when it resigned is still stored, until somebody claims.
    assert await groups.commit(reader, first, [cursor(1)])
    await claimed(groups, reader, "beta")
    assert not await groups.commit(reader, first, [cursor(2)])


async def test_renewing_many_at_once(groups: Groups) -> None:
    names = [SharedName(Mode.QUEUE, f"group {number}", "#") for number in range(10)]
    readers = [await declared(groups, name) for name in names]
    held = []
    for reader in readers:
        claim = await groups.claim(reader, "alpha", 0)
        assert claim is not None
        held.append((reader, claim.epoch))
    await claimed(groups, readers[3], "beta")
    await groups.resign(*held[4])
    assert await groups.renew_all([*held, (999_999, 1)], LONG_MS) == {
        *readers[:3],
        *readers[5:],
    }
    for reader in readers[5:]:
        assert await groups.claim(reader, "beta", LONG_MS) is None
    assert await groups.renew_all([], LONG_MS) == set()


# --- places ---------------------------------------------------------------------------------------


async def test_places_are_kept_by_node_and_shard(groups: Groups) -> None:
    reader = await declared(groups)
    epoch = await claimed(groups, reader)
    assert await groups.cursors(reader) == []
    given = [
        cursor(5, node="beta"),
        cursor(4, shard=1),
        CursorRow("alpha", 0, 1 << 62, b"", b"\0\xff"),
    ]
    assert await groups.commit(reader, epoch, given)
    assert await groups.cursors(reader) == given[::-1]
    assert await groups.commit(reader, epoch, [])
    assert not await groups.commit(reader, epoch + 1, [])


async def test_commit_never_goes_back(groups: Groups) -> None:
    reader = await declared(groups)
    epoch = await claimed(groups, reader)
    assert await groups.commit(reader, epoch, [cursor(10), cursor(10, shard=1)])
    # The first shard would go back and stays whole; the second goes on.
    assert await groups.commit(reader, epoch, [cursor(9), cursor(11, shard=1)])
    assert await groups.cursors(reader) == [cursor(10), cursor(11, shard=1)]
    # At the same offset what is done above it grows.
    more = CursorRow("alpha", 0, 10, b"more", b"")
    assert await groups.commit(reader, epoch, [more])
    assert await groups.cursors(reader) == [more, cursor(11, shard=1)]


async def test_one_that_is_fenced_does_not_spoil_the_others(groups: Groups) -> None:
    names = [SharedName(Mode.SHARED, f"group {number}", "#") for number in range(3)]
    readers = [await declared(groups, name) for name in names]
    epochs = [await claimed(groups, reader) for reader in readers]
    newer = await claimed(groups, readers[1])
    commits = [
        (reader, epoch, [cursor(8), cursor(9, shard=1)])
        for reader, epoch in zip(readers, epochs, strict=True)
    ]
    assert await groups.commit_all([*commits, (999_999, 1, [cursor(1)])]) == {readers[1], 999_999}
    stored = [cursor(8), cursor(9, shard=1)]
    assert [await groups.cursors(reader) for reader in readers] == [stored, [], stored]
    assert await groups.commit_all([(readers[1], newer, [cursor(1)])]) == set()
    assert await groups.commit_all([]) == set()


async def test_commits_of_many_readers_in_any_order_do_not_wait_in_a_circle(
    catalog: Catalog, groups: Groups
) -> None:
    names = [SharedName(Mode.SHARED, f"group {number}", "#") for number in range(8)]
    held = []
    for name in names:
        reader = await declared(groups, name)
        held.append((reader, await claimed(groups, reader)))

    async def commit_often(turn: int) -> None:
        shards = range(4) if turn % 2 else range(3, -1, -1)
        for offset in range(1, 21):
            order = held[turn:] + held[:turn]
            commits = [
                (reader, epoch, [cursor(offset, shard=shard) for shard in shards])
                for reader, epoch in (order if turn % 2 else order[::-1])
            ]
            assert await groups.commit_all(commits) == set()

    async def renew_often() -> None:
        for _ in range(20):
            assert len(await groups.renew_all(held[::-1], LONG_MS)) == len(held)

    await asyncio.gather(*(commit_often(turn) for turn in range(6)), renew_often(), renew_often())
    for reader, _ in held:
        assert await groups.cursors(reader) == [cursor(20, shard=shard) for shard in range(4)]
    assert await catalog.fetchval("select count(*) from progress") == 32


async def test_claim_that_waits_for_a_commit_sees_it(dsn: str, groups: Groups) -> None:
    """The commit is first: the claim waits for it, and then finds its places."""
    reader = await declared(groups)
    epoch = await claimed(groups, reader)
    async with Catalog.open(dsn) as other, other._pool.acquire() as connection:
        committing = Groups(OneConnection(dsn, connection))
        async with connection.transaction():
            assert await committing.commit(reader, epoch, [cursor(5)])
            claim = asyncio.create_task(groups.claim(reader, "alpha", LONG_MS))
            await until(lambda: is_waiting(connection))
            assert not claim.done()
        assert await claim is not None
    assert await groups.cursors(reader) == [cursor(5)]


async def test_commit_that_waits_for_a_claim_is_fenced(dsn: str, groups: Groups) -> None:
    """The claim is first: the commit began before it ended, and still changes nothing."""
    reader = await declared(groups)
    epoch = await claimed(groups, reader)
    async with Catalog.open(dsn) as other, other._pool.acquire() as connection:
        claiming = Groups(OneConnection(dsn, connection))
        async with connection.transaction():
            newer = await claimed(claiming, reader)
            commit = asyncio.create_task(groups.commit(reader, epoch, [cursor(5)]))
            await until(lambda: is_waiting(connection))
            assert not commit.done()
        assert not await commit
    assert await groups.cursors(reader) == []
    assert await groups.commit(reader, newer, [cursor(6)])


async def is_waiting(connection: asyncpg.Connection) -> bool:
    """Whether a statement of this database waits for a lock. The view is read anew each time."""
    waiting = (
        "select exists (select from pg_locks l join pg_database d on d.datname = current_database()"
        " join pg_stat_activity a on a.pid = l.pid and a.datid = d.oid where not l.granted)"
    )
    await connection.execute("select pg_stat_clear_snapshot()")
    return bool(await connection.fetchval(waiting))


async def test_takeovers_amid_commits_lose_nothing(groups: Groups) -> None:
    """Whoever wins reads a place that no older epoch moves any more."""
    reader = await declared(groups)
    is_done = False

    async def lead(node: str) -> int:
        commits = 0
        while not is_done:
            claim = await groups.claim(reader, node, 0)
            if claim is None:  # a lease of no time is over at once: only the end has a longer one
                break
            found = await groups.cursors(reader)
            offset = found[0].offset if found else 0
            while await groups.commit(reader, claim.epoch, [cursor(offset + 1)]):
                # Nobody else has moved it since our claim, or else we would have been fenced.
                offset += 1
                commits += 1
        return commits

    leads = [asyncio.create_task(lead(node)) for node in ("alpha", "beta", "gamma")]
    await until(lambda: is_far(groups, reader))
    is_done = True
    # Ends whoever leads last.
    await claimed(groups, reader, "end")
    commits = await asyncio.gather(*leads)
    (final,) = await groups.cursors(reader)
    assert final.offset == sum(commits)


async def is_far(groups: Groups, reader: int) -> bool:
    found = await groups.cursors(reader)
    return bool(found) and found[0].offset >= 100
