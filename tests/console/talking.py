"""The native protocol over a WebSocket, spoken as a page speaks it."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

import moorline
from moorline.net.native_json import SUBPROTOCOL

HELLO, WELCOME, GOODBYE, FAILED, ECHO, ECHOED, WHO_AM_I, IDENTIFIED = 1, 2, 5, 6, 7, 8, 200, 201


class HasPage(Protocol):
    """A node, however it was started."""

    @property
    def http(self) -> str: ...
    @property
    def address(self) -> str: ...


@asynccontextmanager
async def page(
    node: HasPage, origin: str | None = None, **headers: str
) -> AsyncIterator[ClientConnection]:
    """A socket as a page of the node opens it."""
    url = node.http.replace("http", "ws") + "/console/socket"
    async with connect(
        url,
        subprotocols=[Subprotocol(SUBPROTOCOL)],
        origin=Origin(origin or node.http),
        additional_headers=headers,
        proxy=None,
    ) as socket:
        yield socket


async def say(socket: ClientConnection, *messages: list[Any]) -> None:
    await socket.send(json.dumps(list(messages)))


async def hear(socket: ClientConnection) -> list[Any]:
    """The next messages that are no ping."""
    async with asyncio.timeout(20):
        while True:
            heard: list[Any] = json.loads(await socket.recv())
            if heard[0][0] != 3:
                return heard


def hello(mechanism: str = "", proof: str = "") -> list[Any]:
    return [HELLO, "moorline", 1, 1, "test", mechanism, base64.b64encode(proof.encode()).decode()]


async def pass_of(node: HasPage) -> str:
    async with moorline.connect(node.address) as moor:
        return (await moor.access.make_pass()).text


@asynccontextmanager
async def logged_in(
    node: HasPage, mechanism: str = "pass", proof: str = ""
) -> AsyncIterator[ClientConnection]:
    """A page that is in; by a pass of this machine, if nothing else is given."""
    async with page(node) as socket:
        await say(socket, hello(mechanism, proof or await pass_of(node)))
        assert (await hear(socket))[0][0] == WELCOME
        yield socket
