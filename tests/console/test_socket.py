"""The native protocol over a WebSocket, as a page speaks it, at a real node."""

import asyncio
import base64
import json
import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.console.talking import (
    ECHO,
    ECHOED,
    FAILED,
    GOODBYE,
    IDENTIFIED,
    WELCOME,
    WHO_AM_I,
    hear,
    hello,
    page,
    pass_of,
    say,
)
from tests.net.authority import Authority
from tests.process.nodes import NodeProcess, run_moor
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

import moorline
from moorline.net.native_json import SUBPROTOCOL

pytestmark = [pytest.mark.process]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


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


async def test_a_pass_that_is_logged_out_is_nobodys_and_its_windows_end(node: NodeProcess) -> None:
    end_passes, passes_ended = 624, 625
    text = await pass_of(node)
    async with page(node) as one, page(node) as other, page(node) as third:
        for socket, proof in ((one, text), (other, text), (third, await pass_of(node))):
            await say(socket, hello("pass", proof))
            assert (await hear(socket))[0][0] == WELCOME
        await say(one, [end_passes, 1, text])
        assert await hear(one) == [[passes_ended, 1, 1]]
        with pytest.raises(ConnectionClosed) as closed:
            await hear(other)
        assert closed.value.rcvd is not None
        assert "logged out" in closed.value.rcvd.reason
        await say(third, [ECHO, 1, ""])
        assert await hear(third) == [[ECHOED, 1, ""]], "another pass is another login"
    async with page(node) as socket:
        await say(socket, hello("pass", text))
        assert "this pass is not known here" in await refused(socket)


async def test_nobody_ends_the_passes_of_others(node: NodeProcess) -> None:
    async with moorline.connect(node.address) as moor:
        await moor.access.add_user("mallory", b"swordfish")
    text = await pass_of(node)
    async with page(node) as socket:
        await say(socket, hello("password", "mallory\0swordfish"))
        await hear(socket)
        await say(socket, [624, 1, text], [624, 2, ""])
        heard = await hear(socket)
        while len(heard) < 2:
            heard += await hear(socket)
        assert heard == [[625, 1, 0], [625, 2, 0]]
    async with page(node) as socket:
        await say(socket, hello("pass", text))
        assert (await hear(socket))[0][0] == WELCOME


async def test_without_an_issuer_nobody_logs_in_by_one(node: NodeProcess) -> None:
    for proof in ("", '{"flow": "f", "state": "s", "code": "c"}'):
        async with page(node) as socket:
            await say(socket, hello("oidc", proof))
            assert "no issuer is named here" in await refused(socket)


async def test_a_certificate_logs_a_page_in(tmp_path: Path) -> None:
    users, servers = Authority("users"), Authority("servers")
    ca = users.write(tmp_path / "users.pem")
    own = servers.issue_node("node-1").write(tmp_path / "own.pem")
    shown = users.issue("olga").write(tmp_path / "olga.pem")
    with NodeProcess(
        tmp_path / "data",
        "--http=https://127.0.0.1:0",
        f"--tls-certificate={own}",
        f"--tls-key={own}",
        f"--tls-client-ca={ca}",
    ) as node:
        found = re.search(r"https://(\S+)", node.ready_line)
        assert found is not None
        context = ssl.create_default_context(cafile=str(servers.write(tmp_path / "servers.pem")))
        context.load_cert_chain(shown)
        async with connect(
            f"wss://{found[1]}/console/socket",
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            origin=Origin(f"https://{found[1]}"),
            ssl=context,
            proxy=None,
        ) as socket:
            await say(socket, hello())
            assert (await hear(socket))[0][0] == WELCOME
            await say(socket, [WHO_AM_I, 1])
            assert (await hear(socket))[0][2:4] == ["olga", "certificate"]
