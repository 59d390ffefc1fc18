"""Room: node. Homes, as any node shows them to operators, and the moves that they want.

What is wanted is a row in the catalog; the node that has the home looks for such rows and does it
(`node/moving.py`). So a command may be interrupted, and asked again at another node.
"""

import logging
import secrets

from moorline.access.guard import Declarations, heavy, needs
from moorline.catalog import Catalog
from moorline.catalog.home_moves import HomeListed, HomeMoves
from moorline.core.access.principal import level_of
from moorline.core.access.right import ADMINISTER, LIST
from moorline.errors import CannotMove
from moorline.limits import HOME_ADDRESSES_MAX, HOME_MOVE_ID_BYTES, HOMES_PER_PAGE_MAX
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.wire.bounds import cut
from moorline.wire.home_move import HomeFacts, HomeMoving, HomesListed, ListHomes, MoveHome

log = logging.getLogger("moorline.node")

CLUSTER = "/admin/cluster"


class HomeCalls:
    """Asks the catalog, and writes into it."""

    def __init__(self, catalog: Catalog, *, is_alone: bool) -> None:
        """`is_alone`: the catalog is this node's own, and no other node is in it."""
        self._moves = HomeMoves(catalog)
        self._is_alone = is_alone
        self._turns = Turns()

    def declared(self) -> Declarations:
        return {
            ListHomes: heavy(needs(LIST, lambda _: (CLUSTER,), self._turns.spawned(self._list))),
            MoveHome: needs(
                ADMINISTER,
                lambda call: (f"{CLUSTER}/homes/{level_of(call.home)}",),
                self._turns.later(self._move),
            ),
        }

    def close(self) -> None:
        self._turns.close()

    async def _list(self, session: Session, call: ListHomes) -> HomesListed:  # noqa: ARG002
        found = await self._moves.listed(call.after, HOMES_PER_PAGE_MAX)
        return HomesListed(
            call.call, tuple(map(_facts, found)), is_last=len(found) < HOMES_PER_PAGE_MAX
        )

    async def _move(self, session: Session, call: MoveHome) -> HomeMoving:
        who = {"home": call.home, "by": session.identity.principal}
        if call.is_over:
            await self._moves.cancel(call.home)
            log.warning("a move of a home was given up", extra=who)
            return HomeMoving(call.call, call.home, "")
        if self._is_alone:
            raise CannotMove(
                "this node has its catalog to itself, so there is no other node that could take a home: a "
                "cluster has one Postgres (`catalog`)"
            )
        to = await self._moves.ask(call.home, call.to, secrets.token_bytes(HOME_MOVE_ID_BYTES))
        log.warning("a home is to move", extra={**who, "to": to})
        return HomeMoving(call.call, call.home, to)


def _facts(row: HomeListed) -> HomeFacts:
    return HomeFacts(
        name=row.name,
        number=row.number.hex(),
        node=row.node,
        addresses=tuple(row.addresses[:HOME_ADDRESSES_MAX]),
        is_alive=row.is_alive,
        moves=row.moves,
        move_state=row.move_state,
        move_to=row.move_to,
        move_text=cut(row.move_text),
        move_files=row.move_files,
        move_bytes=row.move_bytes,
        move_bytes_copied=row.move_bytes_copied,
        move_hash=row.move_hash,
        standstill_ms=max(0, row.standstill_ms),
    )
