"""Room: node. The side that has a home: does what core/home_move.py asks for, one thing after the other.

    CopyPass    read, send, and hear what the other node has of it     while the home serves
    CloseHome   end the node that serves it, give its identity back, keep the lock of its folder
    CopyRest    the same once more, and both digests
    HandOver    the digest into the catalog; the other node takes the home
    OpenHome    serve it again, if the catalog lets us
    LetGo       set the files aside, and serve without them

The mover outlives the node whose home it moves, so it has a catalog and a link of its own. What is wrong is
told in the catalog, for whoever waits for the move.
"""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from moorline.access.known_nodes import KnownNodes
from moorline.catalog import Catalog
from moorline.catalog.home_moves import HomeMoves, MoveRow, Progress, Wanted
from moorline.catalog.users import Users
from moorline.cluster.links import Links
from moorline.config.addresses import listen_address
from moorline.config.settings import Config
from moorline.core.effects import Effect, Event
from moorline.core.home_move import (
    Begin,
    Closed,
    CloseHome,
    CopyPass,
    CopyRest,
    GivenUp,
    HandedOver,
    HandOver,
    HomeMove,
    LetGo,
    MoveState,
    Opened,
    OpenHome,
    PassDone,
    Pause,
    Paused,
    RestCopied,
    StepFailed,
)
from moorline.errors import CannotMove, HomeMoved, MoorlineError, Unreachable
from moorline.journal.home_copy.index import FileSet, HomeFiles
from moorline.journal.home_copy.sending import Batch, HomeSending
from moorline.limits import (
    HOME_MOVE_BYTES_PER_S,
    HOME_MOVE_CALL_MS_MAX,
    HOME_MOVE_LOOK_MS,
    HOME_MOVE_SETTLE_MS_MAX,
    HOME_MOVE_STANDSTILL_MS_MAX,
)
from moorline.net.caller import Caller, Make
from moorline.net.clock import boot_ms, monotonic_ms
from moorline.node.folder import HOME_FILES, HOME_FOLDERS, home_moves, locked, no_room
from moorline.node.set_aside import forget_leaving, note_leaving
from moorline.wire.bounds import cut
from moorline.wire.home_move import BeginCopy, CopyTold, Piece, PutPieces, SettleCopy, TakeHome

log = logging.getLogger("moorline.node")

T = TypeVar("T")

INDEX = "home.sending"
"""Of what was sent of a home, beside its files; it goes when the move is over."""


class Hosted(Protocol):
    """A home that this process serves, as a mover needs it."""

    config: Config

    @property
    def catalog_dsn(self) -> str: ...

    @property
    def node_id(self) -> bytes: ...

    @property
    def incarnation(self) -> bytes: ...

    async def close(self) -> None:
        """Serves nobody any more; returns when all that was answered is in the files."""

    async def open(self) -> None:
        """Serves again. `HomeMoved` if the home is at another node."""

    async def let_go(self) -> None:
        """The home is another node's: sets its files aside, and serves what is left to serve."""


