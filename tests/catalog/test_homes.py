"""Numbers of homes in a real Postgres: drawn once, one for each, never again; and exceptions."""

import itertools
import random
from collections.abc import Callable

import pytest
from tests.catalog.nodes import LEASE_MS, pretend

from moorline.catalog import Catalog
from moorline.catalog.homes import LAST_ID, Homes
from moorline.catalog.identity import Granted, Identities
from moorline.core.identity import Claim
from moorline.errors import FolderUnusable, IdentityTaken, StartError
from moorline.ids import ID_BYTES, NO_HOME

pytestmark = pytest.mark.process

ONE, TWO, THREE = b"\0\0\0\1", b"\0\0\0\2", b"\xff\xff\xff\xff"
DIGEST = b"digest"


def drawing(*numbers: bytes) -> Callable[[int], bytes]:
    """Chance that gives these, the last one for ever."""
    given = itertools.chain(numbers, itertools.repeat(numbers[-1]))
    return lambda _: next(given)


async def claimed(
    catalog: Catalog,
    name: str,
    draw: Callable[[int], bytes],
    *,
    node_id: bytes = b"",
    in_folder: bytes = b"",
    home_wanted: str = "",
) -> Granted:
    node_id = node_id or name.encode()
    identities = Identities(catalog, node_id, b"incarnation of " + name.encode(), draw)
    granted = await identities.claim(
        Claim((), f"lock of {node_id.hex()}"),
        name=name,
        home_wanted=home_wanted,
        lease_ms=LEASE_MS,
        number_in_folder=in_folder,
    )
    assert isinstance(granted, Granted)
    return granted


async def homes_of(catalog: Catalog) -> list[tuple[str, bytes, bytes]]:
    rows = (await Homes(catalog).all()).values()
    return sorted((row.name, row.number, row.node_id) for row in rows)


async def remove(catalog: Catalog, name: str) -> None:
    await catalog.execute("delete from moorline.node where name = $1", name)


