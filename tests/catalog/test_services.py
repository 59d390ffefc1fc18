"""Services in a real Postgres: after every commit and rollback the digests are those of a recompute."""

import asyncio
import random
from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.catalog.one_connection import OneConnection
from tests.core.sets.test_hashing import joined, sets, vectors

from moorline.catalog import Catalog, service_check
from moorline.catalog.service_check import CheckedServices
from moorline.catalog.services import Part
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.prefix import Prefix
from moorline.core.sets.sketch import Words
from moorline.ids import NO_HOME

pytestmark = pytest.mark.process

BUCKETS = Prefix(0, 0).children(8)


@pytest.fixture
async def catalog(dsn: str) -> AsyncIterator[Catalog]:
    async with Catalog.open(dsn) as catalog:
        yield catalog


@pytest.fixture
async def services(catalog: Catalog) -> CheckedServices:
    return CheckedServices(catalog)


async def opened(services: CheckedServices, name: str) -> int:
    """The number of a service of that name."""
    return (await services.open(name, name.encode(), name.encode() * 3, bytes(16))).number


async def associate(
    services: CheckedServices, service: int, queues: list[bytes], home: bytes = NO_HOME
) -> Words:
    return await services.associate(Part(service, home), queues, hash_ids(queues))


def here(service: int) -> Part:
    """The part of a service that all of it is in, where nothing is said of homes."""
    return Part(service, NO_HOME)


def make(count: int, seed: int = 1) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(24) for _ in range(count)]


def in_memory(queues: list[bytes]) -> IdSet:
    hashes = hash_ids(queues)
    return IdSet(hashes[:, 0], hashes[:, 1])


async def check(services: CheckedServices, service: int, wanted: set[bytes]) -> None:
    """What is kept is what a recompute gives, as a whole and bucket by bucket, and what we meant."""
    kept = await services.digest(here(service))
    assert kept == await services.recomputed(here(service)) == Digest.of(wanted)
    assert await services.ranges(here(service), BUCKETS) == in_memory(sorted(wanted)).ranges(
        BUCKETS
    )


# --- digests --------------------------------------------------------------------------------------


async def test_d01_what_is_stored_holds_the_vectors(
    catalog: Catalog, services: CheckedServices
) -> None:
    """D01: the halves in the rows, and the digest that Postgres made of them."""
    number = await opened(services, "one")
    await associate(services, number, [vector.data for vector in vectors()])
    rows = await catalog.fetch("select queue, hash_high, hash_low from association")
    stored = {
        row["queue"]: b"".join(
            row[half].to_bytes(8, "big", signed=True) for half in ("hash_high", "hash_low")
        )
        for row in rows
    }
    assert stored == {vector.data: vector.hash for vector in vectors()}
    halves = {row["hash_high"] < 0 for row in rows} | {row["hash_low"] < 0 for row in rows}
    assert halves == {True, False}, "the vectors try both signs"


async def test_d01_digests_made_by_postgres_hold_the_vectors(services: CheckedServices) -> None:
    """D01: as kept in the buckets, and as recomputed over the rows."""
    for place, one in enumerate(sets()):
        number = await opened(services, f"service {place}")
        added = await associate(services, number, one.ids)
        assert len(added) == one.digest.count
        assert await services.digest(here(number)) == one.digest
        assert await services.recomputed(here(number)) == one.digest
        await services.dissociate(one.ids)
        assert await services.digest(here(number)) == Digest.empty()


async def test_d02_d07_repeating_an_association_changes_nothing(services: CheckedServices) -> None:
    """D02, D07: an id that is there is not put in again, also within one statement."""
    number = await opened(services, "one")
    queues = make(100)
    assert len(await associate(services, number, queues)) == 100
    for again in (queues, queues[:1] * 3, queues[50:]):
        assert not len(await associate(services, number, again))
        await check(services, number, set(queues))
    mixed = [*queues[:10], *make(5, seed=2), *make(5, seed=2)]
    assert len(await associate(services, number, mixed)) == 5
    await check(services, number, {*queues, *mixed})
    # The same for taking them away.
    gone = await services.dissociate([*mixed, *mixed])
    assert {key: len(highs) for key, highs in gone.items()} == {number: 15}
    assert await services.dissociate(mixed) == {}
    assert await services.dissociate([]) == {}
    await check(services, number, set(queues[10:]))


