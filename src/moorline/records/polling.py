"""Room: records. Clients without WebSockets: one request for each sync, and the cursor is all the
state there is.

    POST /records/poll   {"sync": 1, "tables": [{"table": "experiments", "cursor": "…"}]}

It is answered at the end of the sync. With a cursor that is up to date it waits for the next change,
for a while; what
it says then is a cursor that is newer. No task waits: the answer is a future.
"""

import asyncio
from typing import Any, Final

import msgspec

from moorline.access.trail import Acting
from moorline.core.records.feed_events import How
from moorline.errors import NotAuthorized
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
from moorline.records.receiver import Receiver
from moorline.records.session import RecordSession
from moorline.records.subscribing import Tables
from moorline.wire.records import Login, Subscribe

PATH: Final = "/records/poll"
AGAIN: Final = (("retry-after", "1"),)
NOTHING_YET: Final = 2
"""Parts of an answer in which nothing is said: a start and an end."""

_decoder = msgspec.json.Decoder(Subscribe)


class PollOutlet:
    """Gathers what is said, up to a bound."""

    form: Form = POLL
    is_writable = True

    def __init__(self, peer: Peer) -> None:
        self.parts: list[bytes] = []
        self.answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._peer = peer
        self._size = 0

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
        self.parts.append(packet)
        self._size += len(packet)
        if self._size > RECORDS_POLL_BYTES_MAX:
            text = f"a sync of more than {RECORDS_POLL_BYTES_MAX} bytes needs a WebSocket"
            self.complete(refusal(413, "TOO_LARGE", text))

    async def login(self, said: Login) -> None:  # noqa: ARG002
        raise NotAuthorized("a request shows who it is in its headers")

    def hold_reading(self) -> None: ...
    def release_reading(self) -> None: ...

    def close(self, code: str, text: str) -> None:
        self.complete(refusal(400, code, text))

    def boot(self, why: str) -> None:  # noqa: ARG002
        self.complete(refusal(503, "RESTART", "come back with your cursor", AGAIN))

    def tell(self) -> None:
        self.complete(Response(200, b"[" + b",".join(self.parts) + b"]", JSON))

    def complete(self, response: Response) -> None:
        if not self.answer.done():
            self.answer.set_result(response)


class PollSession(RecordSession):
    def __init__(self, tables: Tables, outlet: PollOutlet) -> None:
        super().__init__(tables, outlet, can_compare=False)
        self._poll = outlet

    def ended(self, receiver: Receiver) -> None:
        # A replay of nothing: it waits for something to say.
        if receiver.told is not How.REPLAY or len(self._poll.parts) > NOTHING_YET:
            self._poll.tell()

    def refuse(self, table: str, code: str, why: str, return_ms: int = 0) -> None:
        super().refuse(table, code, why, return_ms)
        self._poll.tell()


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
        outlet = PollOutlet(request.peer)
        session = PollSession(self._tables, outlet)
        timer = asyncio.get_running_loop().call_later(RECORDS_POLL_MS / 1_000, self._late, outlet)
        self._waiting += 1

        def done(_: "asyncio.Future[Response]") -> None:
            # Answered, or the client is gone, or its login has ended.
            self._waiting -= 1
            timer.cancel()
            session.closed()

        outlet.answer.add_done_callback(done)
        session.heard([asked])
        return outlet.answer

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
