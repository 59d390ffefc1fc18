"""WebSockets over real sockets, against the client of somebody else: messages, ends, slow and dead peers."""

import asyncio
import os
import zlib

import pytest
from tests.net.http.port import Port, answer_of, is_closed, opened
from tests.waiting import until
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from moorline.limits import (
    HTTP_REQUEST_BYTES_MAX,
    WEBSOCKET_BUFFER_BYTES,
    WEBSOCKET_FRAGMENTS_MAX,
    WEBSOCKET_MESSAGE_BYTES_MAX,
)
from moorline.net.http import strangers, websocket
from moorline.wire.websocket import frame_text

PATIENCE_S = 60
UPGRADE = (
    "Upgrade: websocket",
    "Connection: keep-alive, Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
SOCKETS = 500


async def received(client: ClientConnection) -> str | bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await client.recv()


async def end_of(client: ClientConnection) -> tuple[int | None, str | None]:
    async with asyncio.timeout(PATIENCE_S):
        await client.wait_closed()
    return client.close_code, client.close_reason


async def raw(
    port: Port, path: str = "/socket"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await port.connect()
    lines = [f"GET {path} HTTP/1.1", f"Host: {port.host}", *UPGRADE, "", ""]
    writer.write("\r\n".join(lines).encode())
    assert (await answer_of(reader))[0] == 101
    return reader, writer


def frame(opcode: int, payload: bytes, *, is_last: bool = True, rsv: int = 0) -> bytes:
    """Of a client, masked with nothing but zeros."""
    head = bytes([(0x80 if is_last else 0) | rsv | opcode])
    size = len(payload)
    if size <= 125:
        return head + bytes([0x80 | size]) + bytes(4) + payload
    if size <= 65_535:
        return head + bytes([0x80 | 126]) + size.to_bytes(2) + bytes(4) + payload
    return head + bytes([0x80 | 127]) + size.to_bytes(8) + bytes(4) + payload


async def test_messages_of_both_kinds_go_both_ways() -> None:
    async with opened(Port()) as port, connect(port.socket_url("/socket")) as client:
        for said in ("", "é", "x" * 300_000, b"", b"\x00\xff", os.urandom(70_000)):
            await client.send(said)
            assert await received(client) == said
        await client.send(["one ", "and ", "two"])
        assert await received(client) == "one and two"
        await (await client.ping())
        await client.close(4_000, "done")
        await until(lambda: port.handlers[0].ends)
        assert port.handlers[0].ends == [(4_000, "done")]
        assert not port.entered[0].is_open
        await until(lambda: port.connections.guests == 0)


async def test_a_frame_that_is_made_once_is_for_all() -> None:
    async with opened(Port()) as port:
        clients = [await connect(port.socket_url("/socket")) for _ in range(20)]
        made = frame_text(b"for all")
        await until(lambda: len(port.handlers) == 20)
        for handler in port.handlers:
            handler.socket.write(made)
        assert [await received(client) for client in clients] == ["for all"] * 20
        for client in clients:
            await client.close()


async def test_subprotocols_are_agreed_on() -> None:
    async with opened(Port()) as port:
        url = port.socket_url("/socket")
        async with connect(url, subprotocols=["none", "other", "mqtt"]) as client:  # type: ignore[list-item]
            assert client.subprotocol == "other"
            assert port.handlers[0].socket.subprotocol == "other"
            assert port.handlers[0].request.subprotocols == ("none", "other", "mqtt")
        async with connect(url, subprotocols=["none"]) as client:  # type: ignore[list-item]
            assert client.subprotocol is None
        with pytest.raises(InvalidStatus) as caught:
            await connect(port.socket_url("/mqtt"))
        assert caught.value.response.status_code == 400


async def test_a_subject_may_refuse_an_upgrade() -> None:
    async with opened(Port()) as port:
        with pytest.raises(InvalidStatus) as caught:
            await connect(port.socket_url("/never"))
        assert caught.value.response.status_code == 403


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({0: "Upgrade: other"}, 426),
        ({1: "Connection: close"}, 400),
        ({2: "Sec-WebSocket-Version: 12"}, 426),
        ({3: "Sec-WebSocket-Key: short"}, 400),
        ({3: "X: y"}, 400),
    ],
)
async def test_an_upgrade_that_is_none_is_refused(changed: dict[int, str], status: int) -> None:
    async with opened(Port()) as port:
        headers = [changed.get(number, header) for number, header in enumerate(UPGRADE)]
        assert (await port.ask("/socket", *headers))[0] == status
        assert port.handlers == []


