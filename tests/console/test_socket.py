"""The native protocol over a WebSocket, as a page speaks it, at a real node."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.process.nodes import NodeProcess, run_moor
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

import moorline
from moorline.net.native_json import SUBPROTOCOL

pytestmark = [pytest.mark.process]

HELLO, WELCOME, GOODBYE, FAILED, ECHO, ECHOED, WHO_AM_I, IDENTIFIED = 1, 2, 5, 6, 7, 8, 200, 201


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@asynccontextmanager
async def page(
    node: NodeProcess, origin: str | None = None, **headers: str
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


async def pass_of(node: NodeProcess) -> str:
    async with moorline.connect(node.address) as moor:
        return (await moor.access.make_pass()).text


async def ended(socket: ClientConnection) -> None:
    """Whatever it still says, it ends."""
    async with asyncio.timeout(20):
        async for _ in socket:
            pass


async def refused(socket: ClientConnection) -> str:
    """Why the node says goodbye."""
    ((tag, code, text),) = await hear(socket)
    assert tag == GOODBYE
    with pytest.raises(ConnectionClosed):
        await hear(socket)
    return f"{code}: {text}"


async def test_a_page_with_a_pass_is_whoever_asked_for_it(node: NodeProcess) -> None:
    async with page(node) as socket:
        await say(socket, hello("pass", await pass_of(node)))
        ((tag, version, name, *_),) = await hear(socket)
        assert (tag, version, name) == (WELCOME, 1, "node-1")
        await say(socket, [WHO_AM_I, 1], [ECHO, 2, "AP8="])
        heard = await hear(socket)
        answers = {message[1]: message for message in heard}
        while len(answers) < 2:
            answers |= {message[1]: message for message in await hear(socket)}
        assert answers[1][:4] == [IDENTIFIED, 1, "anonymous", "nothing"]
        assert "@loopback" in answers[1][4]
        assert answers[2] == [ECHOED, 2, "AP8="]


async def test_a_page_without_a_proof_is_nobody_also_on_this_machine(node: NodeProcess) -> None:
    async with page(node) as socket:
        await say(socket, hello())
        assert (await refused(socket)).startswith("AUTH: prove who you are")


async def test_a_pass_that_is_none_is_refused(node: NodeProcess) -> None:
    async with page(node) as socket:
        await say(socket, hello("pass", "x" * 43))
        assert "this pass is not known here" in await refused(socket)


async def test_a_pass_does_not_go_through_a_proxy_in_clear(node: NodeProcess) -> None:
    async with page(node, via="1.1 proxy") as socket:
        await say(socket, hello("pass", await pass_of(node)))
        assert "use https" in await refused(socket)


async def test_a_user_by_password_and_by_token_has_its_own_rights(node: NodeProcess) -> None:
    async with moorline.connect(node.address) as moor:
        await moor.access.add_user("wanda", b"swordfish")
        token = (await moor.access.add_token("wanda", "page")).token
    for mechanism, proof in (("password", "wanda\0swordfish"), ("token", token)):
        async with page(node) as socket:
            await say(socket, hello(mechanism, proof))
            assert (await hear(socket))[0][0] == WELCOME
            await say(socket, [WHO_AM_I, 1])
            assert (await hear(socket))[0][2] == "wanda"
            await say(socket, [205, 2, "/", "", "", "", 10])  # ListGrants
            ((tag, _, code, *_),) = await hear(socket)
            assert (tag, code) == (FAILED, "DENIED")


async def test_a_wrong_password_is_refused(node: NodeProcess) -> None:
    async with page(node) as socket:
        await say(socket, hello("password", "nobody\0guess"))
        assert (await refused(socket)).startswith("AUTH")


async def test_a_user_that_is_removed_is_cut(node: NodeProcess) -> None:
    async with moorline.connect(node.address) as moor:
        await moor.access.add_user("leaving", b"swordfish")
        async with page(node) as socket:
            await say(socket, hello("password", "leaving\0swordfish"))
            assert (await hear(socket))[0][0] == WELCOME
            await moor.access.remove_user("leaving")
            with pytest.raises(ConnectionClosed):
                await hear(socket)


async def test_a_page_from_elsewhere_does_not_come_in(node: NodeProcess) -> None:
    with pytest.raises(InvalidStatus) as refusal:
        async with page(node, "http://evil.example"):
            pass
    assert refusal.value.response.status_code == 403


@pytest.mark.parametrize("text", ["", "[", "[[1]]", '[["x"]]', "[" * 4_000, "[[9, 1]]", "null"])
async def test_what_is_no_message_ends_its_own_socket_alone(node: NodeProcess, text: str) -> None:
    async with page(node) as other:
        await say(other, hello("pass", await pass_of(node)))
        await hear(other)
        async with page(node) as socket:
            await socket.send(text)
            await ended(socket)
        await say(other, [ECHO, 1, ""])
        assert await hear(other) == [[ECHOED, 1, ""]]


async def test_bytes_are_not_spoken_here(node: NodeProcess) -> None:
    async with page(node) as socket:
        await socket.send(b"\x01")
        with pytest.raises(ConnectionClosed) as ended:
            await hear(socket)
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 1003


async def test_many_calls_at_once_are_all_answered(node: NodeProcess) -> None:
    async with page(node) as socket:
        await say(socket, hello("pass", await pass_of(node)))
        await hear(socket)
        body = base64.b64encode(bytes(1_000)).decode()
        for first in range(0, 2_000, 100):
            await say(socket, *([ECHO, call, body] for call in range(first, first + 100)))
        heard: list[int] = []
        while len(heard) < 2_000:
            heard += [message[1] for message in await hear(socket)]
        assert heard == list(range(2_000))


def test_the_command_prints_an_address_that_opens_the_page(
    node: NodeProcess, tmp_path: Path
) -> None:
    done = run_moor("console", "--address", node.address, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["url"].startswith(f"{node.http}/console/#pass=")
    plain = run_moor("console", "--address", node.address, "--minutes", "5", cwd=tmp_path)
    assert plain.stdout.startswith(f"{node.http}/console/#pass=")
    wrong = run_moor("console", "--address", node.address, "--minutes", "0", cwd=tmp_path)
    assert wrong.returncode == 2
