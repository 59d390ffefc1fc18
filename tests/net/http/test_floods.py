"""Clients that send much at once: it is heard in parts, others come between, and what is held has a bound."""

import asyncio

import pytest
from tests.net.http.port import Port, answer_of, is_closed, opened
from tests.net.http.test_requests import few
from tests.net.http.test_websocket import frame, raw
from tests.waiting import until

from moorline.limits import (
    HTTP_REQUEST_BYTES_MAX,
    WEBSOCKET_CONTROLS_MAX,
    WEBSOCKET_FRAMES_PER_TURN,
    WEBSOCKET_STRANGER_FRAMES_MAX,
)
from moorline.net.http import websocket
from moorline.net.http.messages import Request, Response, text_response
from moorline.net.http.routes import Entry, Route

pytestmark = pytest.mark.slow

READ_BYTES = 300_000
"""More than one read of either loop."""
BURST_BYTES = 4 << 20


class Counting(Port):
    """With routes that count: `/now` is answered at once, and `/soon` some turns later."""

    def __init__(self) -> None:
        super().__init__(descriptors=few(8, 8))
        self.asked = 0
        self.routes.add(
            Route("GET", "/now", self._now, entry=Entry.OPEN),
            Route("GET", "/soon", self._soon, entry=Entry.OPEN),
        )

    def _now(self, _: Request) -> Response:
        self.asked += 1
        return text_response("now")

    async def _soon(self, request: Request) -> Response:
        await asyncio.sleep(0)
        return self._now(request)

    def request(self, path: str) -> bytes:
        return f"GET {path} HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode()


