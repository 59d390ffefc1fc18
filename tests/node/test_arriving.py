"""A home that was given to a process: put in its place behind whatever crash, and nothing else removed."""

import secrets
import shutil
from pathlib import Path

import msgspec
import pytest
from tests.catalog.databases import empty_database
from tests.catalog.nodes import pretend
from tests.waiting import until

from moorline.catalog import Catalog, EmbeddedPostgres
from moorline.catalog.home_moves import HomeMoves
from moorline.catalog.homes import Homes
from moorline.config.settings import Config
from moorline.journal.home_copy.receiving import HomeReceiving
from moorline.journal.home_copy.sending import Part
from moorline.limits import HOME_MOVE_ID_BYTES
from moorline.node.arriving import Arriving
from moorline.node.folder import HOME_FILES, HOME_FOLDERS
from moorline.node.guests import guests_of

pytestmark = pytest.mark.process

B = b"b"


class Given:
    """The home of the node a has come to b, file by file; by the catalog it is not b's yet."""

    def __init__(self, catalog: Catalog, data: Path) -> None:
        self.moves = HomeMoves(catalog)
        self.data = data
        self.incoming = data / "homes" / "a.incoming"
        self.move = secrets.token_bytes(HOME_MOVE_ID_BYTES)
        config = msgspec.convert({"data": str(data), "catalog": "postgresql://x/y"}, Config)
        self.arriving = Arriving(config, catalog, data, B)
        self._catalog = catalog

    async def come(self) -> None:
        self._source = await pretend(self._catalog, "a")
        for name in "bc":
            await pretend(self._catalog, name)
        (number,) = [
            row.number for row in (await Homes(self._catalog).all()).values() if row.name == "a"
        ]
        await self.moves.ask("a", "b", self.move)
        receiving = HomeReceiving(self.incoming, self.move, (HOME_FILES, HOME_FOLDERS))
        files = {"node.id": b"a", "node.home": number.hex().encode(), "queues/ab/log": b"message"}
        receiving.put([Part(name, len(data), 0, data) for name, data in files.items()], [])
        self.found = receiving.settle()
        receiving.close()

    async def take(self) -> None:
        """As the process does it that is killed right behind that."""
        await self.moves.closed(self.move, b"a", self._source.incarnation)
        await self.moves.proven(self.move, self._source.incarnation, *self.found)
        assert await self.moves.take(self.move, B, self.found.hash, self.found.files, "a-at-b") == 1

    @property
    def is_placed(self) -> bool:
        return [one.name for one in guests_of(self.data)] == ["a"]


@pytest.mark.parametrize("asked_since", ["", "c", "c, and given up"])
async def test_a_home_that_was_given_to_a_killed_process_is_in_its_place_at_its_next_start(
    postgres: EmbeddedPostgres, tmp_path: Path, asked_since: str
) -> None:
    async with Catalog.open(await empty_database(postgres)) as catalog:
        one = Given(catalog, tmp_path)
        await one.come()
        await one.take()
        if asked_since:
            # Somebody who waits for it wants it elsewhere: of a home the catalog keeps the last move alone.
            await one.moves.ask("a", "c", secrets.token_bytes(HOME_MOVE_ID_BYTES))
        if "given up" in asked_since:
            await one.moves.cancel("a")
        await one.arriving.settle_at_start()
        assert one.is_placed
        assert (tmp_path / "homes" / "a" / "queues" / "ab" / "log").read_bytes() == b"message"
        assert (tmp_path / "homes" / "a" / "node.moves").read_text() == "1\n"
        assert not one.incoming.exists()


async def test_what_came_of_a_move_that_was_given_up_goes_and_no_other(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    async with Catalog.open(await empty_database(postgres)) as catalog:
        one = Given(catalog, tmp_path)
        await one.come()
        await one.arriving.settle_at_start()
        assert one.incoming.exists(), "it is on its way"
        await one.moves.cancel("a")
        await one.arriving.settle_at_start()
        assert not one.incoming.exists()
        assert not one.is_placed
    async with Catalog.open(await empty_database(postgres)) as another:
        strange = Given(another, tmp_path)
        await pretend(another, "b")
        receiving = HomeReceiving(strange.incoming, one.move, (HOME_FILES, HOME_FOLDERS))
        receiving.close()
        await strange.arriving.settle_at_start()
        assert strange.incoming.exists(), "of what a catalog does not know nothing is removed"


async def test_a_home_whose_answer_was_lost_is_in_its_place_as_soon_as_there_is_room(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    """The other node hears of the catalog that the home is gone, and says nothing more."""
    async with Catalog.open(await empty_database(postgres)) as catalog:
        one = Given(catalog, tmp_path)
        await one.come()
        arrived = list[str]()
        one.arriving.arrived = arrived.append
        coming = await one.moves.coming(one.move, B)
        assert coming is not None
        await one.arriving._arrival(coming)
        place, tried = one.arriving._place, list[str]()

        def placing(home: str, moves: int) -> None:
            tried.append(home)
            place(home, moves)

        one.arriving._place = placing  # type: ignore[method-assign]
        # As a full disk: what is to get that name cannot.
        in_the_way = tmp_path / "homes" / "a"
        in_the_way.mkdir()
        (in_the_way / "node.id").write_text("x")
        await one.take()
        await until(lambda: len(tried) > 1, what="a second try")
        assert not arrived
        shutil.rmtree(in_the_way)
        await until(lambda: arrived == ["a"], what="the home")
        assert one.is_placed
        one.arriving.close()


async def test_what_came_of_a_move_goes_when_it_is_given_up(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    async with Catalog.open(await empty_database(postgres)) as catalog:
        one = Given(catalog, tmp_path)
        await one.come()
        coming = await one.moves.coming(one.move, B)
        assert coming is not None
        await one.arriving._arrival(coming)
        await one.moves.cancel("a")
        await until(lambda: not one.incoming.exists(), what="room")
        # Asked for again it begins again, in the same place.
        await one.moves.ask("a", "b", one.move[::-1])
        again = await one.moves.coming(one.move[::-1], B)
        assert again is not None
        assert (await one.arriving._arrival(again)).receiving.is_new
        one.arriving.close()
