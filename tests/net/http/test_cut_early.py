"""Connections that are cut in the moment in which they come, as many at once are: nothing of them stays."""

import asyncio
import contextlib
import socket
from typing import Any

import pytest
from tests.net.http.port import PATIENCE_S, Port, is_closed, opened
from tests.net.http.test_requests import few
from tests.net.http.test_websocket import UPGRADE
from tests.waiting import until

from moorline.net.acceptor import Acceptor
from moorline.net.http import server
from moorline.net.http.connection import HttpConnection


async def test_whoever_is_cut_before_anything_is_done_for_it_leaves_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the first of many that knock within one turn of the loop."""

    def begin_and_cut(self: Acceptor, *knocked: Any, **facts: Any) -> None:
        begin(self, *knocked, **facts)
        for visit in self._visits.values():
            visit.cut()

    begin = Acceptor._begin
    async with opened(Port(descriptors=few(1, 1))) as port:
        with monkeypatch.context() as patch:
            patch.setattr(Acceptor, "_begin", begin_and_cut)
            reader, writer = await port.connect()
            assert await is_closed(reader) == b""
            writer.close()
        assert not port.server._acceptor._visits
        assert (await port.ask("/open"))[0] == 200, "the one place is free"


async def test_whoever_is_cut_while_it_is_let_in_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request is heard by then, and is to be answered in the same turn of the loop."""
    loop = asyncio.get_running_loop()
    mistakes: list[Any] = []
    loop.set_exception_handler(lambda _, context: mistakes.append(context))
    made: list[HttpConnection] = []

    class CutEarly(HttpConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            made.append(self)
            loop.call_soon(lambda: self._visit.cut())

    monkeypatch.setattr(server, "HttpConnection", CutEarly)
    async with opened(Port()) as port:
        visits = port.server._acceptor._visits
        lines = ["GET /socket HTTP/1.1", f"Host: {port.host}", *UPGRADE, "", ""]
        with socket.create_connection(("127.0.0.1", port.address.port)) as client:
            client.sendall("\r\n".join(lines).encode())
            await until(lambda: made and not visits)
            await until(lambda: made[0].gone.done())
            # The client is not left to wait for an answer.
            client.settimeout(PATIENCE_S)
            with contextlib.suppress(ConnectionResetError):
                while await asyncio.to_thread(client.recv, 1_000):
                    pass
            await until(lambda: not port.server.peers)
            # Whoever was made for it hears that it is over.
            assert [len(handler.ends) for handler in port.handlers] == [1] * len(port.handlers)
            assert mistakes == []
