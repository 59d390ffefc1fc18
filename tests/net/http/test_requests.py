"""Requests over real sockets: routes, keep-alive, bodies, and clients that are slow, wrong or too many."""

import asyncio
import json

import pytest
from tests.net.http.port import Port, answer_of, is_closed, opened
from tests.waiting import until

from moorline.core.descriptors import Descriptors, Shares, Use
from moorline.limits import HTTP_HEADERS_MAX, HTTP_REQUEST_BYTES_MAX
from moorline.net.http import connection
from moorline.net.http.messages import text_response

CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"


async def test_routes_by_method_path_and_prefix() -> None:
    async with opened(Port()) as port:
        assert (await port.ask("/open"))[0::2] == (200, b"open")
        assert (await port.ask("/open?a=b"))[0] == 200
        assert (await port.ask("/open/"))[0] == 404
        assert (await port.ask("/below/a%20b/%C3%A9//..c"))[0::2] == (200, "a b/é//..c".encode())
        for rest in (
            "a%2Fb",
            "a%2fb",
            "..",
            "../open",
            "a/%2e%2E/b",
            ".%2e",
            "a/.",
            "a%5C..",
            "%00",
        ):
            assert (await port.ask("/below/" + rest))[0] == 400, rest
        assert (await port.ask("/below/%FF"))[0] == 400
        assert (await port.ask("/below"))[0] == 404
        status, headers, _ = await port.ask("/open", method="DELETE")
        assert (status, headers["allow"]) == (405, "get, head")
        status, headers, body = await port.ask("/open", method="HEAD")
        assert (status, headers["content-length"], body) == (200, "4", b"")
        assert json.loads((await port.ask("/query?a=1&b=%20"))[2]) == {"a": "1", "b": " "}
        assert (await port.ask("/query?a=1&a=2"))[0] == 400
        assert (await port.ask("/query?" + "&".join(f"f{n}=1" for n in range(70))))[0] == 400


async def test_what_a_browser_has_is_not_sent_again() -> None:
    async with opened(Port()) as port:
        status, headers, body = await port.ask("/script.js")
        assert (status, body, headers["content-type"]) == (200, b"'script'", "text/javascript")
        tag = headers["etag"]
        status, headers, body = await port.ask("/script.js", f'If-None-Match: "x", W/{tag}')
        assert (status, headers["etag"], body) == (304, tag, b"")
        assert (await port.ask("/script.js", 'If-None-Match: "x"'))[0] == 200


async def test_a_connection_serves_many_requests_also_if_they_come_at_once() -> None:
    async with opened(Port()) as port:
        reader, writer = await port.connect()
        asked = f"GET /open HTTP/1.1\r\nHost: {port.host}\r\n\r\n".encode()
        for _ in range(3):
            writer.write(asked)
            assert (await answer_of(reader))[0] == 200
        writer.write(asked * 1_000)
        for _ in range(1_000):
            assert (await answer_of(reader))[2] == b"open"
        writer.close()