async def test_nodes_of_one_catalog_have_different_numbers(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        for number in range(20):
            await pretend(catalog, f"n{number}")
        found = await Homes(catalog).all()
        assert len(found) == 20
        assert NO_HOME not in found
        assert {(row.name, row.node) for row in found.values()} == {
            (f"n{number}", f"n{number}") for number in range(20)
        }
        assert all(row.is_alive and not row.has_exceptions for row in found.values())


async def test_a_number_is_drawn_once_and_stays(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        assert (await claimed(catalog, "a", drawing(ONE))).home_number == ONE
        for in_folder in (b"", ONE):
            again = await claimed(catalog, "a", drawing(TWO), in_folder=in_folder)
            assert again.home_number == ONE
        renamed = await claimed(catalog, "quay", drawing(TWO), node_id=b"a", in_folder=ONE)
        assert (renamed.home, renamed.home_number) == ("a", ONE)


async def test_a_number_that_is_another_homes_is_drawn_anew(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        await claimed(catalog, "a", drawing(ONE))
        await claimed(catalog, "b", drawing(ONE, NO_HOME, ONE, TWO))
        assert await homes_of(catalog) == [("a", ONE, b"a"), ("b", TWO, b"b")]
        with pytest.raises(StartError, match="no number is left"):
            await claimed(catalog, "c", drawing(ONE))
        # Nothing of the claim is left: neither its node nor its home.
        assert [row.name for row in await catalog.nodes()] == ["a", "b"]


async def test_the_number_of_a_removed_node_is_not_given_again_but_to_itself(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        await claimed(catalog, "a", drawing(ONE))
        await remove(catalog, "a")
        assert await homes_of(catalog) == [("a", ONE, b"a")]
        other = await claimed(catalog, "a", drawing(ONE, TWO), node_id=b"other")
        assert other.home_number == TWO
        assert other.home.startswith("a-")
        # The folder of the first comes back, under another name and with or without its file.
        for in_folder in (b"", ONE):
            back = await claimed(catalog, "b", drawing(THREE), node_id=b"a", in_folder=in_folder)
            assert (back.home, back.home_number) == ("a", ONE)
            await remove(catalog, "b")


async def test_a_folder_brings_its_number_into_another_catalog(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        granted = await claimed(catalog, "a", drawing(TWO), in_folder=ONE)
        assert granted.home_number == ONE


async def test_a_folder_that_contradicts_the_catalog_is_refused(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        await claimed(catalog, "a", drawing(ONE))
        with pytest.raises(
            FolderUnusable, match=r"is 00000002 in .* this node is 00000001: .*node\.home"
        ):
            await claimed(catalog, "a", drawing(THREE), in_folder=TWO)
        with pytest.raises(FolderUnusable, match="that is the home 'a' of another node"):
            await claimed(catalog, "b", drawing(THREE), in_folder=ONE)
        assert await homes_of(catalog) == [("a", ONE, b"a")]
        assert [row.name for row in await catalog.nodes()] == ["a"]


async def test_a_home_that_another_node_has_now_is_not_taken_back(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        await claimed(catalog, "a", drawing(ONE))
        await claimed(catalog, "b", drawing(TWO))
        await catalog.execute("update moorline.home set node = $1 where name = 'a'", b"b")
        with pytest.raises(FolderUnusable, match="another node has the home 'a'"):
            await claimed(catalog, "a", drawing(THREE), in_folder=ONE)
        # The node that has two homes now is still known by its own.
        again = await claimed(catalog, "b", drawing(THREE), in_folder=TWO)
        assert (again.home, again.home_number) == ("b", TWO)
        row = (await Homes(catalog).all())[ONE]
        assert (row.name, row.node) == ("a", "b")


async def test_a_node_from_before_there_were_numbers_gets_one(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        await claimed(catalog, "a", drawing(ONE))
        # As a migration leaves it: the node is known with its home, and nobody has drawn a number yet.
        await catalog.execute("delete from moorline.home")
        fresh = await claimed(catalog, "a", drawing(TWO), node_id=b"another", home_wanted="a")
        assert fresh.home.startswith("a-")
        assert (await claimed(catalog, "x", drawing(THREE), node_id=b"a")).home == "a"
        assert await homes_of(catalog) == [("a", THREE, b"a"), (fresh.home, TWO, b"another")]


# --- exceptions -----------------------------------------------------------------------------------


def ids_of(seed: int, count: int) -> list[bytes]:
    chance = random.Random(seed)
    return sorted(chance.randbytes(ID_BYTES) for _ in range(count))


async def write(
    homes: Homes, number: bytes, ids: list[bytes], *, behind: bytes = b"", upto: bytes = LAST_ID
) -> bytes:
    return await homes.write_exceptions(
        number, DIGEST, behind=behind, upto=upto, queue_ids=ids, rows_max=10
    )


async def exceptions(catalog: Catalog) -> dict[bytes, bytes]:
    rows = await catalog.fetch("select queue, home from moorline.home_exception")
    return {row["queue"]: row["home"] for row in rows}


async def test_exceptions_between_two_ids_are_those_that_are_given(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        await claimed(catalog, "a", drawing(ONE))
        homes, ids = Homes(catalog), ids_of(1, 9)
        assert (await homes.exceptions_state(ONE)).upto == LAST_ID
        assert await write(homes, ONE, ids) == LAST_ID
        # Only those between the third and the sixth, of which one is left.
        assert await write(homes, ONE, [ids[4]], behind=ids[2], upto=ids[5]) == ids[5]
        state = await homes.exceptions_state(ONE)
        assert (state.digest, state.upto) == (DIGEST, ids[5])
        left = [*ids[:3], ids[4], *ids[6:]]
        assert await exceptions(catalog) == dict.fromkeys(left, ONE)
        assert await homes.exceptions_of([*ids, b"unknown"]) == dict.fromkeys(left, ONE)
        assert (await homes.all())[ONE].has_exceptions


async def test_a_write_removes_no_more_than_it_may_and_says_how_far_it_came(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        await claimed(catalog, "a", drawing(ONE))
        homes, ids = Homes(catalog), ids_of(2, 25)
        await write(homes, ONE, ids)
        behind, steps = b"", 0
        while behind != LAST_ID:
            behind = await write(
                homes, ONE, [one for one in ids[20:] if one > behind], behind=behind
            )
            steps += 1
        assert steps == 3
        assert await exceptions(catalog) == dict.fromkeys(ids[20:], ONE)


async def test_a_queue_that_two_homes_have_is_of_the_last_that_said_so(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        await claimed(catalog, "a", drawing(ONE))
        await claimed(catalog, "b", drawing(TWO))
        homes, ids = Homes(catalog), ids_of(3, 8)
        await write(homes, ONE, ids)
        await write(homes, TWO, ids[:4])
        # The first has none of them any more: it removes its own.
        await write(homes, ONE, [])
        assert await exceptions(catalog) == dict.fromkeys(ids[:4], TWO)


async def test_a_process_that_lost_its_identity_writes_nothing(dsn: str) -> None:
    async with Catalog.open(dsn) as old, Catalog.open(dsn) as new:
        await claimed(old, "a", drawing(ONE))
        again = Identities(new, b"a", b"another")
        await again.claim(
            Claim((), f"lock of {b'a'.hex()}"), name="a", home_wanted="", lease_ms=LEASE_MS
        )
        with pytest.raises(IdentityTaken):
            await write(Homes(old), ONE, ids_of(4, 3))
        assert await exceptions(old) == {}
        await write(Homes(new), ONE, ids_of(4, 3))
        assert len(await exceptions(old)) == 3