class Mover:
    """One move of one home."""

    def __init__(self, hosted: Hosted, wanted: Wanted, catalog: Catalog) -> None:
        self._hosted = hosted
        self._wanted = wanted
        self._moves = HomeMoves(catalog)
        config = hosted.config
        nodes = KnownNodes(
            Users(catalog),
            revocation_ms=config.access.revocation_ms,
            stale_ms=config.access.stale_ms,
        )
        self._links = Links(config, catalog, wanted.name, nodes.secrets)
        self._machine = HomeMove(f"move of {wanted.name}")
        self._folder = Path(config.data)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="home-move")
        self._sending: HomeSending | None = None
        self._caller: Caller | None = None
        self._is_anew = False
        """What the other node has of the home by now is not what it was sent."""
        self._lock = contextlib.ExitStack()
        self._proven: FileSet | None = None
        self._closed_ms = 0
        self._progress = Progress()
        self._noted_ms = 0
        self._problem = ""
        self._performers: dict[type[Effect], Callable[[Any], Any]] = {
            CopyPass: self._copy_pass,
            CloseHome: self._close_home,
            CopyRest: self._copy_rest,
            HandOver: self._hand_over,
            OpenHome: self._open_home,
            LetGo: self._let_go,
            Pause: self._pause,
        }

    async def run(self) -> None:
        """To its end, whatever that is."""
        log.warning("a home is copied to another node", extra={"home": self._wanted.name})
        event: Event = Begin()
        try:
            while True:
                if not self._machine.has_ended and await self._is_given_up():
                    self._machine.handle(GivenUp(), boot_ms())
                effects = self._machine.handle(event, boot_ms())
                self._machine.check()
                if not effects:
                    break
                (effect,) = effects
                event = await self._performed(effect)
                if self._machine.state is MoveState.GONE:
                    break
        finally:
            await self._end()

    async def _performed(self, effect: Effect) -> Event:
        try:
            event: Event = await self._performers[type(effect)](effect)
        except Exception as error:
            if isinstance(effect, LetGo):
                raise  # nobody serves here: the process ends, and its next start goes on
            text = self._words_of(error)
            if not isinstance(error, MoorlineError | OSError | TimeoutError | sqlite3.Error):
                # A mistake of ours, or damage that nobody thought of: the home is served all the same, and
                # the process, with the homes of others in it, does not end at each of its starts for it.
                log.exception("a step of a move failed in an unknown way")
            if text != self._problem:
                # Once: what an operator has to change first is tried again every second until then.
                what = {"home": self._wanted.name, "step": type(effect).__name__, "error": text}
                log.warning("a step of a move failed", extra=what)
            self._problem = text
            self._hang_up()
            await self._note()
            return StepFailed()
        if not isinstance(effect, Pause):
            self._problem = ""
        return event

    def _words_of(self, error: Exception) -> str:
        if isinstance(error, sqlite3.Error) and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            return str(no_room(self._folder))
        return str(error) or "no answer in time"

    async def _end(self) -> None:
        self._hang_up()
        self._lock.close()
        if self._machine.state is MoveState.OVER:
            with contextlib.suppress(MoorlineError, OSError, TimeoutError):
                text = self._problem or "it could not be handed over: see the log of its node"
                await self._moves.note(self._wanted.id, "failed", cut(text), self._progress)
        log.warning(
            "the move is over",
            extra={"home": self._wanted.name, "moved": self._machine.state is MoveState.GONE},
        )
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.stop()
            self._threads.submit(sending.close)
        self._threads.shutdown(wait=False)
        if self._machine.has_ended:
            for file in self._folder.glob(f"{INDEX}*"):
                file.unlink(missing_ok=True)

    async def _is_given_up(self) -> bool:
        """Where nobody can say, it goes on: the catalog is asked again before anything counts."""
        try:
            row = await self._moves.of_home(self._wanted.home)
        except (MoorlineError, OSError, TimeoutError):
            return False
        return row is None or row.id != self._wanted.id or row.state in ("cancelled", "failed")

    # --- what the machine asks for ----------------------------------------------------------------

    async def _copy_pass(self, _: CopyPass) -> Event:
        sending = await self._reached()
        copied = await self._copied(sending, HOME_MOVE_BYTES_PER_S)
        if copied is None:
            return StepFailed()
        told = await self._settled()
        if not await self._is_copied(sending, told):
            raise CannotMove("the other node has not what it was sent: it is sent everything anew")
        return PassDone(copied)

    async def _close_home(self, _: CloseHome) -> Event:
        note_leaving(self._folder, self._wanted.name, home_moves(self._folder))
        await self._hosted.close()
        # Whoever starts on the folder now is refused, until we open it ourselves or let it go.
        self._lock.enter_context(locked(self._folder))
        incarnation = self._hosted.incarnation
        if not await self._moves.closed(self._wanted.id, self._hosted.node_id, incarnation):
            raise CannotMove("the move was given up")
        self._closed_ms = boot_ms()
        return Closed()

    async def _copy_rest(self, _: CopyRest) -> Event:
        if (row := await self._moves.of_home(self._wanted.home)) is not None and _is_done(
            row, self._wanted.id
        ):
            return HandedOver()
        async with asyncio.timeout(self._standstill_left_ms() / 1_000):
            sending = await self._reached()
            await self._copied(sending, None)
            here, told = await self._run(sending.look), await self._settled()
        if here != told:
            await self._is_copied(sending, told)
            return RestCopied(is_equal=False)
        assert here.files, "a proof over nothing"
        self._proven = here
        return RestCopied(is_equal=True)

    async def _hand_over(self, _: HandOver) -> Event:
        proven = self._proven
        assert proven is not None, "nothing was proven"
        move, incarnation = self._wanted.id, self._hosted.incarnation
        if not await self._moves.proven(move, incarnation, *proven):
            raise CannotMove("the move was given up, or the home was claimed by another process")
        make = partial(TakeHome, move=move, files=proven.files, hash=proven.hash)
        await self._call(make, min(HOME_MOVE_CALL_MS_MAX, self._standstill_left_ms()))
        return HandedOver()

    def _standstill_left_ms(self) -> int:
        """What hangs is given up when the home is to be opened again."""
        return max(1, self._closed_ms + HOME_MOVE_STANDSTILL_MS_MAX - boot_ms())

    async def _open_home(self, _: OpenHome) -> Event:
        self._lock.close()
        self._proven = None
        try:
            await self._hosted.open()
        except HomeMoved:
            return Opened(is_ours=False)
        forget_leaving(self._folder)
        with contextlib.suppress(MoorlineError, OSError, TimeoutError):
            await self._moves.opened_again(self._wanted.id)
        return Opened(is_ours=True)

    async def _let_go(self, _: LetGo) -> Event:
        self._lock.close()
        await self._hosted.let_go()
        return Paused()

    async def _pause(self, effect: Pause) -> Event:
        await asyncio.sleep(effect.after_ms / 1_000)
        return Paused()

    # --- the other node ---------------------------------------------------------------------------

    async def _reached(self) -> HomeSending:
        """The other node hears us, and both know from where on to go on."""
        if self._caller is not None and self._caller.is_open and self._sending is not None:
            return self._sending
        self._caller = await self._opened()
        if self._sending is None:
            files = HomeFiles(self._folder, HOME_FILES, HOME_FOLDERS)
            self._sending = await self._run(HomeSending, files, self._folder / INDEX)
        sending = self._sending
        size = await self._run(partial(sending.begin, is_new=False))
        self._progress = Progress(bytes=size)
        make = partial(
            BeginCopy,
            move=self._wanted.id,
            home=self._wanted.name,
            bytes=size,
            is_anew=self._is_anew,
        )
        told = await self._call(make, HOME_MOVE_CALL_MS_MAX)
        self._is_anew = False
        if told.is_new:
            await self._run(partial(sending.begin, is_new=True))
        else:
            self._progress = Progress(bytes=size, bytes_copied=min(told.bytes, size))
        return sending

    async def _is_copied(self, sending: HomeSending, told: FileSet) -> bool:
        """If not, nobody knows what the other node has of it: it begins with nothing."""
        if await self._run(sending.is_copied, told):
            return True
        self._is_anew = True
        self._hang_up()
        return False

    async def _opened(self) -> Caller:
        row = await self._moves.of_home(self._wanted.home)
        if row is None or row.target_home is None or not row.addresses:
            raise Unreachable("the node that is to have the home is not there")
        error: MoorlineError = Unreachable("the node that is to have the home has no address")
        for text in row.addresses:
            try:
                return await self._links.opened(row.target_home, listen_address(text))
            except MoorlineError as found:
                error = found
        raise error

    async def _copied(self, sending: HomeSending, bytes_per_s: int | None) -> int | None:
        """The bytes of one pass; None if the move was given up in the middle of it."""
        await self._run(sending.begin_pass)
        copied, began_ms = 0, monotonic_ms()
        while (batch := await self._run(sending.next_batch)) is not None:
            await self._put(batch)
            await self._run(sending.confirm, batch)
            copied += batch.bytes
            done = self._progress
            self._progress = Progress(
                done.files + len(batch.whole),
                done.bytes,
                min(done.bytes, done.bytes_copied + batch.bytes),
            )
            is_wanted = await self._noted_now_and_then()
            if bytes_per_s is None:
                continue
            if not is_wanted:
                return None
            ahead_s = copied / bytes_per_s - (monotonic_ms() - began_ms) / 1_000
            if ahead_s > 0:
                await asyncio.sleep(ahead_s)
        return copied

    async def _put(self, batch: Batch) -> None:
        pieces = tuple(Piece(*part) for part in batch.parts)
        make = partial(PutPieces, move=self._wanted.id, pieces=pieces, gone=tuple(batch.gone))
        await self._call(make, HOME_MOVE_CALL_MS_MAX)

    async def _settled(self) -> FileSet:
        told = await self._call(partial(SettleCopy, move=self._wanted.id), HOME_MOVE_SETTLE_MS_MAX)
        return FileSet(told.files, told.bytes, told.hash)

    async def _call(self, make: Make, within_ms: int) -> CopyTold:
        if self._caller is None:
            raise Unreachable("there is no link to the node that is to have the home")
        async with asyncio.timeout(within_ms / 1_000):
            return await self._caller.call(make, CopyTold)

    def _hang_up(self) -> None:
        if self._caller is not None:
            self._caller.close("DONE", "the copy is done, or begun anew")
            self._caller = None

    # --- whoever waits for the move ---------------------------------------------------------------

    async def _noted_now_and_then(self) -> bool:
        if monotonic_ms() - self._noted_ms < HOME_MOVE_LOOK_MS:
            return True
        return await self._note()

    async def _note(self) -> bool:
        """False if the move is not wanted any more."""
        self._noted_ms = monotonic_ms()
        state = "copying" if self._machine.state is MoveState.COPYING else "handing"
        try:
            return await self._moves.note(
                self._wanted.id, state, cut(self._problem), self._progress
            )
        except (MoorlineError, OSError, TimeoutError):
            return True

    async def _run(self, work: Callable[..., T], *given: Any) -> T:
        """In the thread that has the files."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)


def _is_done(row: MoveRow, move: bytes) -> bool:
    return row.id == move and row.state == "done"


@contextlib.asynccontextmanager
async def mover(hosted: Hosted, wanted: Wanted) -> AsyncIterator[Mover]:
    """With a catalog that stays when the node of the home ends."""
    async with Catalog.open(hosted.catalog_dsn) as catalog:
        yield Mover(hosted, wanted, catalog)