# --- WebSockets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        frame(10, b""),
        frame(10, b"x" * 125),
        frame(9, b""),
        frame(1, b""),
        frame(2, b""),
        frame(2, b"", is_last=False) + frame(0, b"", is_last=False) * 500 + frame(0, b""),
    ],
    ids=["pongs", "long pongs", "pings", "texts", "messages", "fragments"],
)
async def test_who_says_nothing_all_the_time_is_ended(said: bytes) -> None:
    async with opened(Port()) as port:
        reader, writer = await raw(port)
        reading = asyncio.create_task(is_closed(reader))
        writer.write(said * (BURST_BYTES // len(said)))
        await until(lambda: port.handlers[0].ends)
        assert port.handlers[0].ends[0][0] == 1008
        assert len(port.handlers[0].messages) <= WEBSOCKET_CONTROLS_MAX
        assert not port.handlers[0].socket._unheard
        assert (await port.ask("/open"))[0] == 200
        await reading
        writer.close()


async def test_who_says_nothing_now_and_then_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "WEBSOCKET_CONTROLS_MS", 0)
    async with opened(Port()) as port:
        _, writer = await raw(port)
        writer.write(frame(10, b"") * 1_000 + frame(2, b"") * 1_000 + frame(2, b"here"))
        await until(lambda: b"here" in port.handlers[0].messages)
        assert len(port.handlers[0].messages) == 1_001
        writer.close()


async def test_an_empty_end_of_a_message_says_something() -> None:
    async with opened(Port()) as port:
        _, writer = await raw(port)
        writer.write((frame(2, b"x", is_last=False) + frame(0, b"")) * 1_000)
        await until(lambda: len(port.handlers[0].messages) == 1_000)
        assert port.handlers[0].ends == []
        writer.close()


async def test_others_come_between_the_messages_of_one_read() -> None:
    async with opened(Port()) as port:
        reader, writer = await raw(port)
        reading = asyncio.create_task(is_closed(reader))
        handler, total = port.handlers[0], 30_000
        handler.socket.data_received(frame(2, b"x") * total)  # as the loop brings it
        assert 0 < len(handler.messages) <= WEBSOCKET_FRAMES_PER_TURN
        assert (await port.ask("/open"))[0] == 200
        assert len(handler.messages) < total, "the answer comes before all of that is heard"
        writer.write(frame(2, b"behind"))
        await until(lambda: b"behind" in handler.messages)
        assert len(handler.messages) == total + 1
        writer.close()
        await reading


async def test_what_waits_of_a_socket_is_a_read_at_most() -> None:
    async with opened(Port()) as port:
        reader, writer = await raw(port)
        reading = asyncio.create_task(is_closed(reader))
        handler, most = port.handlers[0], 0
        writer.write(frame(2, b"x" * 10) * 60_000)
        while len(handler.messages) < 60_000 and not handler.ends:
            most = max(most, len(handler.socket._unheard))
            await asyncio.sleep(0)
        assert handler.ends == []
        assert 0 < most <= READ_BYTES, "of some 960 KB"
        writer.close()
        await reading


async def test_a_stranger_has_few_frames() -> None:
    async with opened(Port(anonymous="never")) as port:
        _, writer = await raw(port, "/later")
        writer.write(frame(2, b"x") * 10_000)
        await until(lambda: port.handlers[0].ends)
        assert port.handlers[0].ends[0][0] == 1008
        assert len(port.handlers[0].messages) == WEBSOCKET_STRANGER_FRAMES_MAX
        writer.close()


async def test_who_is_held_is_not_heard_from_the_same_read_either() -> None:
    async with opened(Port()) as port:
        reader, writer = await raw(port)
        handler = port.handlers[0]
        heard = handler.message

        def hold(data: str | bytes, /) -> None:
            heard(data)
            handler.socket.hold_reading()

        handler.message = hold  # type: ignore[method-assign]
        writer.write(frame(1, b"a") + frame(1, b"b") + frame(1, b"c"))
        for count in (1, 2, 3):
            assert (await reader.readexactly(3))[:2] == b"\x81\x01"
            assert (await port.ask("/open"))[0] == 200
            assert len(handler.messages) == count
            handler.socket.release_reading()
        writer.close()


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/now", "/soon"])
@pytest.mark.parametrize("is_last", [False, True])
async def test_requests_that_come_together_are_all_answered(path: str, is_last: bool) -> None:
    async with opened(Counting()) as port:
        reader, writer = await port.connect()
        writer.write(port.request(path) * 5)
        if is_last:
            writer.write_eof()
        for _ in range(5):
            assert (await answer_of(reader))[0::2] == (200, b"now")
        if is_last:
            assert await is_closed(reader) == b""
        writer.close()


async def test_a_request_behind_a_body_is_answered() -> None:
    async with opened(Counting()) as port:
        reader, writer = await port.connect()
        head = f"POST /post HTTP/1.1\r\nHost: {port.host}\r\n"
        chunked = f"{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".encode()
        sized = f"{head}Content-Length: 4\r\n\r\nwxyz".encode()
        writer.write((chunked + port.request("/soon") + sized + port.request("/now")) * 3)
        answers = [(await answer_of(reader))[2] for _ in range(12)]
        assert answers == [b"3", b"now", b"4", b"now"] * 3
        assert port.posted == [b"abc", b"wxyz"] * 3
        writer.close()


@pytest.mark.parametrize("path", ["/now", "/soon"])
async def test_others_come_between_the_requests_of_one_read(path: str) -> None:
    async with opened(Counting()) as port:
        reader, writer = await port.connect()
        reading = asyncio.create_task(is_closed(reader))
        await until(lambda: port.server._connections)
        (one,) = port.server._connections
        total = 5_000
        one.data_received(port.request(path) * total)  # as the loop brings it
        assert port.asked <= 1
        assert (await port.ask("/open"))[0] == 200
        assert port.asked < total, "the answer comes before all of them"
        await until(lambda: port.asked == total)
        writer.write_eof()
        assert (await reading).count(b"HTTP/1.1 200") == total
        writer.close()


async def test_what_waits_behind_requests_has_a_bound_though_the_answers_are_read() -> None:
    async with opened(Counting()) as port:
        reader, writer = await port.connect()
        writer.write(port.request("/soon") * 200_000)  # some 9 MB
        await until(lambda: port.server._connections)
        (one,) = port.server._connections
        most = 0
        for _ in range(2_000):
            assert (await answer_of(reader))[0] == 200
            most = max(most, len(one._intake) + len(one._h11.trailing_data[0]))
        assert HTTP_REQUEST_BYTES_MAX < most <= HTTP_REQUEST_BYTES_MAX + READ_BYTES
        writer.transport.abort()


async def test_a_body_in_pieces_of_a_byte_is_one() -> None:
    async with opened(Port()) as port:
        reader, writer = await port.connect()
        head = f"POST /post HTTP/1.1\r\nHost: {port.host}\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode() + b"1\r\nx\r\n" * 1_000 + b"0\r\n\r\n")
        assert (await answer_of(reader))[2] == b"1000"
        writer.close()


# --- places ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", ["Transfer-Encoding: chunked", "Content-Length: 1"])
@pytest.mark.parametrize("path", ["/open", "/who", "/held", "/nothing"])
async def test_a_body_that_nobody_takes_is_not_waited_for(path: str, length: str) -> None:
    async with opened(Port()) as port:
        reader, writer = await port.connect()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {port.host}\r\n{length}\r\n\r\n".encode())
        assert (await answer_of(reader))[0] == (404 if path == "/nothing" else 413)
        assert await is_closed(reader) == b""
        writer.close()


async def test_bodies_that_do_not_come_make_room_for_a_probe() -> None:
    async with opened(Port(descriptors=few(2, 1))) as port:
        head = f"POST /post HTTP/1.1\r\nHost: {port.host}\r\nContent-Length: 9\r\n"
        made = []
        for _ in range(6):
            reader, writer = await port.connect()
            # It says go on when it has read the head.
            writer.write(f"{head}Expect: 100-continue\r\n\r\n".encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
            made.append(writer)
        assert (await port.ask("/open"))[0] == 200
        for writer in made:
            writer.close()


async def test_answers_that_are_not_read_make_room_for_a_probe() -> None:
    async with opened(Port(descriptors=few(2, 1))) as port:
        made = []
        for _ in range(6):
            known = set(port.server._connections)
            _, writer = await port.connect()
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(f"GET /large HTTP/1.1\r\nHost: {port.host}\r\n\r\n".encode() * 9)
            await until(lambda: any(not c._is_writable for c in port.server._connections - known))  # noqa: B023
            made.append(writer)
        assert (await port.ask("/open"))[0] == 200
        for writer in made:
            writer.transport.abort()
