"""Room: client/records. A witness of a table: it hears the digest of its rows, and holds none of them.

    async with moor.witness("experiments") as witness:
        await witness.begun()
        print(witness.latest, witness.has_seen(digest))

It subscribes with a digest that is nobody's, asks the node for its own in the sync by digest that follows,
fetches nothing, and then hears the digest of each step. So a state of a table that was made elsewhere can be
compared with the table at any of the moments that the witness was there, for some hundred bytes. Rows that
change pass by. It sees what its principal may see, as every client does.
"""

import asyncio
import contextlib
import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from types import TracebackType

import msgspec

from moorline.client.records.parts import Parts
from moorline.client.records.settings import RecordSettings
from moorline.config.addresses import Address
from moorline.core.records.feed_events import How
from moorline.core.records.row_hash import NAME
from moorline.core.sets.digest import Digest
from moorline.errors import CallFailed, ConnectionLost, Malformed, MoorlineError
from moorline.limits import RECORD_WITNESSED_MAX
from moorline.net.caller import Caller
from moorline.wire.message import Message
from moorline.wire.records import (
    Fetch,
    FromClient,
    FromNode,
    RecordMessages,
    Refused,
    Subscribe,
    SyncEnd,
    SyncStart,
    TableSubscription,
    Told,
    Verify,
)

log = logging.getLogger("moorline.client")

NOBODYS = Digest(1, b"\xa5" * 16)
"""What it says that it holds. Of a table with that digest it would hear so, which is as good."""

PASSING = frozenset({"BUSY", "NOT_READY"})


class TableWitness:
    """Made by `Moor.witness`; it comes back by itself, like a copy."""

    def __init__(
        self,
        dial: Callable[[], Awaitable[tuple[Caller, Address]]],
        table: str,
        settings: RecordSettings | None = None,
    ) -> None:
        self.table = table
        self.salt: int | None = None
        """Of the hashes; another one behind a new registration."""
        self.latest: Digest | None = None
        self._dial = dial
        self._settings = settings or RecordSettings()
        self._seen: OrderedDict[Digest, None] = OrderedDict()
        self._sync = 0
        self._caller: Caller | None = None
        self._parts = Parts()
        self._running: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[None] | None = None
        self._leaving: Caller | None = None
        self._return_ms = 0

    def has_seen(self, digest: Digest) -> bool:
        """Whether the table had it at one of the last moments."""
        return digest in self._seen

    async def begun(self) -> None:
        """Waits for the first digest; raises what the node has against it, or why there is no link."""
        assert self._begun is not None, "use it in `async with`"
        await asyncio.shield(self._begun)

    async def __aenter__(self) -> "TableWitness":
        self._begun = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        self._conclude(ConnectionLost("the witness was closed"))
        if self._leaving is not None:
            await asyncio.wait([self._leaving.gone], timeout=1)

    # --- the link ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        tries = 0
        while True:
            try:
                self._caller, _ = await self._dial()
            except (MoorlineError, OSError) as error:
                self._conclude(error)
            else:
                tries = 0
                await self._serve(self._caller)
            pause_ms = self._settings.pause_ms(tries, random.random()) + self._return_ms
            self._return_ms = 0
            await asyncio.sleep(pause_ms / 1_000)
            tries += 1

    async def _serve(self, caller: Caller) -> None:
        try:
            self._parts = Parts()
            caller.pushed = self._pushed
            self._sync += 1
            wanted = TableSubscription(self.table, digest=bytes(NOBODYS))
            self._say(Subscribe(self._sync, [wanted]))
            await asyncio.shield(caller.lost)
        finally:
            caller.close("DONE", "the witness is done")
            self._leaving, self._caller = caller, None

    def _say(self, message: FromClient) -> None:
        if self._caller is not None:
            self._caller.send(RecordMessages(msgspec.msgpack.encode([message])))

    def _pushed(self, messages: list[Message]) -> None:
        try:
            for message in messages:
                if isinstance(message, RecordMessages):
                    for one in self._parts.take(message):
                        self._hear(one)
        except (MoorlineError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            log.warning("a node and a witness did not understand each other: %s", error)
            if self._caller is not None:
                self._caller.close("MALFORMED", str(error)[:200])

    # --- what is heard ----------------------------------------------------------------------------

    def _hear(self, message: FromNode) -> None:
        if message.table != self.table:
            return
        match message:
            case SyncStart():
                self._start(message)
            case Told(sync, _, digest) if sync == self._sync and digest is not None:
                self._note(Digest.from_bytes(digest))
                self._say(Fetch(self._sync, self.table, []))
            case SyncEnd():
                self._note(Digest.from_bytes(message.digest))
                self._conclude(None)
            case Refused():
                self._refused(message)
            case _:
                pass  # a row that passes by

    def _start(self, start: SyncStart) -> None:
        if start.how == How.LIVE.value:
            return
        if start.hash != NAME or not start.salt:
            raise Malformed(f"a digest of {start.hash[:40]!r}, and we know {NAME}")
        salt = int(start.salt, 16)
        if salt != self.salt:
            # Digests with another salt say nothing about those with this one.
            self._seen.clear()
            self.salt, self.latest = salt, None
        if start.how == How.DIGEST.value:
            self._say(Verify(self._sync, self.table, bytes(NOBODYS), sketches=False))

    def _note(self, digest: Digest) -> None:
        self.latest = digest
        self._seen[digest] = None
        self._seen.move_to_end(digest)
        if len(self._seen) > RECORD_WITNESSED_MAX:
            self._seen.popitem(last=False)

    def _refused(self, refused: Refused) -> None:
        self._return_ms = refused.return_ms
        if refused.code not in PASSING:
            code = "DENIED" if refused.code == "NOT_GRANTED" else refused.code
            self._conclude(CallFailed.of(code, f"{self.table}: {refused.why}"))
        if self._caller is not None:
            self._caller.close("DONE", "refused")

    def _conclude(self, error: BaseException | None) -> None:
        begun = self._begun
        if begun is None or begun.done():
            return
        if error is None:
            begun.set_result(None)
        else:
            begun.set_exception(error)
            begun.exception()  # it may be that nobody waits any more
