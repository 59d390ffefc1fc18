"""Room: records. Clients without WebSockets: one request for each sync, and the cursor is all the
state there is.

    POST /records/poll   {"sync": 1, "tables": [{"table": "experiments", "cursor": "…", "pages": true}]}

It is answered at the end of the sync. With a cursor that is up to date it waits for the next change, for a
while; what it says then is a cursor that is newer. No task waits: the answer is a future. A sync that is too
large for one answer comes in pages (paging.py) to who takes them, and is refused to others.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from moorline.access.trail import Acting
from moorline.core.records.cursor import TableCursor
from moorline.core.records.feed_events import How
from moorline.errors import (
    CallFailed,
    DatabaseUnreachable,
    LimitReached,
    NotAuthorized,
    RowTooLarge,
    TableRefused,
)
from moorline.limits import (
    HTTP_BODY_BYTES_MAX,
    RECORDS_POLL_BYTES_MAX,
    RECORDS_POLL_MS,
    RECORDS_POLLS_MAX,
)
from moorline.net.http.messages import JSON, BadRequest, Request, Response, refusal
from moorline.net.http.peer import Peer
from moorline.net.http.routes import Route, Routes
from moorline.net.session_rights import SessionAllowance, SessionRights
from moorline.records.form import POLL, Form
from moorline.records.paging import answer_page
from moorline.records.receiver import Receiver
from moorline.records.session import RecordSession
from moorline.records.subscribing import Tables
from moorline.wire.records import Login, Refused, Subscribe

PATH: Final = "/records/poll"
AGAIN: Final = (("retry-after", "1"),)
NOTHING_YET: Final = 2
"""Parts of an answer in which nothing is said: a start and an end."""

_decoder = msgspec.json.Decoder(Subscribe)


class PollOutlet:
    """Gathers what is said, up to a bound."""

    form: Form = POLL
    is_writable = True

    def __init__(self, peer: Peer, too_large: Callable[[], None]) -> None:
        self.parts: list[bytes] = []
        self.answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._peer = peer
        self._too_large = too_large
        self._size = 0
        self.is_full = False
        """What is said would be more than one answer: no more of it is heard."""

    @property
    def is_entered(self) -> bool:
        return self._peer.is_entered

    @property
    def acting(self) -> Acting:
        return self._peer

    @property
    def rights(self) -> SessionRights:
        return self._peer.rights

    @property
    def allowance(self) -> SessionAllowance | None:
        return self._peer.allowance

    def write(self, packet: Any, /) -> None:
        if self.is_full:
            return
        self.parts.append(packet)
        self._size += len(packet)
        if self._size > RECORDS_POLL_BYTES_MAX:
            self.is_full = True
            self.parts.clear()
            self._too_large()

    async def login(self, said: Login) -> None:  # noqa: ARG002
        raise NotAuthorized("a request shows who it is in its headers")

    def hold_reading(self) -> None: ...
    def release_reading(self) -> None: ...

    def close(self, code: str, text: str) -> None:
        self.complete(refusal(400, code, text))

    def boot(self, why: str) -> None:  # noqa: ARG002
        self.complete(refusal(503, "RESTART", "come back with your cursor", AGAIN))

    def refuse(self, refused: Refused) -> None:
        self.parts = [POLL.message(refused)]
        self.tell()

    def tell(self) -> None:
        if self.is_full and not self.parts:
            return
        self.complete(Response(200, b"[" + b",".join(self.parts) + b"]", JSON))

    def complete(self, response: Response) -> None:
        if not self.answer.done():
            self.answer.set_result(response)


class PollSession(RecordSession):
    def __init__(self, tables: Tables, outlet: PollOutlet) -> None:
        super().__init__(tables, outlet, can_compare=False)
        self.poll = outlet
        self.paging: asyncio.Task[None] | None = None

    def ended(self, receiver: Receiver) -> None:
        # A replay of nothing: it waits for something to say.
        if receiver.told is not How.REPLAY or len(self.poll.parts) > NOTHING_YET:
            self.poll.tell()

    def refuse(self, table: str, code: str, why: str, return_ms: int = 0) -> None:
        super().refuse(table, code, why, return_ms)
        self.poll.tell()


class Polls:
    """All that wait at a node."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._waiting = 0

    def answer(self, request: Request) -> "Response | asyncio.Future[Response]":
        try:
            asked = _decoder.decode(request.body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise BadRequest(f"a subscribe is expected: {error}") from None
        if len(asked.tables) != 1:
            raise BadRequest("one request is of one table: poll for each of them")
        if self._waiting >= RECORDS_POLLS_MAX:
            return refusal(503, "BUSY", "as many polls wait as this node takes", AGAIN)
        outlet = PollOutlet(request.peer, lambda: self._too_large(session, asked))
        session = PollSession(self._tables, outlet)
        timer = asyncio.get_running_loop().call_later(RECORDS_POLL_MS / 1_000, self._late, outlet)
        self._waiting += 1

        def done(_: "asyncio.Future[Response]") -> None:
            # Answered, or the client is gone, or its login has ended.
            self._waiting -= 1
            timer.cancel()
            session.closed()
            if session.paging is not None:
                session.paging.cancel()

        outlet.answer.add_done_callback(done)
        if asked.tables[0].pages and asked.tables[0].cursor:
            session.paging = self._tables.spawn(self._go_on(session, asked))
        else:
            session.heard([asked])
        return outlet.answer

    def _too_large(self, session: PollSession, asked: Subscribe) -> None:
        outlet = session.poll
        if not asked.tables[0].pages:
            text = f"a sync of more than {RECORDS_POLL_BYTES_MAX} bytes needs a WebSocket, or pages"
            outlet.complete(refusal(413, "TOO_LARGE", text))
        else:
            session.paging = self._tables.spawn(self._page(session, asked, None))

    async def _go_on(self, session: PollSession, asked: Subscribe) -> None:
        """With the next page, where the cursor is of one."""
        cursor = await self._tables.signing.open(asked.tables[0].cursor)
        if isinstance(cursor, TableCursor) and cursor.upto:
            await self._page(session, asked, cursor)
        else:
            session.paging = None
            session.heard([asked])

    async def _page(
        self, session: PollSession, asked: Subscribe, cursor: TableCursor | None
    ) -> None:
        outlet, name = session.poll, asked.tables[0].table
        # What is under way of a sync in one answer is over.
        session.closed()
        try:
            found = await answer_page(self._tables, session, asked, cursor)
            if isinstance(found, Refused):
                outlet.refuse(found)
            elif found is None:
                outlet.boot("rights have changed")
            else:
                outlet.complete(Response(200, found, JSON))
        except LimitReached as error:
            outlet.complete(refusal(413, "TOO_LARGE", str(error)))
        except RowTooLarge as error:
            outlet.refuse(Refused(asked.sync, name, error.code, str(error)))
        except (CallFailed, DatabaseUnreachable, TableRefused):
            outlet.complete(refusal(503, "BUSY", "the table cannot be read now", AGAIN))

    def _late(self, outlet: PollOutlet) -> None:
        if outlet.parts:
            outlet.tell()
        else:
            outlet.complete(refusal(503, "BUSY", "the sync takes too long: try again", AGAIN))


def register(routes: Routes, tables: Tables) -> None:
    routes.add(
        Route(
            "POST",
            PATH,
            Polls(tables).answer,
            is_held=True,
            body_bytes_max=HTTP_BODY_BYTES_MAX,
        )
    )