async def test_d03_after_every_commit_and_rollback_the_digests_are_right(dsn: str) -> None:
    """D03: associate, unassociate, move, block and delete by chance; some rolled back, some failing."""
    chance = random.Random(3)
    pool = make(60, seed=3)
    truth: dict[bytes, int] = {}
    done = {"committed": 0, "rolled back": 0, "failed": 0}
    async with Catalog.open(dsn) as catalog, catalog._pool.acquire() as connection:
        # The statements of `CheckedServices` join the transaction of this connection.
        services = CheckedServices(OneConnection(dsn, connection))
        numbers = [await opened(services, name) for name in ("one", "two", "three")]
        for _ in range(250):
            meant = dict(truth)
            transaction = connection.transaction()
            await transaction.start()
            for _ in range(chance.randint(1, 3)):
                await change(services, chance, numbers, pool, meant)
            end = chance.choice(["committed", "committed", "rolled back", "failed"])
            if end == "failed":
                some = make(3, seed=chance.randrange(10_000))
                with pytest.raises(asyncpg.NotNullViolationError):
                    await connection.execute(
                        "select moorline.associate($1, $2, $3, $3)", numbers[0], some, [1, 2, None]
                    )
            if end == "committed":
                await transaction.commit()
                truth = meant
            else:
                await transaction.rollback()
            done[end] += 1
            for number in numbers:
                await check(services, number, {one for one in truth if truth[one] == number})
    assert min(done.values()) > 20, done


async def change(
    services: CheckedServices,
    chance: random.Random,
    numbers: list[int],
    pool: list[bytes],
    meant: dict[bytes, int],
) -> None:
    """One change by chance, to the catalog and to what we mean."""
    chosen = chance.sample(pool, chance.randint(1, 12))
    if chance.random() < 0.6:
        # For those of another service this is a move.
        number = chance.choice(numbers)
        new = {one for one in chosen if meant.get(one) != number}
        added = await associate(services, number, chosen)
        assert set(added.tolist()) == set(hash_ids(sorted(new))[:, 0].tolist())
        meant |= dict.fromkeys(chosen, number)
    else:
        # A queue that is unassociated, blocked, softly or hardly deleted leaves its service alike.
        gone = await services.dissociate(chosen)
        left = {one: meant.pop(one) for one in chosen if one in meant}
        assert {number: len(highs) for number, highs in gone.items()} == {
            number: list(left.values()).count(number) for number in set(left.values())
        }


