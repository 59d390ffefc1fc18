"""Room: node. The side that is to have a home: takes its files from the node that has it, and then the home.

    BeginCopy ─► PutPieces… ─► SettleCopy ─► … ─► TakeHome
                                                    1  what is here is what was proven
                                                    2  the catalog gives us the home, in one transaction
                                                    3  the files get their place, and a node serves them

Only the node that has the home may say any of this, and only for a move that an operator asked for, to us. A
crash behind 2 is gone on from at the next start: the catalog says by which move the home came.
"""

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from moorline.access.guard import Declarations, nodes_only
from moorline.catalog import Catalog
from moorline.catalog.home_moves import Coming, HomeMoves
from moorline.config.settings import Config
from moorline.core.access.principal import node_principal
from moorline.errors import CannotMove, DiskFull, MoorlineError, NodeDiskFull, NotFound
from moorline.journal.home_copy.index import FileSet
from moorline.journal.home_copy.receiving import FILES, HomeReceiving, move_of
from moorline.journal.home_copy.sending import Part
from moorline.limits import HOME_MOVE_LOOK_MS
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.node.access import homes_of_own_certificate
from moorline.node.folder import (
    HOME_FILES,
    HOME_FOLDERS,
    IDENTITY,
    home_number,
    no_room,
    note_home_moves,
    opening,
)
from moorline.node.guests import ASIDE, HOMES, guest_name, incoming, incoming_of
from moorline.wire.home_move import BeginCopy, CopyTold, PutPieces, SettleCopy, TakeHome

log = logging.getLogger("moorline.node")

T = TypeVar("T")

ELSEWHERE = "this node has no copy of that move: begin again"


class _Arrival:
    """One home that comes, and the thread in which its files are written."""

    def __init__(self, receiving: HomeReceiving, coming: Coming) -> None:
        self.receiving = receiving
        self.coming = coming
        self.threads = ThreadPoolExecutor(1, thread_name_prefix="home-copy")
        self.taking = asyncio.Lock()
        """Held while the home is taken: nothing is written to its files then."""
        self._is_closed = False

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        if self._is_closed:
            raise NotFound(ELSEWHERE)
        with _told(self.receiving.files.root):
            return await asyncio.get_running_loop().run_in_executor(self.threads, work, *given)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.receiving.stop()
        self.threads.submit(self.receiving.close)
        self.threads.shutdown(wait=True)


@contextlib.contextmanager
def _told(root: Path) -> Iterator[None]:
    """What is wrong with our disk, in words for the operator, who reads them at the other node."""
    try:
        yield
    except DiskFull as error:
        raise NodeDiskFull(str(error)) from error
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise NodeDiskFull(str(no_room(root))) from error
        raise CannotMove(f"the other node cannot write the home: {error}") from error
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise NodeDiskFull(str(no_room(root))) from error
        raise CannotMove(f"the other node cannot write its list of what came: {error}") from error


