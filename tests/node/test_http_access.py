"""The HTTP port of a real node with its catalog: rights, quotas, the audit, and logins that end."""

import asyncio
import base64
import contextlib
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.net.authority import Authority
from tests.process.template import copy_catalog
from tests.waiting import until
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

import moorline
from moorline.client.moor import Moor
from moorline.config.settings import Config
from moorline.core.access.right import SUBSCRIBE
from moorline.net.http.messages import Request, Response, json_response
from moorline.net.http.routes import Route, SocketRoute
from moorline.net.http.websocket import WebSocket
from moorline.node.node import Node

pytestmark = pytest.mark.process


class Quiet:
    def __init__(self, _: Request) -> None: ...
    def opened(self, socket: WebSocket, /) -> None: ...
    def message(self, data: str | bytes, /) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def closed(self, code: int, text: str, /) -> None: ...


def may_read(request: Request) -> Response:
    peer = request.peer
    return json_response([peer.principal, bool(peer.rights.at("/topics/orders") & SUBSCRIBE)])


@contextlib.asynccontextmanager
async def running(folder: Path, **settings: str) -> AsyncIterator[Node]:
    copy_catalog(folder / "catalog")
    settings.setdefault("http", "127.0.0.1:0")
    config = {"data": str(folder), "listen": ["tcp://127.0.0.1:0"], "http_hosts": ["a.example"]}
    node = Node(msgspec.convert(config | settings, Config))
    node.routes.add(Route("GET", "/may", may_read), SocketRoute("/socket", Quiet))
    async with contextlib.AsyncExitStack() as stack:
        await node.start(stack)
        yield node


async def ask(
    node: Node, context: ssl.SSLContext | None = None, **headers: str
) -> tuple[int, object]:
    def fetch() -> tuple[int, object]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"{node.http}/may", headers=named)
        try:
            with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["code"]

    return await asyncio.to_thread(fetch)


async def test_rights_quotas_and_ends_are_those_of_native_sessions(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as node, moorline.connect(str(node.addresses[0])) as moor:
        access = moor.access
        assert await ask(node) == (200, ["anonymous", True]), "@loopback may everything"
        assert await ask(node, Origin=str(node.http)) == (401, "AUTH")
        assert await ask(node, Host="a.example") == (200, ["anonymous", True])
        assert await ask(node, Host="b.example") == (421, "OTHER_HOST")
        await access.add_user("olga", b"swordfish")
        token = (await access.add_token("olga", "page")).token
        basic = "Basic " + base64.b64encode(b"olga:swordfish").decode()
        assert await ask(node, Authorization=basic) == (200, ["olga", False])
        await access.add_grant("/topics/orders", "olga", "s")
        assert await ask(node, Authorization=f"Bearer {token}") == (200, ["olga", True])
        await access.set_quota("olga", "connections", 1)
        url = str(node.http).replace("http", "ws", 1) + "/socket"
        header = {"Authorization": f"Bearer {token}"}
        client = await connect(url, additional_headers=header)
        assert await ask(node, Authorization=f"Bearer {token}") == (429, "OVER_QUOTA")
        await access.revoke_token("olga", "page")
        async with asyncio.timeout(60):
            await client.wait_closed()
        assert client.close_code == 1008
        assert (client.close_reason or "").startswith("EXPIRED")
        with pytest.raises(InvalidStatus) as caught:
            await connect(url, additional_headers=header)
        assert caught.value.response.status_code == 401
        await until(lambda: not node._doors.web.peers)  # type: ignore[union-attr]
        wanted = {
            ("olga", "password", "granted"),
            ("olga", "token", "granted"),
            ("anonymous", "token", "denied"),
        }
        async with asyncio.timeout(60):  # refusals that are alike are one line, some seconds later
            while not wanted <= await logins(moor):
                await asyncio.sleep(0.1)


async def logins(moor: Moor) -> set[tuple[str, str, str]]:
    lines = [json.loads(line) for line in (await moor.access.read_audit(kind="login")).lines]
    return {(line["principal"], line["proof"], line["verdict"]) for line in lines}


async def test_the_port_over_tls_knows_a_certificate(tmp_path: Path) -> None:
    users = Authority("users")
    pem = str(users.issue_node().write(tmp_path / "node.pem"))
    ca = str(users.write(tmp_path / "users.pem"))
    shown = users.issue("billing").write(tmp_path / "billing.pem")
    context = ssl.create_default_context(cafile=ca)
    config = {"http": "https://127.0.0.1:0", "tls_certificate": pem, "tls_key": pem}
    async with running(tmp_path / "data", **config, tls_client_ca=ca) as node:
        assert str(node.http).startswith("https://127.0.0.1:")
        assert await ask(node, context) == (200, ["anonymous", True])
        context.load_cert_chain(shown)
        assert await ask(node, context) == (200, ["billing", False])