async def test_d03_changes_at_once_on_many_connections_keep_the_digests_right(
    services: CheckedServices,
) -> None:
    """D03: two services, eight writers, the same few queues: whoever comes last is obeyed."""
    one, two = await opened(services, "one"), await opened(services, "two")
    shared, other = make(300, seed=4), make(300, seed=5)

    async def write(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(12):
            mine, number = chance.choice([(shared, one), (other, two)])
            some = chance.sample(mine, 40)
            if chance.random() < 0.5:
                await associate(services, number, some)
            else:
                await services.dissociate(some)

    await asyncio.gather(*(write(seed) for seed in range(8)))
    for number in (one, two):
        assert await services.digest(here(number)) == await services.recomputed(here(number))
    assert (await services.digest(here(one))).count + (await services.digest(here(two))).count > 0


async def test_d03_moves_both_ways_at_once_do_not_wait_for_each_other(
    catalog: Catalog, services: CheckedServices
) -> None:
    """D03: one service takes the other's queues while that one takes the first one's."""
    one, two = await opened(services, "one"), await opened(services, "two")
    left, right = make(400, seed=6), make(400, seed=7)
    await associate(services, one, left)
    await associate(services, two, right)
    async with catalog._pool.acquire() as connection:
        # Both come to the last of their old buckets, and go on to the new ones together.
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("select from service_bucket where bucket = 255 for update")
        moves = [
            asyncio.create_task(associate(services, one, right)),
            asyncio.create_task(associate(services, two, left)),
        ]
        await waits_for_a_lock(catalog, 2)
        await transaction.rollback()
        await asyncio.gather(*moves)
    await check(services, one, set(right))
    await check(services, two, set(left))


async def test_d03_a_service_that_is_deleted_takes_all_of_its_own_along(
    catalog: Catalog, services: CheckedServices
) -> None:
    """D03, D13: rows and buckets; the service of the same certificate begins at nothing."""
    number, other = await opened(services, "one"), await opened(services, "other")
    queues = make(50)
    await associate(services, number, queues)
    await associate(services, other, make(20, seed=2))
    await catalog.execute("delete from moorline.service where number = $1", number)
    anew = await opened(services, "one")
    assert anew != number
    for gone in (number, anew):
        await check(services, gone, set())
    await check(services, other, set(make(20, seed=2)))
    assert await services.of_queues(queues) == {}
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await associate(services, number, queues)
    await check(services, number, set())


# --- recompute ------------------------------------------------------------------------------------


async def test_d25_recompute_puts_digests_right_also_where_nothing_is_left(
    catalog: Catalog, services: CheckedServices
) -> None:
    """D25: wrong counts, wrong hashes, missing buckets, and buckets of a service without queues."""
    full, empty = await opened(services, "full"), await opened(services, "empty")
    queues = make(200)
    await associate(services, full, queues)
    await catalog.execute(
        "insert into service_bucket values ($1, 7, 3, 1, 1), ($1, 9, -3, 5, 5)", empty
    )
    await catalog.execute(
        "update service_bucket set hash_low = hash_low # 1 where service = $1", full
    )
    first = await catalog.fetchval(
        "select min(bucket) from service_bucket where service = $1", full
    )
    await catalog.execute(
        "delete from service_bucket where service = $1 and bucket = $2", full, first
    )
    assert await services.digest(here(full)) != await services.recomputed(here(full))
    assert (await services.digest(here(empty))).hash != bytes(16)
    await services.recompute(empty)
    await check(services, empty, set())
    assert await services.digest(here(full)) != await services.recomputed(here(full)), (
        "only the one asked for"
    )
    await services.recompute(full)
    await check(services, full, set(queues))
    # And it goes on from there.
    await services.dissociate(queues)
    await associate(services, empty, queues[:3])
    await check(services, full, set())
    await check(services, empty, set(queues[:3]))


async def test_a_check_reads_in_slices_and_mends_in_batches(
    catalog: Catalog, services: CheckedServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However wrong the kept count is, and however many rows are wrong."""
    monkeypatch.setattr(service_check, "SERVICE_CHECK_QUEUES", 10)
    monkeypatch.setattr(service_check, "REHASH_BATCH", 30)
    monkeypatch.setattr(service_check, "WRONG_QUEUES_TOLD_MAX", 7)
    number, other = await opened(services, "one"), await opened(services, "other")
    queues = make(700)
    await associate(services, number, queues)
    await associate(services, other, make(50, seed=2))
    await catalog.execute("update service_bucket set count = 0 where service = $1", number)
    await catalog.execute(
        "update association set hash_high = hash_low, hash_low = hash_high where queue = any ($1)",
        queues[:100],
    )
    found = await services.checked(here(number))
    assert found.true == Digest.of(queues)
    assert (found.kept.count, found.wrong_hashes, len(found.told)) == (0, 100, 7)
    assert set(found.wrong_queues) <= set(queues[:100])
    assert sum(bucket.count for bucket in found.buckets) == 700
    assert await services.put_right(here(number)) == found
    assert (await services.checked(here(number))).is_right
    await check(services, number, set(queues))
    await check(services, other, set(make(50, seed=2)))


async def test_a_check_never_sees_half_of_a_change(services: CheckedServices) -> None:
    """Changes under way are no error: what is kept and what is there are of one moment."""
    number = await opened(services, "one")
    queues = make(400)
    turns, is_over = 0, False

    async def change() -> None:
        nonlocal turns
        while not is_over:
            await associate(services, number, queues[turns % 7 :: 2])
            await services.dissociate(queues[turns % 5 :: 3])
            turns += 1

    changing = asyncio.create_task(change())
    checks = 0
    # On a busy machine the changes may be slow to begin: some of the looks must fall among them.
    while checks < 20 or turns < 5:
        found = await services.checked(here(number))
        assert (found.wrong_buckets, found.wrong_hashes) == ([], 0)
        assert not changing.done()
        checks += 1
    is_over = True
    await changing


async def test_d25_a_recompute_waits_for_changes_under_way(dsn: str) -> None:
    """D25: it sees a change whole or not at all, never its rows without its buckets."""
    queues = make(30)
    async with Catalog.open(dsn) as catalog, catalog._pool.acquire() as connection:
        services, inside = CheckedServices(catalog), CheckedServices(OneConnection(dsn, connection))
        number = await opened(services, "one")
        transaction = connection.transaction()
        await transaction.start()
        await associate(inside, number, queues)
        recompute = asyncio.create_task(services.recompute(number))
        await waits_for_a_lock(catalog)
        assert not recompute.done()
        await transaction.commit()
        await recompute
        await check(services, number, set(queues))


async def waits_for_a_lock(catalog: Catalog, count: int = 1) -> None:
    """Returns when so many statements wait for others."""
    async with asyncio.timeout(10):
        while await catalog.fetchval("select count(*) from pg_locks where not granted") < count:
            await asyncio.sleep(0.005)


# --- what a reconciliation asks -------------------------------------------------------------------

PREFIXES = {
    "all": [Prefix(0, 0)],
    "halves, whose order Postgres' signs turn around": Prefix(0, 0).children(1),
    "buckets": BUCKETS,
    "some buckets": [Prefix(8, 255), Prefix(8, 0), Prefix(8, 127), Prefix(8, 128)],
    "below buckets": Prefix(8, 128).children(4) + Prefix(8, 127).children(4),
    "mixed": [Prefix(12, 0xFFF), Prefix(8, 3), Prefix(0, 0), Prefix(1, 1)],
    "none": [],
}


@pytest.mark.parametrize("name", PREFIXES)
async def test_ranges_lists_and_slices_are_those_of_the_same_set_in_memory(
    services: CheckedServices, name: str
) -> None:
    number, other = await opened(services, "one"), await opened(services, "other")
    queues, prefixes = make(2_000), PREFIXES[name]
    own = in_memory(queues)
    await associate(services, number, queues)
    await associate(services, other, make(100, seed=2))
    assert await services.ranges(here(number), prefixes) == own.ranges(prefixes)
    assert [sorted_words(told) for told in await services.lists(here(number), prefixes)] == [
        own.highs(prefix).tolist() for prefix in prefixes
    ]
    told = [word async for highs in services.highs(here(number)) for word in highs.tolist()]
    assert sorted(told) == own.high.tolist()


def sorted_words(told: bytes) -> list[int]:
    return sorted(
        int.from_bytes(told[start : start + 8], "big") for start in range(0, len(told), 8)
    )


async def test_prefixes_name_the_queues_that_they_hold_alone(services: CheckedServices) -> None:
    """A short one that holds several names none of them: better nothing than the wrong one."""
    number, other = await opened(services, "one"), await opened(services, "other")
    queues = make(300)
    await associate(services, number, queues)
    highs = hash_ids(queues)[:, 0].tolist()
    for bits in (64, 48):
        named = [Prefix(bits, high >> (64 - bits)) for high in highs]
        assert sorted(await services.queues_in(here(number), named)) == sorted(queues)
        assert await services.queues_in(here(other), named) == []
    assert await services.queues_in(here(number), [Prefix(1, 0), Prefix(1, 1)]) == []
    assert await services.queues_in(here(number), [Prefix(64, highs[0] ^ 1)]) == []
    assert await services.queues_in(here(number), []) == []


@pytest.mark.parametrize("size", [1, 7, 50, 1_000])
async def test_pages_hold_every_queue_once_and_survive_removals(
    services: CheckedServices, size: int
) -> None:
    number = await opened(services, "one")
    queues = make(50)
    await associate(services, number, queues)
    pages = [page async for page in services.pages(here(number), size)]
    assert all(0 < len(page) <= size for page in pages)
    assert [queue for page in pages for queue in page] == sorted(queues, key=signed_high)
    seen = []
    async for page in services.pages(here(number), size):
        seen += page
        await services.dissociate(page)
    assert sorted(seen) == sorted(queues)
    await check(services, number, set())


def signed_high(queue: bytes) -> int:
    return int.from_bytes(joined(hash_ids([queue]))[0][:8], "big", signed=True)


# --- the list of services -------------------------------------------------------------------------


OPEN_OF_THE_VERSION_BEFORE = (
    "insert into moorline.service (id, fingerprint, name, salt) values ($1, $2, $3, $4) "
    "on conflict (fingerprint) do update set name = excluded.name returning number"
)


async def test_nodes_of_the_version_before_go_on_while_nodes_are_replaced_one_by_one(
    services: CheckedServices,
) -> None:
    """They know services by fingerprints, and find those that newer nodes made or changed by them."""
    catalog = services._catalog

    async def opened_before(fingerprint: bytes, name: str, fresh: bytes) -> int:
        given = (fresh * 24, fingerprint, name, bytes(16))
        return int((await catalog.fetchrow(OPEN_OF_THE_VERSION_BEFORE, *given))["number"])

    old = await opened_before(b"o" * 32, "billing", b"1")
    new = (await services.open("shipping", b"n" * 32, b"2" * 24, bytes(16))).number
    assert await opened_before(b"n" * 32, "shipping", b"3") == new
    assert (await services.open("billing", b"o" * 32, b"4" * 24, bytes(16))).number == old
    # Without a certificate, and with one that is the other service's by now: both have their own.
    for principal, fingerprint in (("alice", b""), ("bob", b""), ("carol", b"n" * 32)):
        made = await services.open(principal, fingerprint, principal.encode() * 3, bytes(16))
        assert made.number not in (old, new)
    assert {row.name: row.fingerprint for row in await services.all()} == {
        "billing": b"o" * 32,
        "shipping": b"n" * 32,
        "alice": b"",
        "bob": b"",
        "carol": b"",
    }
    assert await opened_before(b"o" * 32, "billing", b"5") == old


async def test_a_service_keeps_its_id_and_salt_and_can_be_disabled(
    services: CheckedServices,
) -> None:
    first = await services.open("billing", b"print", b"i" * 24, b"s" * 16)
    again = await services.open("billing", b"renewed", b"j" * 24, b"t" * 16)
    assert (again.number, again.id, again.salt) == (first.number, b"i" * 24, b"s" * 16)
    assert (again.name, again.is_disabled) == ("billing", False)
    await services.disable(first.number, is_disabled=True)
    assert (await services.open("billing", b"print", b"", b"")).is_disabled
    assert not await services.any()
    await associate(services, first.number, make(3))
    assert await services.any()
    (row,) = await services.all()
    assert (row.name, row.fingerprint, row.is_disabled) == ("billing", b"print", True)
    assert row.digest == Digest.of(make(3))
    assert await services.of_queues(make(4)) == dict.fromkeys(make(3), first.number)
