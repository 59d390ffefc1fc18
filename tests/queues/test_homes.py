"""Where a queue is that is not here, and how others learn of ids that do not say it; with a real catalog."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
from tests.access.granted import GivenRights
from tests.catalog.databases import new_database
from tests.catalog.nodes import pretend
from tests.journal.queues.stores import OPTIONS, now, opened
from tests.waiting import until

from moorline.catalog import Catalog, EmbeddedPostgres
from moorline.catalog.homes import LAST_ID, HomeRow, Homes
from moorline.core.access.right import NOTHING, SUBSCRIBE
from moorline.errors import CatalogUnreachable, Elsewhere, HomeAway, NotFound
from moorline.ids import ID_BYTES, drawn
from moorline.journal.disk import Disk
from moorline.journal.queues import checkpoint
from moorline.journal.queues.home_exceptions import HomeExceptions
from moorline.limits import HOMES_KEPT_MS
from moorline.queues.home_exceptions import ExceptionWriter
from moorline.queues.homes import NOT_HERE, QueueHomes
from moorline.testing import MemoryDisk

pytestmark = pytest.mark.process

SLICE = 7


class Finder(GivenRights):
    """Somebody who has no rows, or one that denies a path."""

    def __init__(self, denied_path: str = "") -> None:
        super().__init__("finder", NOTHING)
        self._denied_path = denied_path

    def denied(self, right: int, path: str) -> bool:
        return right == SUBSCRIBE and path == self._denied_path


class CountedHomes(Homes):
    """The real ones; says how often the catalog was asked, and can be cut off."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog)
        self.asked: list[str] = []
        self.slices_left = 1_000
        self.cuts = 0

    async def all(self) -> dict[bytes, HomeRow]:
        self.asked.append("homes")
        return await super().all()

    async def exceptions_of(self, queue_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        self.asked.append("exceptions")
        return await super().exceptions_of(queue_ids)

    async def write_exceptions(
        self,
        number: bytes,
        digest: bytes,
        *,
        behind: bytes,
        upto: bytes,
        queue_ids: Sequence[bytes],
        rows_max: int,
    ) -> bytes:
        if not self.slices_left:
            self.slices_left, self.cuts = 1_000, self.cuts + 1
            raise CatalogUnreachable("cut off")
        self.slices_left -= 1
        self.asked.append("write")
        return await super().write_exceptions(
            number,
            digest,
            behind=behind,
            upto=upto,
            queue_ids=queue_ids,
            rows_max=rows_max,
        )


class HandClock:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
async def catalog(postgres: EmbeddedPostgres) -> AsyncIterator[Catalog]:
    async with Catalog.open(await new_database(postgres)) as catalog:
        yield catalog


async def number_of(catalog: Catalog, name: str) -> bytes:
    """Of a node that is there from now on."""
    await pretend(catalog, name)
    return next(number for number, row in (await Homes(catalog).all()).items() if row.name == name)


def queue_of(number: bytes, seed: int = 0) -> bytes:
    return drawn(random.Random(seed).randbytes, number)


def old_store(disk: Disk, count: int) -> list[bytes]:
    """Queues of before: their ids end by chance, here with the number of no home."""
    store = opened(disk)
    ids = [store.create(b"owner").id for _ in range(count)]
    checkpoint.run(store, now)
    store.close()
    return sorted(ids)


def exceptions_in(disk: Disk, number: bytes) -> HomeExceptions:
    store = opened(disk, msgspec.structs.replace(OPTIONS, home=number))
    try:
        return HomeExceptions(store)
    finally:
        store.close()


async def written(catalog: Catalog, disk: Disk, number: bytes) -> CountedHomes:
    homes = CountedHomes(catalog)
    writer = ExceptionWriter(homes, number, exceptions_in(disk, number), SLICE)
    await writer.write_until_done()
    return homes


async def stored(catalog: Catalog) -> dict[bytes, bytes]:
    rows = await catalog.fetch("select queue, home from moorline.home_exception")
    return {row["queue"]: row["home"] for row in rows}


# --- which home -----------------------------------------------------------------------------------


async def test_an_id_says_its_home_and_the_catalog_is_asked_once(catalog: Catalog) -> None:
    a, b = await number_of(catalog, "a"), await number_of(catalog, "b")
    homes, clock = CountedHomes(catalog), HandClock()
    known = QueueHomes(homes, a, clock)
    for seed in range(5):
        found = await known.home_of([queue_of(b, seed), queue_of(b, seed + 100)])
        assert {(row.name, row.node) for row in found.values()} == {("b", "b")}
        assert len(found) == 2
    assert homes.asked == ["homes"]
    clock.ms = HOMES_KEPT_MS
    await known.home_of([queue_of(b)])
    assert homes.asked == ["homes", "homes"]


async def test_an_id_of_no_home_has_none_and_a_new_home_is_found_at_once(catalog: Catalog) -> None:
    a = await number_of(catalog, "a")
    known = QueueHomes(Homes(catalog), a, HandClock())
    nobodys = queue_of(b"\1\2\3\4")
    assert await known.home_of([nobodys]) == {}
    late = queue_of(await number_of(catalog, "late"))
    found = await known.home_of([nobodys, late])
    assert {queue_id: row.name for queue_id, row in found.items()} == {late: "late"}


async def test_exceptions_say_more_than_ids_and_are_asked_together(catalog: Catalog) -> None:
    """Also for an id that ends with the number of another home, by chance or because it was imported."""
    a, b, c = [await number_of(catalog, name) for name in "abc"]
    by_chance, old, plain = queue_of(b, 1), queue_of(b"\1\2\3\4", 2), queue_of(b, 3)
    homes = CountedHomes(catalog)
    known = QueueHomes(homes, a, HandClock())
    await known.home_of([plain])
    await homes.write_exceptions(
        c, b"d", behind=b"", upto=LAST_ID, queue_ids=sorted([by_chance, old]), rows_max=SLICE
    )
    homes.asked.clear()
    found = await known.home_of([by_chance, old, plain])
    names = {queue_id: row.name for queue_id, row in found.items()}
    assert names == {by_chance: "c", old: "c", plain: "b"}
    assert homes.asked == ["homes", "exceptions"]


async def test_a_queue_that_left_our_own_home_is_found_at_once(catalog: Catalog) -> None:
    """Its id says that it is ours, and it is not here: what was known before it left does not count."""
    a, b = await number_of(catalog, "a"), await number_of(catalog, "b")
    known = QueueHomes(Homes(catalog), a, HandClock())
    moved = queue_of(a)
    assert [row.name for row in (await known.home_of([moved])).values()] == ["a"]
    await Homes(catalog).write_exceptions(
        b, b"d", behind=b"", upto=LAST_ID, queue_ids=[moved], rows_max=SLICE
    )
    assert [row.name for row in (await known.home_of([moved])).values()] == ["b"]


async def test_what_is_said_of_a_queue_that_is_not_here(catalog: Catalog) -> None:
    a, b = await number_of(catalog, "a"), await number_of(catalog, "b")
    gone = await number_of(catalog, "gone")
    await catalog.execute("update moorline.node set seen_at = '-infinity' where name = 'gone'")
    known = QueueHomes(Homes(catalog), a, HandClock())
    rights = Finder()
    before = known.absence(rights, queue_of(b))
    assert type(before) is NotFound
    assert str(before) == NOT_HERE
    await known.home_of([])
    said = known.absence(rights, queue_of(b))
    assert isinstance(said, Elsewhere)
    assert str(said) == f"{NOT_HERE} here: by its id it is of the home 'b', which the node 'b' has"
    assert said.home == "b"
    for number in (a, b"\1\2\3\4"):
        assert type(known.absence(rights, queue_of(number))) is NotFound
    away = known.absence(rights, queue_of(gone))
    assert type(away) is HomeAway, "nobody is told that a queue is not there which is only away"
    denied = known.absence(Finder(f"/homes/{gone.hex()}"), queue_of(gone))
    assert type(denied) is NotFound
    # Who may not find homes by a resolver is not told of them here.
    denied = known.absence(Finder(f"/homes/{b.hex()}"), queue_of(b))
    assert type(denied) is NotFound
    assert str(denied) == NOT_HERE
    assert type(await known.whereabouts(Finder(f"/homes/{b.hex()}"), queue_of(b))) is NotFound
    assert isinstance(await known.whereabouts(rights, queue_of(b)), Elsewhere)


async def test_a_new_home_is_looked_for_when_somebody_asks_for_it(catalog: Catalog) -> None:
    """And not when what is known is old: until then its queues would be said not to be there."""
    a = await number_of(catalog, "a")
    homes = CountedHomes(catalog)
    known = QueueHomes(homes, a, HandClock())  # whose time stands still: nothing gets old
    looking = asyncio.create_task(known.look_forever())
    await until(lambda: homes.asked == ["homes"])
    late = queue_of(await number_of(catalog, "late"))
    async with asyncio.timeout(HOMES_KEPT_MS / 1_000 + 10):
        while not isinstance(known.absence(Finder(), late), Elsewhere):
            await asyncio.sleep(0.01)
    # One look for all that asked, and those of ids that nobody has are no more than one each time.
    assert 2 <= len(homes.asked) <= 4
    looking.cancel()


# --- writing the exceptions -----------------------------------------------------------------------


async def test_a_store_of_before_is_written_in_slices_and_once(catalog: Catalog) -> None:
    a, b = await number_of(catalog, "a"), await number_of(catalog, "b")
    disk = MemoryDisk()
    ids = old_store(disk, 3 * SLICE + 1)
    homes = await written(catalog, disk, a)
    assert homes.asked == ["write"] * 4
    assert await stored(catalog) == dict.fromkeys(ids, a)
    # The next start finds that nothing has changed.
    assert (await written(catalog, disk, a)).asked == []
    found = await QueueHomes(Homes(catalog), b).home_of(ids)
    assert {row.name for row in found.values()} == {"a"}
    assert len(found) == len(ids)


@pytest.mark.parametrize("slices", [0, 1, 3])
async def test_what_was_cut_short_goes_on_where_it_was(
    catalog: Catalog, slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog goes away in the middle, and comes back."""
    monkeypatch.setattr("moorline.queues.home_exceptions.HOME_EXCEPTIONS_RETRY_MS", 1)
    a = await number_of(catalog, "a")
    disk = MemoryDisk()
    ids = old_store(disk, 4 * SLICE)
    homes = CountedHomes(catalog)
    homes.slices_left = slices
    await ExceptionWriter(homes, a, exceptions_in(disk, a), SLICE).write_until_done()
    assert homes.cuts == 1
    # None of the slices was written a second time.
    assert homes.asked == ["write"] * 4
    assert await stored(catalog) == dict.fromkeys(ids, a)


async def test_queues_that_were_imported_or_deleted_since_are_put_right(catalog: Catalog) -> None:
    a = await number_of(catalog, "a")
    disk = MemoryDisk()
    ids = old_store(disk, 3 * SLICE)
    await written(catalog, disk, a)
    store = opened(disk)
    for queue_id in ids[:10]:
        queue = store.find(queue_id)
        assert queue is not None
        store.delete(queue)
    fresh = [store.create(b"owner").id for _ in range(4)]
    checkpoint.run(store, now)
    store.close()
    await written(catalog, disk, a)
    assert await stored(catalog) == dict.fromkeys([*ids[10:], *fresh], a)


async def test_a_store_without_exceptions_asks_for_nothing(catalog: Catalog) -> None:
    a = await number_of(catalog, "a")
    assert (await written(catalog, MemoryDisk(), a)).asked == []
    # And one that has none any more removes all, some at a time.
    disk = MemoryDisk()
    old_store(disk, 4 * SLICE + 3)
    await written(catalog, disk, a)
    assert (await written(catalog, MemoryDisk(), a)).asked == ["write"] * 3
    assert await stored(catalog) == {}
    assert not (await Homes(catalog).all())[a].has_exceptions


def test_the_last_id_is_behind_all_others() -> None:
    assert len(LAST_ID) == ID_BYTES
    assert max(random.Random(1).randbytes(ID_BYTES) for _ in range(100)) < LAST_ID
