"""Room: catalog. Homes that move from node to node: what is wanted, how far it is, and who has the home.

    home        `moves`: how often it moved; a data folder with another number is a copy of before
    home_move   the last move of each home: to which node, in which state, and what both sides proved

A home is handed over by one transaction (`take`). It succeeds while the process that closed the home is the
last that claimed it, and both sides have the digest that is noted. Design: docs/design/home-moves.md.
"""

from typing import Any

import msgspec

from moorline.catalog.catalog import Catalog
from moorline.catalog.identity import LOCK, RELEASE
from moorline.catalog.statements import statement
from moorline.errors import CannotMove, NotFound
from moorline.limits import NODE_GONE_MS

ASK = statement("home_move_ask")
CANCEL = statement("home_move_cancel")
OF_HOME = statement("home_move_of")
BY_ID = statement("home_move_by_id")
NOTE = statement("home_move_note")
OPENED = statement("home_move_opened")
CLOSED = statement("home_move_closed")
PROVE = statement("home_move_prove")
TAKE_HOME = statement("home_move_take")
ARRIVED = statement("home_move_arrived")
GIVEN = statement("home_move_given")
OVER = statement("home_move_over")
OF_NODE = statement("home_moves_of_node")
LIST = statement("home_list")
BY_NAME = statement("home_by_name")
TARGET = statement("home_move_target")


class HomeListed(msgspec.Struct, frozen=True):
    """A home as an operator sees it."""

    name: str
    number: bytes
    node: str
    addresses: list[str]
    is_alive: bool
    moves: int
    move_state: str
    move_to: str
    move_text: str
    move_files: int
    move_bytes: int
    move_bytes_copied: int
    move_hash: bytes
    standstill_ms: int


class Wanted(msgspec.Struct, frozen=True):
    """A move of a home that a node has."""

    home: bytes
    id: bytes
    name: str
    """Of the home."""


class MoveRow(msgspec.Struct, frozen=True):
    """The move of a home, as the node that has it needs it."""

    home: bytes
    id: bytes
    target: bytes
    state: str
    target_home: str | None
    addresses: list[str] | None
    """None where the target is not of the cluster any more."""
    is_wanted: bool


class Coming(msgspec.Struct, frozen=True):
    """The same, as the node that is to have the home needs it."""

    home: bytes
    id: bytes
    name: str
    moves: int
    move: bytes
    """By which the home came to where it is."""
    state: str
    hash: bytes
    files: int
    source_home: str


class Progress(msgspec.Struct, frozen=True):
    files: int = 0
    bytes: int = 0
    bytes_copied: int = 0


class HomeMoves:
    """The part of the catalog that knows moves."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def ask(self, home: str, to: str, move: bytes) -> str:
        """The home is to go to that node; the name of the node. `move` is drawn by the caller."""
        row = await self._by_name(home)
        target = await self._catalog.fetchrow(TARGET, to, NODE_GONE_MS, row["node"])
        if target is None:
            raise NotFound(f"there is no node {to!r}: `moor node list` shows them")
        if target["id"] == row["node"]:
            raise CannotMove(f"the home {home!r} is at the node {target['name']!r} already")
        if not target["is_alive"] or "broker" not in target["roles"]:
            raise CannotMove(
                f"the node {target['name']!r} cannot take a home: it must run, with the role broker"
            )
        if target["is_leaving"]:
            raise CannotMove(
                f"the node {target['name']!r} gives its own home away, and is another node behind that: "
                "wait for the end of that move (moor home list)"
            )
        if target["is_source_wanted"]:
            raise CannotMove(
                f"another home is on its way to the node of {home!r}: wait for the end of that move "
                "(moor home list)"
            )
        await self._catalog.fetchval(ASK, row["number"], move, target["id"])
        under_way = await self.of_home(row["number"])
        if under_way is None or under_way.target != target["id"]:
            raise CannotMove(
                f"the home {home!r} is on its way to another node: `moor home move {home} --cancel` ends that"
            )
        return str(target["name"])

    async def cancel(self, home: str) -> None:
        """A home that is on its way stays. Raises `CannotMove` where there is nothing to give up."""
        row = await self._by_name(home)
        if await self._catalog.fetchval(CANCEL, row["number"]) is None:
            raise CannotMove(f"the home {home!r} is not on its way")

    async def listed(self, after: str, count: int) -> list[HomeListed]:
        rows = await self._catalog.fetch(LIST, NODE_GONE_MS, after, count)
        return [HomeListed(**row) for row in rows]

    async def of_node(self, node_id: bytes) -> list[Wanted]:
        """The moves that are wanted of the homes that a node has."""
        return [Wanted(**row) for row in await self._catalog.fetch(OF_NODE, node_id)]

    # --- the node that has the home ---------------------------------------------------------------

    async def of_home(self, number: bytes) -> MoveRow | None:
        row = await self._catalog.fetchrow(OF_HOME, number)
        return None if row is None else MoveRow(**row)

    async def note(self, move: bytes, state: str, problem: str, progress: Progress) -> bool:
        """False if the move is not wanted any more."""
        given = (progress.files, progress.bytes, progress.bytes_copied)
        return bool(await self._catalog.fetchval(NOTE, move, state, problem, *given))

    async def closed(self, move: bytes, node_id: bytes, incarnation: bytes) -> bool:
        """Our home is closed, and its identity given back; False if the move is not wanted any more."""
        async with self._catalog.transaction() as connection:
            await connection.execute(LOCK)
            await connection.execute(RELEASE, node_id, incarnation)
            return bool(await connection.fetchval(CLOSED, move, incarnation))

    async def proven(
        self, move: bytes, incarnation: bytes, files: int, size: int, hash_of_all: bytes
    ) -> bool:
        given = (move, incarnation, files, size, hash_of_all)
        return bool(await self._catalog.fetchval(PROVE, *given))

    async def opened_again(self, move: bytes) -> None:
        await self._catalog.execute(OPENED, move)

    # --- the node that is to have it --------------------------------------------------------------

    async def coming(self, move: bytes, node_id: bytes) -> Coming | None:
        """A move to that node; None if there is none of that id."""
        row = await self._catalog.fetchrow(BY_ID, move, node_id)
        return None if row is None else Coming(**row)

    async def take(
        self, move: bytes, node_id: bytes, hash_of_all: bytes, files: int, name: str
    ) -> int | None:
        """The home is ours from now on, and the node that serves it is called `name`: how often the home has
        moved with that. None if it is not ours."""
        async with self._catalog.transaction() as connection:
            await connection.execute(LOCK)
            given = (move, node_id, hash_of_all, files, name)
            moves: Any = await connection.fetchval(TAKE_HOME, *given)
        return None if moves is None else int(moves)

    async def given(self, home: str, move: bytes) -> int | None:
        """The home came by that move, and is where that brought it: how often it has moved with that. None if
        it did not, or has moved on."""
        moves: int | None = await self._catalog.fetchval(GIVEN, home, move)
        return moves

    async def is_over(self, move: bytes, node_id: bytes) -> bool:
        """Whether a move to that node was given up. False where nobody knows of such a move any more."""
        return bool(await self._catalog.fetchval(OVER, move, node_id))

    async def arrived(self, number: bytes) -> None:
        await self._catalog.execute(ARRIVED, number)

    async def _by_name(self, home: str) -> Any:
        row = await self._catalog.fetchrow(BY_NAME, home)
        if row is None:
            raise NotFound(f"there is no home {home!r}: `moor home list` shows them")
        return row