async def test_a_body_is_taken_within_its_bound() -> None:
    async with opened(Port()) as port:
        reader, writer = await port.connect()
        head = f"POST /post HTTP/1.1\r\nHost: {port.host}\r\n"
        writer.write(f"{head}Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"x" * 1_000)
        assert (await answer_of(reader))[2] == b"1000"
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".encode())
        assert (await answer_of(reader))[2] == b"3"
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        writer.write(b"3e9\r\n" + b"y" * 1_001 + b"\r\n")
        assert (await answer_of(reader))[0] == 413
        await is_closed(reader)
        reader, writer = await port.connect()
        writer.write(f"{head}Content-Length: 1001\r\n\r\n".encode())
        assert (await answer_of(reader))[0] == 413
        await is_closed(reader)
        assert [len(body) for body in port.posted] == [1_000, 3]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET /open\r\n\r\n", 400),
        (b"GET /open HTTP/1.1\r\n\r\n", 400),
        (b"GET /open HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /open HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n\r\n", 400),
        (b"GET /open HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET /open HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET /open HTTP/1.1\r\nHost: a\r\nX: " + b"x" * HTTP_REQUEST_BYTES_MAX, 431),
        (b"GET /open HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * HTTP_HEADERS_MAX + b"\r\n", 431),
        (b"GET http://a/open HTTP/1.1\r\nHost: a\r\n\r\n", 404),
        (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 404),
        (b"GET /who HTTP/1.0\r\n\r\n", 400),
        (b"POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n" + CHUNKED, 400),
        (b"POST /post HTTP/1.0\r\nHost: a\r\n" + CHUNKED, 400),
        (b"GET /open HTTP/1.1\nHost: a\n\n", 400),
        (b"GET /open HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400),
        (b"GET /open HTTP/1.1\r\nHost: a\r\n\n", 400),
        (b"GET /open HTTP/1.1\r\nHost: a\r\nX: a\rb: c\r\n\r\n", 400),
        (b"GET /open HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", 400),
        (b"GET /open HTTP/1.1\r\nHost: a\r\nX: a\r\n\tOrigin: b\r\n\r\n", 400),
        (b"GET /open HTTP/1.1\r\nHost: a\r\nX: " + b"x" * (1 << 14) + b"\r\n\r\n", 431),
    ],
)
async def test_what_is_wrong_is_refused(said: bytes, status: int) -> None:
    async with opened(Port()) as port:
        reader, writer = await port.connect()
        writer.write(said)
        assert (await answer_of(reader))[0] == status
        writer.close()
        assert (await port.ask("/open"))[0] == 200


async def test_a_mistake_of_a_handler_is_one_answer(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(Port()) as port:
        assert (await port.ask("/mistake"))[0] == 500
        assert (await port.ask("/open"))[0] == 200
    assert "a mistake of the test's own" in caplog.text


async def test_a_head_that_comes_byte_by_byte_has_no_more_time_than_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "HTTP_TIMEOUT_MS", 300)
    async with opened(Port()) as port:
        reader, writer = await port.connect()

        async def drip() -> None:
            for byte in b"GET /open HTTP/1.1\r\nX: " + b"x" * 100_000:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.005)

        dripping = asyncio.create_task(drip())
        assert (await answer_of(reader))[0] == 408
        dripping.cancel()
        silent, _ = await port.connect()
        assert await is_closed(silent) == b""


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HTTP_BODY_MS", 100)
    async with opened(Port()) as port:
        reader, writer = await port.connect()
        writer.write(
            f"POST /post HTTP/1.1\r\nHost: {port.host}\r\nContent-Length: 9\r\n\r\n1".encode()
        )
        assert (await answer_of(reader))[0] == 408
        await is_closed(reader)
        assert port.posted == []


async def test_who_does_not_read_its_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HTTP_WRITE_MS", 100)
    async with opened(Port()) as port:
        _, writer = await port.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(f"GET /large HTTP/1.1\r\nHost: {port.host}\r\n\r\n".encode() * 20)
        await until(lambda: len(port.server.door) == 1)
        await until(lambda: len(port.server.door) == 0)
        writer.transport.abort()


async def test_who_asks_and_asks_and_does_not_read_is_not_read_from() -> None:
    async with opened(Port()) as port:
        _, writer = await port.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(f"GET /large HTTP/1.1\r\nHost: {port.host}\r\n\r\n".encode() * 400_000)
        await until(lambda: port.server._connections)
        (one,) = port.server._connections
        await until(lambda: len(one._intake) > HTTP_REQUEST_BYTES_MAX)
        await until(lambda: not one._is_writable)
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert len(one._intake) < HTTP_REQUEST_BYTES_MAX + 1_000_000, "of some 20 MB"
        writer.transport.abort()


async def test_a_long_poll_is_answered_later_and_ends_with_its_client() -> None:
    async with opened(Port()) as port:
        asked = asyncio.create_task(port.ask("/held"))
        await until(lambda: port.waiting)
        assert port.connections.guests == 1
        port.waiting[0].set_result(text_response("now"))
        assert (await asked)[0::2] == (200, b"now")
        _, writer = await port.connect()
        writer.write(f"GET /held HTTP/1.1\r\nHost: {port.host}\r\n\r\n".encode())
        await until(lambda: len(port.waiting) == 2)
        writer.close()
        await until(lambda: port.waiting[1].cancelled())
        await until(lambda: port.connections.guests == 0)


def few(http: int, connections: int) -> Descriptors:
    most = dict.fromkeys(Use, 2) | {Use.HTTP: http, Use.CONNECTIONS: connections}
    return Descriptors(Shares(100_000, 100, 100, most))


async def test_connections_that_wait_for_nothing_make_room_for_a_probe() -> None:
    """Idle ones behind an answer, and long polls, which have places of their own."""
    async with opened(Port(descriptors=few(2, 1))) as port:
        for _ in range(6):
            reader, writer = await port.connect()
            writer.write(f"GET /open HTTP/1.1\r\nHost: {port.host}\r\n\r\n".encode())
            assert (await answer_of(reader))[0] == 200
        polls = asyncio.create_task(port.ask("/held"))
        await until(lambda: port.waiting)
        assert (await port.ask("/held"))[0] == 503, "the places of connections are taken"
        for _ in range(4):
            assert (await port.ask("/open"))[0] == 200
        port.waiting[0].set_result(text_response("now"))
        assert (await polls)[0] == 200