async def test_what_comes_right_behind_the_upgrade_is_heard() -> None:
    async with opened(Port()) as port:
        reader, writer = await port.connect()
        lines = ["GET /socket HTTP/1.1", f"Host: {port.host}", *UPGRADE, "", ""]
        writer.write("\r\n".join(lines).encode() + frame(1, b"early"))
        assert (await answer_of(reader))[0] == 101
        assert await reader.readexactly(7) == b"\x81\x05early"
        writer.close()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (frame(2, b"x" * (WEBSOCKET_MESSAGE_BYTES_MAX + 1)), 1009),
        (bytes([0x82, 0xFF]) + (1 << 62).to_bytes(8) + bytes(4) + b"x" * (1 << 21), 1009),
        (frame(2, b"x", is_last=False) + frame(0, b"y" * (1 << 20), is_last=False), 1009),
        (
            frame(2, b"", is_last=False) + frame(0, b"", is_last=False) * WEBSOCKET_FRAGMENTS_MAX,
            1008,
        ),
        (bytes([0x81, 0x01]) + b"x", 1002),
        (frame(3, b"x"), 1002),
        (frame(1, b"x", rsv=0x40), 1002),
        (frame(0, b"x"), 1002),
        (frame(1, b"\xff"), 1007),
        (frame(9, b"", is_last=False), 1002),
        (frame(8, b"\x00"), 1002),
        (frame(9, b"x") * 1_000, 1008),
    ],
)
async def test_what_breaks_the_protocol_or_a_bound_ends_it(said: bytes, code: int) -> None:
    async with opened(Port()) as port:
        reader, writer = await raw(port)
        writer.write(said)
        await until(lambda: port.handlers[0].ends)
        assert port.handlers[0].ends[0][0] == code
        assert port.handlers[0].messages == []
        writer.write_eof()  # or the node would wait for the time of a goodbye
        assert bytes([0x88]) in await is_closed(reader)
        writer.close()


async def test_a_message_that_comes_byte_by_byte_is_one() -> None:
    async with opened(Port()) as port:
        _, writer = await raw(port)
        for byte in frame(1, "é".encode() * 2_000):
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        await until(lambda: port.handlers[0].messages)
        assert port.handlers[0].messages == ["é" * 2_000]
        writer.close()


@pytest.mark.slow
async def test_compression_is_only_where_a_route_asks_for_it() -> None:
    async with opened(Port()) as port:
        async with connect(port.socket_url("/socket"), compression="deflate") as client:
            assert "Sec-WebSocket-Extensions" not in client.response.headers  # type: ignore[union-attr]
        async with connect(port.socket_url("/deflate"), compression="deflate") as client:
            assert "permessage-deflate" in client.response.headers["Sec-WebSocket-Extensions"]  # type: ignore[union-attr]
            for said in ("x" * 50_000, "y" * 100_000, "z"):
                await client.send(said)
                assert await received(client) == said
            await client.send("x" * 20_000_000)
            with pytest.raises(ConnectionClosed):
                await received(client)
            assert client.close_code == 1009


@pytest.mark.slow
async def test_a_small_message_that_becomes_a_large_one_is_not_kept() -> None:
    async with opened(Port()) as port:
        reader, writer = await port.connect()
        offer = "Sec-WebSocket-Extensions: permessage-deflate"
        lines = ["GET /deflate HTTP/1.1", f"Host: {port.host}", *UPGRADE, offer, "", ""]
        writer.write("\r\n".join(lines).encode())
        assert (await answer_of(reader))[0] == 101
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = packer.compress(bytes(200_000_000)) + packer.flush(zlib.Z_SYNC_FLUSH)
        writer.write(frame(2, packed[:-4], rsv=0x40))
        await until(lambda: port.handlers[0].ends)
        assert port.handlers[0].ends[0][0] == 1009
        writer.close()


