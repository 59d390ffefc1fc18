"""Moves of homes in a real Postgres: who is given a home, behind what; what a folder of before may do."""

import secrets
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from tests.catalog.databases import empty_database
from tests.catalog.nodes import LEASE_MS, pretend

from moorline.catalog import Catalog, EmbeddedPostgres
from moorline.catalog.copying import CatalogCut, digest_of, load
from moorline.catalog.home_moves import HomeMoves
from moorline.catalog.homes import Homes
from moorline.catalog.identity import Granted, Identities
from moorline.core.identity import Claim
from moorline.errors import CannotMove, HomeMoved
from moorline.limits import HOME_MOVE_ID_BYTES

pytestmark = pytest.mark.process

A, B, C = b"a", b"b", b"c"
HASH, FILES = b"h" * 16, 7


class Asked(NamedTuple):
    """The home of the node a is to go to b."""

    moves: HomeMoves
    source: Identities
    move: bytes
    number: bytes

    async def proven(self) -> None:
        assert await self.moves.closed(self.move, A, self.source.incarnation)
        assert await self.moves.proven(self.move, self.source.incarnation, FILES, 100, HASH)

    async def taken(self, *, hash_of_all: bytes = HASH, files: int = FILES) -> int | None:
        return await self.moves.take(self.move, B, hash_of_all, files, "a-at-b")


async def asked(catalog: Catalog) -> Asked:
    source = await pretend(catalog, "a")
    await pretend(catalog, "b")
    await pretend(catalog, "c")
    (number,) = [row.number for row in (await Homes(catalog).all()).values() if row.name == "a"]
    moves, move = HomeMoves(catalog), secrets.token_bytes(HOME_MOVE_ID_BYTES)
    assert await moves.ask("a", "b", move) == "b"
    return Asked(moves, source, move, number)


async def started(
    catalog: Catalog, node_id: bytes, *, number: bytes = b"", moves: int = 0
) -> Granted:
    """A start on a folder that says this of itself."""
    name = node_id.decode()
    identities = Identities(catalog, node_id, b"a later incarnation of " + node_id)
    granted = await identities.claim(
        Claim((), "another lock"),
        name=name,
        home_wanted="",
        lease_ms=LEASE_MS,
        number_in_folder=number,
        moves=moves,
    )
    assert isinstance(granted, Granted)
    return granted


async def test_h1_a_home_is_given_only_behind_what_was_proven_since_it_was_closed(
    dsn: str,
) -> None:
    async with Catalog.open(dsn) as catalog:
        one = await asked(catalog)
        assert await one.taken() is None, "nothing was proven, and the home serves"
        await one.proven()
        assert await one.taken(hash_of_all=b"x" * 16) is None
        assert await one.taken(files=FILES - 1) is None
        assert await one.taken(hash_of_all=b"", files=0) is None
        assert await one.taken() == 1
        assert await one.taken() is None, "once"


async def test_h4_a_home_that_was_opened_again_is_given_to_nobody(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        one = await asked(catalog)
        await one.proven()
        await started(catalog, A)
        assert await one.taken() is None
        assert not await one.moves.closed(b"x" * 16, A, one.source.incarnation)
        assert await one.taken() is None


@pytest.mark.parametrize("has_number", [True, False])
async def test_a_folder_of_before_starts_nowhere_also_without_its_number(
    dsn: str, has_number: bool
) -> None:
    """Killed while what a home left is set aside, a folder has its node's id and not much else: it is no new
    home of that node, which has one elsewhere."""
    async with Catalog.open(dsn) as catalog:
        one = await asked(catalog)
        await one.proven()
        assert await one.taken() == 1
        with pytest.raises(HomeMoved):
            await started(catalog, A, number=one.number if has_number else b"")
        assert (await started(catalog, A, number=one.number, moves=1)).home == "a"


async def test_what_is_asked_for_behind_a_move_does_not_hide_that_it_was_done(dsn: str) -> None:
    """The node that took the home was killed right behind that, and somebody wants it elsewhere: only that
    node has it, and has to know so at its next start."""
    async with Catalog.open(dsn) as catalog:
        one = await asked(catalog)
        assert await one.moves.given("a", one.move) is None
        await one.proven()
        assert await one.taken() == 1
        assert await one.moves.given("a", one.move) == 1
        await one.moves.ask("a", "c", secrets.token_bytes(HOME_MOVE_ID_BYTES))
        assert await one.moves.given("a", one.move) == 1
        await one.moves.cancel("a")
        assert await one.moves.given("a", one.move) == 1
        assert await one.moves.given("a", b"") is None
        assert await one.moves.given("b", b"") is None
        assert not await one.moves.is_over(one.move, B)


async def test_no_home_is_on_its_way_to_a_node_that_serves_elsewhere_by_then(dsn: str) -> None:
    """Two nodes that change places: the second move had no end, and its node waited for it."""
    async with Catalog.open(dsn) as catalog:
        one = await asked(catalog)
        for home, to, why in (
            ("b", "a", "gives its own"),
            ("c", "a", "gives its own"),
            ("b", "c", "on its way"),
        ):
            with pytest.raises(CannotMove, match=why):
                await one.moves.ask(home, to, secrets.token_bytes(HOME_MOVE_ID_BYTES))
        assert await one.moves.ask("c", "b", secrets.token_bytes(HOME_MOVE_ID_BYTES)) == "b"
        assert await one.moves.ask("a", "b", secrets.token_bytes(HOME_MOVE_ID_BYTES)) == "b"


async def test_a_restored_catalog_moves_nothing(
    dsn: str, postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    """The nodes of then may live, with the catalog of then: they want no files of a restored home."""
    async with Catalog.open(dsn) as catalog, CatalogCut.connected(dsn) as cut:
        one = await asked(catalog)
        await cut.begin()
        facts, tables = await cut.facts(), []
        for table in facts.tables:
            with (tmp_path / f"{table.name}.copy").open("wb") as out:
                await cut.write(table, out)
            rows = str(digest_of(tmp_path / f"{table.name}.copy"))
            tables.append(msgspec.structs.replace(table, digest=rows))
    facts = msgspec.structs.replace(facts, tables=tables)
    fresh = await empty_database(postgres)
    await load(fresh, facts, tmp_path, since_s=1)
    async with Catalog.open(fresh) as restored:
        moves = HomeMoves(restored)
        assert await moves.of_node(A) == []
        row = await moves.of_home(one.number)
        assert row is not None
        assert (row.id, row.state) == (one.move, "cancelled")


async def test_only_what_was_given_up_is_over(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        one = await asked(catalog)
        assert not await one.moves.is_over(one.move, B)
        await one.moves.cancel("a")
        assert await one.moves.is_over(one.move, B)
        assert not await one.moves.is_over(one.move, C), "of another node nothing is known"
        with pytest.raises(CannotMove, match="not on its way"):
            await one.moves.cancel("a")
