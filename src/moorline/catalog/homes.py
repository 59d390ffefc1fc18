"""Room: catalog. Homes: the number that the ids of their queues end with, and which node has each now.

    home             number, name, and the id of the node that has it now; never removed
    home_exception   queues that are in another home than their ids say, with the number of that home

A number is four bytes, drawn when a node first claims its identity and kept in its data folder too. Which
queues are exceptions only their node knows; it writes them here (`queues/home_exceptions.py`). Who wants to
know where a queue is asks `queues/homes.py`. Design: docs/design/identity.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from moorline.catalog.catalog import Catalog
from moorline.catalog.statements import statement
from moorline.errors import FolderUnusable, HomeMoved, StartError
from moorline.ids import ID_BYTES, drawn_home
from moorline.limits import HOME_DRAWS_MAX, NODE_GONE_MS

CLAIMED = statement("home_claimed")
ADD = statement("home_add")
CLAIMED_MOVES = statement("home_claimed_moves")
HOMES = statement("homes")
EXCEPTIONS_OF = statement("home_exceptions_of")
EXCEPTIONS_STATE = statement("home_exceptions_state")
EXCEPTIONS_WRITE = statement("home_exceptions_write")

LAST_ID = b"\xff" * ID_BYTES
"""No id is behind it: exceptions that are written up to here are all written."""


class HomeRow(msgspec.Struct, frozen=True):
    """A home as the catalog knows it."""

    number: bytes
    name: str
    node_id: bytes
    """The node that has it now."""
    node: str
    """Its name; empty if that node was removed from the catalog."""
    addresses: list[str]
    is_alive: bool
    has_exceptions: bool
    """Whether queues are in it whose ids end otherwise."""


class ExceptionsState(msgspec.Struct, frozen=True):
    """How far the exceptions of a home are written."""

    digest: bytes
    """Of all that the home had when it began to write them; empty for none."""
    upto: bytes


class Homes:
    """The part of the catalog that knows homes."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def all(self) -> dict[bytes, HomeRow]:
        """By their numbers."""
        rows = await self._catalog.fetch(HOMES, NODE_GONE_MS)
        return {row["number"]: HomeRow(**row) for row in rows}

    async def exceptions_of(self, queue_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        """Of the queues those that have an exception, with the numbers of their homes."""
        rows = await self._catalog.fetch(EXCEPTIONS_OF, list(queue_ids))
        return {row["queue"]: row["home"] for row in rows}

    async def exceptions_state(self, number: bytes) -> ExceptionsState:
        return ExceptionsState(**await self._catalog.fetchrow(EXCEPTIONS_STATE, number))

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
        """From now on these are the exceptions of a home with ids above `behind`, up to the id returned.

        Raises `IdentityTaken` if another process has our identity.
        """
        given = (number, digest, behind, upto, list(queue_ids), rows_max)
        reached = await self._catalog.fetchval(EXCEPTIONS_WRITE, *given, *self._catalog.acting_as)
        if reached is None:
            raise self._catalog.identity_taken()
        return bytes(reached)


async def claimed_number(
    connection: Any,
    name: str,
    node_id: bytes,
    in_folder: bytes,
    draw: Callable[[int], bytes],
    *,
    moves: int = 0,
) -> bytes:
    """The number of a node's home, inside its claim: as it is known, or drawn.

    `in_folder` is the number that the data folder has, empty if it has none, and `moves` how often the home
    had moved when the folder was made, for a catalog that does not know the home. Raises `FolderUnusable` if
    folder and catalog contradict each other.
    """
    rows = await connection.fetch(CLAIMED, name, in_folder)
    ours = next((row for row in rows if row["name"] == name), None)
    if ours is not None:
        if ours["node"] != node_id:
            raise FolderUnusable(
                f"another node has the home {name!r} of this data folder now, the one with the id "
                f"{ours['node'].hex()}: start that node, and this one with an empty --data"
            )
        if in_folder not in (b"", ours["number"]):
            raise _contradiction(in_folder, f"that of this node is {ours['number'].hex()}")
        return bytes(ours["number"])
    if rows:
        raise _contradiction(in_folder, f"that is the home {rows[0]['name']!r} of another node")
    for _ in range(HOME_DRAWS_MAX):
        number = in_folder or drawn_home(draw)
        if await connection.fetchval(ADD, number, name, node_id, moves) is not None:
            return number
    raise StartError("no number is left for another home in this catalog: use another catalog")


async def check_moves(connection: Any, node_id: bytes, in_folder: bytes, moves: int) -> None:
    """Raises `HomeMoved` if the home of a folder has moved another number of times than the folder knows of:
    it is a copy of before, one that was never taken, or one of which a part was set aside already.

    By the id of its node too: a folder that lost `node.home` is no other home for that.
    """
    for row in await connection.fetch(CLAIMED_MOVES, in_folder, node_id):
        if row["moves"] != moves:
            raise _moved(row["name"], row["node_name"], moves, row["moves"])


def _moved(name: str, node: str, moves: int, moves_known: int) -> HomeMoved:
    return HomeMoved(
        f"the home {name!r} has moved {moves_known} times by the catalog, and this data folder is of move "
        f"{moves}: the node {node!r} has the home now. Nothing was changed here; start "
        "this node with an empty --data"
    )


def _contradiction(in_folder: bytes, what: str) -> FolderUnusable:
    return FolderUnusable(
        f"the number of this data folder's home is {in_folder.hex()} in its file node.home, but by the "
        f"catalog {what}: the file is of another folder, or this is another catalog. Put back node.id and "
        "node.home as they were here, or remove node.home: queues keep their ids. Nothing was changed"
    )