async def test_a_slow_reader_is_told_of_and_told_again() -> None:
    async with opened(Port()) as port:
        reader, writer = await raw(port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        handler, made = port.handlers[0], frame_text(b"x" * 65_000)
        while "pause" not in handler.events:
            handler.socket.write(made)
            await asyncio.sleep(0)
        assert not handler.socket.is_writable
        assert handler.socket.waiting_bytes > WEBSOCKET_BUFFER_BYTES // 4
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        reading = asyncio.create_task(is_closed(reader))
        await until(lambda: handler.events == ["pause", "resume"])
        assert handler.socket.is_writable
        handler.socket.close()
        writer.close()
        await reading


async def test_one_that_takes_nothing_is_cut_whatever_its_subject_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "WEBSOCKET_BUFFER_BYTES_MAX", 2_000_000)
    async with opened(Port()) as port:
        _, writer = await raw(port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        handler, made = port.handlers[0], frame_text(b"x" * 500_000)
        while not handler.ends:
            handler.socket.write(made)
            await asyncio.sleep(0)
        assert handler.ends[0][0] == 1006
        handler.socket.write(made)
        await until(lambda: port.connections.guests == 0)
        writer.transport.abort()


@pytest.mark.slow
async def test_a_half_open_peer_is_found_and_one_that_answers_pings_is_not() -> None:
    async with (
        opened(Port(keepalive_ms=1_000)) as port,
        connect(port.socket_url("/socket"), ping_interval=None) as client,
    ):
        await until(lambda: port.handlers)
        _, silent = await raw(port)  # it never answers a ping
        await until(lambda: port.handlers[1].ends)
        assert port.handlers[1].ends == [(1006, "silent: it answers no ping")]
        assert port.handlers[0].ends == []
        await client.send("here")
        assert await received(client) == "here"
        silent.close()


async def test_a_mistake_of_a_handler_ends_its_socket_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with opened(Port()) as port:
        async with (
            connect(port.socket_url("/socket")) as client,
            connect(port.socket_url("/socket")) as other,
        ):
            await client.send("fail")
            assert (await end_of(client))[0] == 1011
            await other.send("goes on")
            assert await received(other) == "goes on"
        assert len(port.handlers[0].ends) == 1
    assert "a mistake of the test's own" in caplog.text


@pytest.mark.slow
async def test_reading_is_held_and_released() -> None:
    async with (
        opened(Port(keepalive_ms=500)) as port,
        connect(port.socket_url("/socket")) as client,
    ):
        await until(lambda: port.handlers)
        handler = port.handlers[0]
        handler.socket.hold_reading()
        await client.send("waits")
        _, silent = await raw(port)
        await until(lambda: port.handlers[1].ends)  # so long is silence too long
        assert (handler.messages, handler.ends) == ([], []), "who is held is not silent"
        handler.socket.release_reading()
        assert await received(client) == "waits"
        silent.close()


async def test_a_stop_says_so() -> None:
    async with opened(Port()) as port:
        client = await connect(port.socket_url("/socket"))
        await until(lambda: port.handlers)
        await port.server.close()
        code, reason = await end_of(client)
        assert code == 1001
        assert reason is not None
        assert reason.startswith("STOPPING")


@pytest.mark.slow
async def test_a_stranger_says_no_more_than_a_proof() -> None:
    async with opened(Port(anonymous="never")) as port:
        client = await connect(port.socket_url("/later"))
        await client.send("x" * (HTTP_REQUEST_BYTES_MAX + 1))
        assert (await end_of(client))[0] == 1009


async def test_a_stranger_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "HTTP_LOGIN_MS", 50)
    async with opened(Port(anonymous="never")) as port:
        client = await connect(port.socket_url("/later"))
        assert await end_of(client) == (1008, "AUTH: no proof came in time")


async def test_strangers_have_a_part_of_the_places_and_the_oldest_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened(Port(anonymous="never")) as port:
        monkeypatch.setattr(strangers, "WEBSOCKET_STRANGERS_DIVISOR", port.connections.places // 3)
        made = [await raw(port, "/later") for _ in range(3)]
        first, second, third = port.handlers
        await second.socket.peer.authenticate(token=port.new_token("ann"))
        made += [await raw(port, "/later") for _ in range(2)]
        assert await is_closed(made[0][0]) == b""
        # Whoever is in is no stranger, and what one has left another has.
        assert first.ends == [(1006, "cut by this node")]
        assert not any(one.ends for one in port.handlers[1:])
        port.handlers[-1].socket.enter()
        made.append(await raw(port, "/later"))
        assert not any(one.ends for one in port.handlers[1:])
        made.append(await raw(port, "/later"))
        assert third.ends == [(1006, "cut by this node")]
        await until(lambda: port.connections.guests == 5)
        for _, writer in made:
            writer.close()
        await until(lambda: port.connections.guests == 0)


async def test_hundreds_of_idle_sockets_beside_a_probe() -> None:
    async with opened(Port()) as port:
        made = [await raw(port) for _ in range(SOCKETS)]
        assert (port.server.websockets, port.connections.guests) == (SOCKETS, SOCKETS)
        assert (await port.ask("/open"))[0] == 200
        whole = frame_text(b"hello")
        for handler in port.handlers:
            handler.socket.write(whole)
        for reader, writer in made:
            assert await reader.readexactly(len(whole)) == whole
            writer.close()
        await until(lambda: port.connections.guests == 0)
        assert all(handler.ends == [(1006, "the connection is gone")] for handler in port.handlers)


@pytest.mark.parametrize(
    ("version", "header", "status"),
    [
        ("1.0", "X: y", 400),
        ("1.1", "Content-Length: 3", 413),
        ("1.1", "Transfer-Encoding: chunked", 413),
    ],
)
async def test_an_upgrade_is_of_http_1_1_and_without_a_body(
    version: str, header: str, status: int
) -> None:
    async with opened(Port()) as port:
        reader, writer = await port.connect()
        lines = [f"GET /socket HTTP/{version}", f"Host: {port.host}", *UPGRADE, header, "", ""]
        writer.write("\r\n".join(lines).encode())
        assert (await answer_of(reader))[0] == status
        assert await is_closed(reader) == b""
        assert port.handlers == []
        writer.close()
