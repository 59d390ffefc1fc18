"""Room: net/http. One connection: requests one after the other, until it is closed or becomes a WebSocket.

    IDLE ──► HEAD ──► BODY ──► ANSWERING ──► IDLE …     each with a time of its own
                                   └──────► upgraded    the transport is the WebSocket's from then on

h11 parses. What comes while a request is answered waits, within a bound; nothing that a client sends is read
twice or unboundedly, and no step of it has more than its time. Of requests that come together one is answered
at a time, and the next when it is this connection's turn again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import h11

from moorline.core.door import Door
from moorline.limits import (
    HTTP_BODY_MS,
    HTTP_EVENTS_PER_TURN,
    HTTP_IDLE_MS,
    HTTP_REQUEST_BYTES_MAX,
    HTTP_TIMEOUT_MS,
    HTTP_WRITE_MS,
)
from moorline.net.acceptor import Visit
from moorline.net.http.answer import BUSY, MISTAKE, NO_ROOM, SERVED_SOON, written
from moorline.net.http.entrance import Entrance
from moorline.net.http.head import Head, declared_bytes, framing_problem, judged_head, too_large
from moorline.net.http.intake import Intake
from moorline.net.http.logins import Facts, Logins
from moorline.net.http.messages import BadRequest, Request, Response, refusal, text_response
from moorline.net.http.peer import Peer
from moorline.net.http.routes import AnyRoute, Entry, Route, Routes, SocketRoute
from moorline.net.http.strangers import Strangers
from moorline.net.http.turns import Turns
from moorline.net.http.websocket import WebSocket

log = logging.getLogger("moorline.net")


class HttpConnection(asyncio.Protocol):
    """Until its transport is gone; `gone` says when."""

    def __init__(
        self,
        routes: Routes,
        logins: Logins,
        visit: Visit,
        turns: Turns,
        long_stays: Door | None,
        keepalive_ms: int,
        strangers: Strangers,
    ) -> None:
        """`long_stays` is the door at whose expense WebSockets and long polls stay."""
        self._routes = routes
        self._logins = logins
        self._entrance = Entrance(logins, self._ended_by_access)
        self._visit = visit
        self._turns = turns
        self._long_stays = long_stays
        self._keepalive_ms = keepalive_ms
        self._strangers = strangers
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.socket: WebSocket | None = None
        self._transport: asyncio.Transport | None = None
        self._intake = Intake()
        self._timer: asyncio.TimerHandle | None = None
        self._route: AnyRoute | None = None
        self._request: Request | None = None
        """The one whose body is read, or that is answered."""
        self._head = Head()
        self._body = bytearray()
        self._is_answering = False
        self._answer: asyncio.Future[Response] | None = None
        self._is_reading = True
        self._is_in_line = False
        """Whether it waits for its turn."""
        self._is_idle = True
        """Whether nothing of the next request has come."""
        self._has_ended = False
        """Whether the client has said all that it will."""
        self._is_settled = False
        self._is_writable = True
        self._is_over = False

    @property
    def _h11(self) -> h11.Connection:
        return self._intake.h11

    # --- asyncio ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio's without being subclasses of it.
        self._transport = transport = cast("asyncio.Transport", transport)
        if self._visit.is_refused:
            transport.write(BUSY)
            self._close()
            return
        peer = transport.get_extra_info("peername")
        own = transport.get_extra_info("sockname")
        link = transport.get_extra_info("ssl_object")
        self._entrance.facts = Facts(
            str(peer[0]) if peer else "",
            str(own[0]) if own else "",
            link is not None,
            (link.getpeercert(True) or b"") if link is not None else b"",
        )
        self._within(HTTP_TIMEOUT_MS, self._close)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._intake.receive(data)
        if self._is_answering or not self._is_writable or self._is_in_line:
            self._read_or_not()
        elif self._turns.is_crowded:
            self._wait_in_line()
        else:
            self._go_on()

    def eof_received(self) -> bool:
        if self._is_over:
            return False
        is_held = isinstance(self._route, Route) and self._route.is_held
        is_asking = self._is_answering or self._is_in_line or not self._is_writable
        if is_asking and not is_held and not self._entrance.facts.is_encrypted:
            # It has said all that it wants to, and hears the answers.
            self._has_ended = True
            return True
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._is_over = True
        self._stop_timer()
        if self._answer is not None:
            self._answer.cancel()
        self._entrance.end()
        self._set_gone()

    def pause_writing(self) -> None:
        self._is_writable = False
        if not self._is_settled:
            # Who does not read what it asked for makes room for others.
            self._visit.quiet()
        self._within(HTTP_WRITE_MS, self.abort)

    def resume_writing(self) -> None:
        self._is_writable = True
        if self._is_over:
            return
        self._stop_timer()
        if not self._is_answering:
            self._next()

    def abort(self) -> None:
        """Cuts it at once."""
        if self.socket is not None:
            self.socket.abort()
        elif self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """It was cut while it was opened: its transport may be closed by then, and tells nobody."""
        self.abort()
        (self.socket or self).connection_lost(None)

    def stop(self) -> None:
        """The node stops: a WebSocket hears so, and whoever waits for an answer gets none."""
        if self.socket is not None:
            self.socket.close(1001, "STOPPING: the node stops; connect again to another or later")
        else:
            self.abort()

    # --- a request comes in -----------------------------------------------------------------------

    def _begin_head(self) -> None:
        """From its first byte on a request has its time, and no byte renews that."""
        if self._is_idle:
            self._is_idle = False
            self._within(HTTP_TIMEOUT_MS, self._too_slow)

    def _go_on(self) -> None:
        """Hears of what has come as much as one turn allows: a request at most. The rest waits in line."""
        self._is_in_line = False
        if self._is_over or self._is_answering or not self._is_writable:
            return
        if self._intake and self._h11.their_state is h11.IDLE:
            self._begin_head()
        is_left = self._advance()
        if self._is_over or self._is_answering or not self._is_writable:
            self._read_or_not()
        elif is_left:
            self._wait_in_line()
        elif self._has_ended:
            self._close()  # in the middle of a request, or behind the last
        else:
            self._read_or_not()

    def _wait_in_line(self) -> None:
        if not self._is_in_line:
            self._is_in_line = True
            self._turns.wait(self._go_on)
        self._read_or_not()

    def _read_or_not(self) -> None:
        """Nothing is read while more waits here than may."""
        is_wanted = len(self._intake) <= HTTP_REQUEST_BYTES_MAX
        if self._transport is None or self._is_over or is_wanted is self._is_reading:
            return
        self._is_reading = is_wanted
        if is_wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _advance(self) -> bool:
        """Whether something of what has come may be left."""
        try:
            for _ in range(HTTP_EVENTS_PER_TURN):
                if self._is_answering or self._is_over or not self._is_writable:
                    return True
                event = self._intake.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return False
                if isinstance(event, h11.Request):
                    self._take_head(event)
                elif isinstance(event, h11.Data):
                    self._take_body(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    self._whole()
                    return len(self._intake) > 0
                else:
                    self._close()
        except h11.RemoteProtocolError as error:
            self._refuse(text_response("this is not HTTP\n", error.error_status_hint))
        return True

    def _take_head(self, event: h11.Request) -> None:
        self._visit.heard()
        self._is_idle = True
        headers = [(bytes(name), bytes(value)) for name, value in event.headers]
        method = event.method.decode("ascii")
        self._request = request = Request(method, event.target, headers, self._entrance.nobody())
        self._body.clear()
        self._head = judged_head(self._routes, self._logins, self._entrance.facts, request)
        self._route = self._head.route
        has_body = declared_bytes(headers) != 0
        refused = framing_problem(event.http_version, headers, self._head)
        if refused is not None:
            # Where it ends is in doubt, and so is all that follows.
            self._refuse(refused)
            return
        refused = self._head.refused
        if refused is not None and has_body:
            # Its body is not worth reading: whoever sends it hears so at once.
            self._refuse(refused)
            return
        if has_body:
            if not self._is_settled:
                # It has not said all yet: as long as it does not, it makes room for others.
                self._visit.quiet()
            self._within(HTTP_BODY_MS, self._too_slow)
        else:
            self._stop_timer()
        if self._h11.they_are_waiting_for_100_continue:
            self._write(self._h11.send(h11.InformationalResponse(status_code=100, headers=[])))

    def _take_body(self, data: bytes) -> None:
        assert self._request is not None
        self._body += data
        bytes_max = self._route.body_bytes_max if self._route is not None else 0
        if len(self._body) > bytes_max:
            self._refuse(too_large(self._route))

    def _too_slow(self) -> None:
        self._refuse(text_response("the request took too long\n", 408))

    # --- and is answered --------------------------------------------------------------------------

    def _whole(self) -> None:
        request, route = self._request, self._route
        assert request is not None
        self._visit.heard()
        self._stop_timer()
        self._is_answering = True
        if route is None:
            self._send(self._head.refused or MISTAKE)
            return
        request.body = bytes(self._body)
        self._body.clear()
        if route.entry is Entry.OPEN:
            self._serve(route, request)
            return
        if route.entry is Entry.PROVES:
            request.peer = self._entrance.asker(self._head)
            self._serve(route, request)
            return
        try:
            entered = self._entrance.login(self._head, request, is_later=route.entry is Entry.LATER)
        except BadRequest as error:
            self._send(refusal(400, "BAD_REQUEST", str(error)))
            return
        if isinstance(entered, Coroutine):
            self._wait(self._proven(route, request, entered))
        else:
            self._come_in(route, request, entered)

    async def _proven(
        self,
        route: AnyRoute,
        request: Request,
        entering: Coroutine[Any, Any, Peer | Response],
    ) -> Response:
        """Only while a proof is checked there is a task."""
        entered = await entering
        if isinstance(entered, Peer):
            self._keep(entered)
            request.peer = entered
            self._loop.call_soon(self._serve_if_there, route, request)
            return SERVED_SOON
        return entered

    def _serve_if_there(self, route: AnyRoute, request: Request) -> None:
        if not self._is_over:
            self._serve(route, request)

    def _come_in(self, route: AnyRoute, request: Request, entered: Peer | Response) -> None:
        if isinstance(entered, Response):
            self._send(entered)
            return
        self._keep(entered)
        request.peer = entered
        self._serve(route, request)

    def _keep(self, peer: Peer) -> None:
        self._entrance.keep(peer)
        if self._is_over:
            self._entrance.end()

    def _serve(self, route: AnyRoute, request: Request) -> None:
        if not request.peer.is_open:
            self._ended_by_access(request.peer.end_code, request.peer.end_text)
            return
        is_long = isinstance(route, SocketRoute) or route.is_held
        if is_long and not self._settle():
            self._send(NO_ROOM)
            return
        try:
            if isinstance(route, SocketRoute):
                self._open_socket(route, request)
                return
            answer = route.handler(request)
        except BadRequest as error:
            self._send(refusal(400, "BAD_REQUEST", str(error)))
        except Exception:
            log.exception("a handler of HTTP failed", extra={"path": route.path})
            self._send(MISTAKE)
        else:
            if isinstance(answer, Response):
                self._send(answer)
            else:
                self._wait(answer)

    def _wait(self, answer: Awaitable[Response]) -> None:
        self._answer = waiting = asyncio.ensure_future(answer)
        waiting.add_done_callback(self._answered)

    def _answered(self, answer: "asyncio.Future[Response]") -> None:
        if answer is not self._answer:
            if not answer.cancelled():
                answer.exception()  # nobody waits for it any more
            return
        self._answer = None
        if self._is_over:
            if not answer.cancelled():
                answer.exception()
            return
        if answer.cancelled():
            self._close()
            return
        error = answer.exception()
        if error is None:
            if answer.result() is not SERVED_SOON:
                self._send(answer.result())
        elif isinstance(error, BadRequest):
            self._send(refusal(400, "BAD_REQUEST", str(error)))
        else:
            log.error("a handler of HTTP failed", exc_info=error)
            self._send(MISTAKE)

    def _send(self, response: Response) -> None:
        """The answer to the request at hand; then the next, or the end."""
        request = self._request
        if self._is_over or self._h11.our_state not in {h11.SEND_RESPONSE, h11.IDLE}:
            self._close()
            return
        is_head = request is not None and request.method == "HEAD"
        sent = written(self._h11, response, judged=self._head.judged, is_head=is_head)
        self._is_answering = False
        self._request = self._route = None
        self._write(sent)
        if self._is_writable:
            self._next()

    def _next(self) -> None:
        """What was asked is answered, and read: the connection waits for more, or is over."""
        if self._is_over:
            return
        is_answered = self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
        if not is_answered:
            self._close()
            return
        self._intake.next_cycle()
        if self._has_ended and not self._intake:
            self._close()
            return
        if not self._is_settled:
            self._visit.quiet()
        self._within(HTTP_IDLE_MS, self._close)
        if self._intake:
            # Not within this turn: a thousand requests in one read are not one step of the loop.
            self._wait_in_line()
        else:
            self._read_or_not()

    def _refuse(self, response: Response) -> None:
        """Answers, if that can be, and closes: what the client says from here on is not understood."""
        if self._h11.our_state in {h11.SEND_RESPONSE, h11.IDLE} and not self._is_over:
            headers = (*response.headers, ("connection", "close"))
            self._is_answering = True
            self._send(Response(response.status, response.body, response.content_type, headers))
        self._close()

    # --- WebSockets -------------------------------------------------------------------------------

    def _settle(self) -> bool:
        if self._is_settled or self._long_stays is None:
            return True
        self._is_settled = self._visit.settle(self._long_stays)
        return self._is_settled

    def _open_socket(self, route: SocketRoute, request: Request) -> None:
        upgrade = self._head.upgrade
        assert upgrade is not None
        assert self._transport is not None
        made = route.make(request)
        if isinstance(made, Response):
            self._send(made)
            return
        head = h11.InformationalResponse(status_code=101, headers=upgrade.headers)
        self._write(self._h11.send(head))
        self._stop_timer()
        self._is_over = True
        self.socket = WebSocket(
            self._transport,
            made,
            self._entrance.take(),
            subprotocol=upgrade.subprotocol,
            keepalive_ms=self._keepalive_ms,
            message_bytes_max=route.message_bytes_max,
            turns=self._turns,
            extensions=upgrade.extensions,
            gone=self._set_gone,
            entered=self._strangers.left,
        )
        if not self._is_reading:
            self._transport.resume_reading()
        socket = self.socket
        socket.begin(self._intake.rest())
        if socket.is_open and not socket.peer.is_entered:
            self._strangers.came(socket)

    # --- ends -------------------------------------------------------------------------------------

    def _ended_by_access(self, code: str, text: str) -> None:
        """The login is over: who waits for an answer hears why, and nothing is asked by it any more."""
        if self._answer is not None:
            answer, self._answer = self._answer, None
            answer.cancel()
        if self._is_answering:
            self._refuse(refusal(401, code, text))
        else:
            self._close()

    def _write(self, data: bytes | None) -> None:
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _close(self) -> None:
        """Behind what is written; whoever does not read it is cut."""
        if self.socket is not None:
            return
        self._is_over = True
        if self._transport is not None:
            self._transport.close()
            self._within(HTTP_TIMEOUT_MS, self._transport.abort)

    def _within(self, time_ms: int, then: Callable[[], object]) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(time_ms / 1_000, then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_gone(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
