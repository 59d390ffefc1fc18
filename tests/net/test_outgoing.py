"""Calls of a node to others: their names, their addresses, and their time."""

import asyncio
import socket
import ssl
import time
from typing import Any

import h11
import pytest

from moorline.limits import OUTGOING_PARTS_MAX, OUTGOING_PARTS_PER_TURN
from moorline.net.outgoing import CallFailed, Outgoing, _answer

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


def outgoing(timeout_ms: int = 500) -> Outgoing:
    return Outgoing(ssl.create_default_context(), timeout_ms=timeout_ms, at_once_max=4)


async def served(answer: bytes, heard: list[bytes]) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


def port_of(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


async def test_an_answer_is_read_whole() -> None:
    heard: list[bytes] = []
    async with await served(ANSWER, heard) as server:
        calls = outgoing()
        url = f"http://localhost:{port_of(server)}/a?b=c"
        assert await calls.get(url) == b"{}"
        assert await calls.post(url, b"x=y", {"content-type": "text/plain"}) == b"{}"
        await calls.close()
    first, second = (one.decode().split("\r\n") for one in heard)
    assert first[0] == "GET /a?b=c HTTP/1.1"
    assert f"host: localhost:{url.rpartition(':')[2].partition('/')[0]}" in first
    assert second[0] == "POST /a?b=c HTTP/1.1"
    assert "content-length: 3" in second


async def test_a_name_that_hangs_holds_one_lookup_and_no_call_longer_than_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    asked: list[str] = []
    never: asyncio.Future[Any] = loop.create_future()

    async def hang(host: str, *_: Any, **__: Any) -> Any:
        asked.append(host)
        return await never

    monkeypatch.setattr(type(loop), "getaddrinfo", lambda _, host, *a, **k: hang(host, *a, **k))
    calls = outgoing(100)
    begun_s = time.monotonic()
    found = await asyncio.gather(
        *(calls.get("https://issuer.example/") for _ in range(8)), return_exceptions=True
    )
    assert all("did not answer in time" in str(one) for one in found)
    assert time.monotonic() - begun_s < 10
    with pytest.raises(CallFailed):
        await calls.get("https://issuer.example/")
    assert asked == ["issuer.example"], "the one that hangs is waited for, and none beside it"
    await calls.close()


async def test_an_address_that_does_not_answer_leaves_time_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.2", 0))
        async with await served(ANSWER, []) as server:
            port = port_of(server)

            async def two(*_: Any) -> list[str]:
                return ["127.0.0.2", "127.0.0.1"]

            monkeypatch.setattr("moorline.net.outgoing._looked_up", two)
            calls = outgoing()
            assert await calls.get(f"http://localhost:{port}/") == b"{}"
            await calls.close()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:1/", "cannot be reached"),
        ("http://issuer.example/", "not https"),
        ("nothing", "no https"),
        (f"https://{'x' * 64}.example/", "no name of a machine"),
        ("https://issuer..example/", "no name of a machine"),
    ],
)
async def test_what_cannot_be_called_is_told(url: str, why: str) -> None:
    calls = outgoing()
    with pytest.raises(CallFailed, match=why):
        await calls.get(url)
    await calls.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" * 9_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 9_000,
    ],
)
async def test_an_answer_in_many_parts_has_an_end_and_leaves_others_their_turns(
    answer: bytes,
) -> None:
    async with await served(answer + b"0\r\n\r\n", []) as server:
        calls = outgoing(20_000)
        with pytest.raises(CallFailed, match="parts"):
            await calls.get(f"http://127.0.0.1:{port_of(server)}/")
        await calls.close()
    # All of it has come: nothing but its own courtesy gives the loop to others.
    reader = asyncio.StreamReader()
    reader.feed_data(answer)
    link = h11.Connection(h11.CLIENT)
    link.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    link.send(h11.EndOfMessage())
    reading = asyncio.create_task(_answer(link, reader, "a"))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    with pytest.raises(CallFailed, match="parts"):
        await reading
    assert turns >= OUTGOING_PARTS_MAX // OUTGOING_PARTS_PER_TURN


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n{}",
        b"SSH-2.0-x\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: x\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
    ],
)
async def test_what_is_no_answer_fails_the_call(answer: bytes) -> None:
    async with await served(answer, []) as server:
        calls = outgoing(2_000)
        with pytest.raises(CallFailed):
            await calls.get(f"http://127.0.0.1:{port_of(server)}/")
        await calls.close()