class Arriving:
    """The homes that come to this process; one of its nodes hears the calls, its own."""

    def __init__(
        self,
        config: Config,
        catalog: Catalog,
        data: Path,
        node_id: bytes,
        *,
        is_guest: bool = False,
    ) -> None:
        """A guest takes none: its folder is another's, whose own node does."""
        self.arrived: Callable[[str], None] = lambda _: None
        """Told the name of a home whose files are in their place, and ours."""
        self._config = config
        self._moves = HomeMoves(catalog)
        self._data = data
        self._node_id = node_id
        self._is_guest = is_guest
        self._arrivals: dict[bytes, _Arrival] = {}
        self._turns = Turns()

    def declared(self) -> Declarations:
        later = self._turns.later
        return {
            BeginCopy: nodes_only(later(self._begin)),
            PutPieces: nodes_only(later(self._put)),
            SettleCopy: nodes_only(later(self._settle)),
            TakeHome: nodes_only(later(self._take)),
        }

    def close(self) -> None:
        self._turns.close()
        for arrival in self._arrivals.values():
            arrival.close()
        self._arrivals.clear()

    async def settle_at_start(self) -> None:
        """What came whole, and was given to us, before a crash kept it from its place. And what is left of
        moves that were given up goes: it was never more than a copy."""
        for home, folder in incoming_of(self._data):
            move = move_of(folder)
            # Whatever was asked for since: by then it may be wanted elsewhere, and nobody else has it.
            moves = await self._moves.given(home, move)
            if moves is not None:
                with opening(folder):
                    await asyncio.to_thread(self._place, home, moves)
                log.warning(
                    "a home that was given to this node is put in its place", extra={"home": home}
                )
            elif await self._moves.is_over(move, self._node_id):
                await asyncio.to_thread(_remove, folder)

    # --- what the node that has the home says -----------------------------------------------------

    async def _begin(self, session: Session, call: BeginCopy) -> CopyTold:
        coming = await self._moves.coming(call.move, self._node_id)
        if coming is None or coming.name != call.home or coming.state == "done":
            raise NotFound("no such move to this node is wanted")
        self._check_source(session, coming)
        self._check_fit(coming)
        async with self._turns.turn(coming.name):
            arrival = await self._arrival(coming)
            if call.is_anew:
                await arrival.run(arrival.receiving.begin_anew)
        here = await arrival.run(arrival.receiving.bytes_here)
        await arrival.run(arrival.receiving.check_room, max(0, call.bytes - here))
        is_new, arrival.receiving.is_new = arrival.receiving.is_new, False
        return CopyTold(call.call, bytes=here, is_new=is_new)

    async def _arrival(self, coming: Coming) -> _Arrival:
        """One for each home: what an earlier move has brought gives way, with whoever still writes it."""
        found = self._arrivals.get(coming.id)
        if found is not None:
            return found
        for other in [one for one in self._arrivals.values() if one.coming.name == coming.name]:
            del self._arrivals[other.coming.id]
            await asyncio.to_thread(other.close)
        folder, names = incoming(self._data, coming.name), (HOME_FILES, HOME_FOLDERS)
        with _told(folder):
            receiving = await asyncio.to_thread(HomeReceiving, folder, coming.id, names)
        arrival = self._arrivals[coming.id] = _Arrival(receiving, coming)
        log.info("a home comes", extra={"home": coming.name, "from": coming.source_home})
        self._turns.spawn(self._look_after(arrival))
        return arrival

    async def _put(self, session: Session, call: PutPieces) -> CopyTold:
        arrival = self._found(session, call.move)
        parts = [Part(one.path, one.size, one.offset, one.data) for one in call.pieces]
        await arrival.run(arrival.receiving.put, parts, list(call.gone))
        return CopyTold(call.call)

    async def _settle(self, session: Session, call: SettleCopy) -> CopyTold:
        arrival = self._found(session, call.move)
        found = await arrival.run(arrival.receiving.settle)
        return CopyTold(call.call, found.files, found.size, found.hash)

    async def _take(self, session: Session, call: TakeHome) -> CopyTold:
        """Asked again by one who did not hear the answer it says the same."""
        coming = await self._moves.coming(call.move, self._node_id)
        if coming is None:
            raise NotFound("no such move to this node is wanted")
        arrival = self._arrivals.get(call.move)
        if coming.state != "done":
            self._check_source(session, coming)
            if arrival is None:
                raise NotFound(ELSEWHERE)
            async with arrival.taking:
                await self._taken(arrival, call, coming)
        return CopyTold(call.call, call.files, 0, call.hash)

    async def _taken(self, arrival: _Arrival, call: TakeHome, coming: Coming) -> None:
        if call.move not in self._arrivals:
            return  # by the call before
        # Behind whatever was on its way to the files: from here on none is let in.
        await arrival.run(arrival.receiving.files.has, "")
        settled: FileSet | None = arrival.receiving.settled
        if settled is None or settled[::2] != (call.files, call.hash) or not settled.files:
            raise CannotMove("what came here is not what was proven: it is compared again")
        name = guest_name(coming.name, self._config.node, coming.home)
        # If this raises it may be ours all the same: `_look_after` finds that out.
        moves = await self._moves.take(call.move, self._node_id, call.hash, call.files, name)
        if moves is None:
            raise CannotMove(
                "the catalog does not give the home away: it was claimed again, or the move was given up"
            )
        await self._put_in_place(arrival, coming, moves)

    async def _look_after(self, arrival: _Arrival) -> None:
        """Until it is in its place, or the move was given up: an answer of the catalog may have been lost,
        and the other node says nothing more once it has heard that the home is gone."""
        coming = arrival.coming
        while coming.id in self._arrivals:
            await asyncio.sleep(HOME_MOVE_LOOK_MS / 1_000)
            try:
                moves = await self._moves.given(coming.name, coming.id)
                is_over = moves is None and await self._moves.is_over(coming.id, self._node_id)
            except (MoorlineError, OSError, TimeoutError):
                continue
            if moves is None and not is_over:
                continue
            async with self._turns.turn(coming.name), arrival.taking:
                if coming.id not in self._arrivals:
                    return
                if moves is not None:
                    with contextlib.suppress(MoorlineError):  # the disk is full: tried again
                        await self._put_in_place(arrival, coming, moves)
                    continue
                del self._arrivals[coming.id]
                await asyncio.to_thread(arrival.close)
                await asyncio.to_thread(_remove, incoming(self._data, coming.name))
                log.info("a home does not come", extra={"home": coming.name})

    async def _put_in_place(self, arrival: _Arrival, coming: Coming, moves: int) -> None:
        log.warning("a home has moved here", extra={"home": coming.name, "moves": moves})
        # In the thread of its files: whoever gave up waiting for it left none behind that still works there.
        await arrival.run(self._place, coming.name, moves)
        if self._arrivals.pop(coming.id, None) is None:
            return
        await asyncio.to_thread(arrival.close)
        self.arrived(coming.name)

    # --- what may come ----------------------------------------------------------------------------

    def _found(self, session: Session, move: bytes) -> _Arrival:
        arrival = self._arrivals.get(move)
        if arrival is None:
            raise NotFound(ELSEWHERE)
        self._check_source(session, arrival.coming)
        if arrival.taking.locked():
            raise CannotMove("the home is being taken: nothing is written to it now")
        return arrival

    def _check_source(self, session: Session, coming: Coming) -> None:
        """Another node of the cluster has nothing to say about a home that it does not have."""
        if session.identity.principal != node_principal(coming.source_home):
            raise NotFound("no such move to this node is wanted")

    def _check_fit(self, coming: Coming) -> None:
        if self._is_guest:
            raise CannotMove(
                f"the node {self._config.node!r} serves a home that was moved there: say the "
                "node of its process"
            )
        named = homes_of_own_certificate(self._config)
        if named is not None and coming.name not in named:
            raise CannotMove(
                "nodes of this cluster prove themselves by certificates (tls_node_ca), and that of the node "
                f"{self._config.node!r} does not name the home {coming.name!r}: give it one that names both"
            )
        if (self._data / HOMES / coming.name / IDENTITY).exists():
            raise CannotMove(
                f"the node {self._config.node!r} has a folder for the home {coming.name!r} already, in "
                f"{HOMES}: move that away"
            )

    # --- the files --------------------------------------------------------------------------------

    def _place(self, home: str, moves: int) -> None:
        """What came becomes a data folder. Cut short anywhere, it is done again: by `_look_after`, or by the
        next start."""
        folder, place = incoming(self._data, home), self._data / HOMES / home
        if (folder / FILES).is_dir():
            note_home_moves(folder / FILES, moves)
            assert home_number(folder / FILES), "a home without its number"
            if place.exists() and not (place / IDENTITY).exists():
                # It was here before, and left what is not a home's: its lock, its ports, an audit.
                (self._data / ASIDE).mkdir(mode=0o700, exist_ok=True)
                os.replace(place, self._data / ASIDE / f"{home}-{moves}-before")
            os.replace(folder / FILES, place)
        for name in (HOMES, f"{HOMES}/{home}"):
            descriptor = os.open(self._data / name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path) -> None:
    """The name of the move last: cut short, the next start knows what it is."""
    shutil.rmtree(folder / FILES, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
