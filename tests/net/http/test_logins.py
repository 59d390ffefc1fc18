"""Who is asking: pages, proxies, tokens, passwords and certificates, over real sockets."""

import asyncio
import json
import ssl
from pathlib import Path

import pytest
from tests.net.authority import Authority, Issued
from tests.net.http.port import Port, answer_of, basic, is_closed, opened
from tests.waiting import until
from tests.wire.bearer import bearer_item
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from moorline.access.passes import Pass
from moorline.core.access.principal import Proof
from moorline.errors import NotAuthorized
from moorline.net.clock import wall_ms
from moorline.net.http.messages import text_response
from moorline.net.tls import ANONYMOUS, Identity
from moorline.net.tls_files import TlsFiles, TlsPaths

USERS = Authority("users")
LOCAL = ["anonymous", "nothing", True]
STRANGER = ["anonymous", "nothing", False]
OTHER = "https://board.example"


async def who(
    port: Port, *headers: str, context: ssl.SSLContext | None = None
) -> list[object] | int:
    status, _, body = await port.ask("/who", *headers, context=context)
    if status != 200:
        return status
    found: list[object] = json.loads(body)
    return found


async def end_of(client: ClientConnection) -> tuple[int | None, str]:
    async with asyncio.timeout(60):
        await client.wait_closed()
    return client.close_code, client.close_reason or ""


async def test_a_program_on_this_machine_is_local_and_a_page_is_not() -> None:
    async with opened(Port(origins=[OTHER])) as port:
        assert await who(port) == LOCAL
        assert await who(port, "Sec-Fetch-Site: none") == LOCAL
        own = f"Origin: http://{port.host}"
        assert await who(port, own) == 401
        assert await who(port, f"Origin: {OTHER}") == 401
        assert await who(port, "Sec-Fetch-Site: same-origin") == 401
        assert await who(port, "Origin: https://evil.example") == 403
        assert await who(port, "Origin: null") == 403
        assert await who(port, "Host: evil.example") == 421
        assert [peer.is_local for peer in port.entered] == [True, True]
        assert {refused.mechanism for refused in port.refused} == {"anonymous"}


@pytest.mark.parametrize(
    "header",
    ["Forwarded: for=192.0.2.1", "Via: 1.1 x", "X-Forwarded-For: 127.0.0.1", "X-Real-IP: ::1"],
)
async def test_what_a_proxy_passes_on_is_not_of_this_machine(header: str) -> None:
    async with opened(Port()) as port:
        assert await who(port, header) == 401
        token = port.new_token("olga")
        assert await who(port, f"Authorization: Bearer {token}") == ["olga", "token", True]
        # Nobody knows who could read the token on its way to the proxy.
        assert await who(port, header, f"Authorization: Bearer {token}") == 401


async def test_a_listener_that_is_a_proxys_has_nobody_of_this_machine() -> None:
    async with opened(Port(is_proxied=True)) as port:
        assert await who(port) == 401
    async with opened(Port(is_proxied=True, anonymous="everywhere")) as port:
        assert await who(port) == STRANGER


async def test_where_anonymous_is_taken_everywhere_a_page_is_that() -> None:
    async with opened(Port(anonymous="everywhere")) as port:
        assert await who(port, f"Origin: http://{port.host}") == STRANGER


async def test_tokens_and_passwords_prove_a_principal() -> None:
    async with opened(Port()) as port:
        port.directory.add("olga", "swordfish")
        token = port.new_token("spark")
        assert (await who(port, basic("olga", "swordfish")))[:2] == ["olga", "password"]  # type: ignore[index]
        assert (await who(port, f"Authorization: bearer {token}"))[:2] == ["spark", "token"]  # type: ignore[index]
        own = f"Origin: http://{port.host}"
        assert (await who(port, own, f"Authorization: Bearer {token}"))[0] == "spark"  # type: ignore[index]
        assert await who(port, basic("olga", "wrong")) == 401
        assert await who(port, basic("nobody", "swordfish")) == 401
        assert await who(port, f"Authorization: Bearer {token}x") == 401
        assert [refused.claimed for refused in port.refused] == ["olga", "nobody", ""]
        _, headers, _ = await port.ask("/who", "Authorization: Bearer nothing")
        assert headers["www-authenticate"].startswith("bearer")


@pytest.mark.parametrize(
    "headers",
    [
        ("Authorization: Basic %%%",),
        ("Authorization: Basic b2xnYQ==",),
        ("Authorization: Negotiate abc",),
        ("Authorization: Bearer",),
        ("Authorization: Bearer a", "Authorization: Bearer b"),
    ],
)
async def test_a_proof_that_is_none_is_refused(headers: tuple[str, ...]) -> None:
    async with opened(Port()) as port:
        assert await who(port, *headers) == 400
        assert port.entered == []


async def test_a_connection_logs_in_once_for_each_proof() -> None:
    async with opened(Port()) as port:
        port.directory.add("olga", "swordfish")
        reader, writer = await port.connect()

        async def ask(*headers: str) -> object:
            lines = ["GET /who HTTP/1.1", f"Host: {port.host}", *headers, "", ""]
            writer.write("\r\n".join(lines).encode())
            return json.loads((await answer_of(reader))[2])[0]

        for _ in range(3):
            assert await ask(basic("olga", "swordfish")) == "olga"
        assert len(port.entered) == 1
        assert await ask() == "anonymous"
        assert not port.entered[0].is_open
        assert await ask(basic("olga", "swordfish")) == "olga"
        assert [peer.principal for peer in port.entered] == ["olga", "anonymous", "olga"]
        assert len(port.server.peers) == 1
        writer.close()
        await until(lambda: not port.server.peers)


async def test_who_is_over_its_quota_is_told() -> None:
    async with opened(Port()) as port:
        port.bound = 0
        status, _, body = await port.ask("/who")
        assert (status, json.loads(body)["code"]) == (429, "OVER_QUOTA")
        assert not port.server.peers


async def test_named_origins_may_read_and_ask_before() -> None:
    async with opened(Port(origins=[OTHER])) as port:
        token = port.new_token("spark")
        status, headers, _ = await port.ask(
            "/who", f"Origin: {OTHER}", f"Authorization: Bearer {token}"
        )
        assert (status, headers["access-control-allow-origin"]) == (200, OTHER)
        assert "access-control-allow-credentials" not in headers
        status, headers, _ = await port.ask("/who", f"Origin: {OTHER}", method="OPTIONS")
        assert (status, headers["access-control-allow-methods"]) == (204, "get")
        assert (await port.ask("/who", "Origin: https://evil.example", method="OPTIONS"))[0] == 403


async def test_pages_of_others_open_no_websocket() -> None:
    async with opened(Port()) as port:
        for path in ("/socket", "/later"):
            with pytest.raises(InvalidStatus) as caught:
                await connect(port.socket_url(path), origin="https://evil.example")  # type: ignore[arg-type]
            assert caught.value.response.status_code == 403
        with pytest.raises(InvalidStatus) as caught:
            await connect(port.socket_url("/socket"), origin=f"http://{port.host}")  # type: ignore[arg-type]
        assert caught.value.response.status_code == 401
        assert port.handlers == []


async def test_a_page_brings_its_token_as_a_subprotocol() -> None:
    async with opened(Port()) as port:
        origin = f"http://{port.host}"
        offered = ["mqtt", bearer_item(port.new_token("spark"))]
        async with connect(
            port.socket_url("/socket"),
            origin=origin,  # type: ignore[arg-type]
            subprotocols=offered,  # type: ignore[arg-type]
        ) as client:
            assert client.subprotocol == "mqtt"
            assert port.handlers[0].request.peer.principal == "spark"
            assert port.handlers[0].request.subprotocols == ("mqtt",)
        with pytest.raises(InvalidStatus) as caught:
            await connect(
                port.socket_url("/socket"),
                subprotocols=offered,  # type: ignore[arg-type]
                additional_headers={"Authorization": "Bearer x"},
            )
        assert caught.value.response.status_code == 400


async def test_a_proof_may_come_in_a_message() -> None:
    async with opened(Port()) as port:
        port.directory.add("olga", "swordfish")
        token = port.new_token("spark")
        origin = f"http://{port.host}"
        async with connect(port.socket_url("/later"), origin=origin) as client:  # type: ignore[arg-type]
            await until(lambda: port.handlers)
            peer = port.handlers[0].socket.peer
            assert (peer.is_entered, port.entered) == (False, [])
            with pytest.raises(NotAuthorized):
                await peer.authenticate(user="olga", password="wrong")
            with pytest.raises(NotAuthorized):
                await peer.authenticate()
            assert not peer.is_entered
            await peer.authenticate(user="olga", password="swordfish")
            assert (peer.is_entered, peer.principal) == (True, "olga")
            with pytest.raises(NotAuthorized, match="open another one"):
                await peer.authenticate(token=token)
            assert peer.principal == "olga"
            await client.close()
            await until(lambda: not port.server.peers)


async def test_a_pass_is_taken_only_where_its_askers_proof_is() -> None:
    """A08: who proves nothing on this machine is not let in by a pass where a proof is named."""
    async with opened(Port(mechanisms=("token",))) as port:
        port.passes[b"of nobody"] = Pass(ANONYMOUS, is_local=True)
        port.passes[b"of spark"] = Pass(Identity("spark", Proof.TOKEN), is_local=False)
        port.passes[b"of a ticket"] = Pass(Identity("anna", Proof.KERBEROS), is_local=False)
        for text, name in (("of spark", "spark"), ("of a ticket", "anna")):
            async with connect(port.socket_url("/later"), origin=f"http://{port.host}"):  # type: ignore[arg-type]
                await until(lambda: port.handlers)
                peer = port.handlers.pop().socket.peer
                with pytest.raises(NotAuthorized, match="not known"):
                    await peer.authenticate(passed="of somebody")
                with pytest.raises(NotAuthorized, match="not taken here"):
                    await peer.authenticate(passed="of nobody")
                await peer.authenticate(passed=text)
                assert peer.principal == name


async def test_who_is_gone_before_its_proof_is_checked_does_not_come_in() -> None:
    async with opened(Port(anonymous="never")) as port:
        port.directory.add("olga", "swordfish")
        client = await connect(port.socket_url("/later"))
        await until(lambda: port.handlers)
        peer = port.handlers[0].socket.peer
        proving = asyncio.create_task(peer.authenticate(user="olga", password="swordfish"))
        await asyncio.sleep(0)
        port.handlers[0].socket.abort()
        with pytest.raises(NotAuthorized):
            await proving
        assert (port.entered, port.server.peers) == ([], set())
        await client.close()


@pytest.mark.slow
async def test_a_token_that_ends_cuts_the_socket_and_the_long_poll() -> None:
    async with opened(Port()) as port:
        token = port.new_token("spark", wall_ms() + 3_000)
        header = {"Authorization": f"Bearer {token}"}
        client = await connect(port.socket_url("/socket"), additional_headers=header)
        polling = asyncio.create_task(port.ask("/held", f"Authorization: Bearer {token}"))
        code, reason = await end_of(client)
        assert code == 1008
        assert reason.startswith("EXPIRED")
        status, _, body = await polling
        assert (status, json.loads(body)["code"]) == (401, "EXPIRED")
        await until(lambda: port.waiting[0].cancelled())
        assert not port.server.peers
        assert await who(port, f"Authorization: Bearer {token}") == 401


async def test_who_is_judged_again_and_does_not_hold_goes() -> None:
    async with opened(Port()) as port:
        client = await connect(port.socket_url("/socket"))
        reader, writer = await port.connect()
        writer.write(f"GET /who HTTP/1.1\r\nHost: {port.host}\r\n\r\n".encode())
        assert (await answer_of(reader))[0] == 200
        for peer in list(port.server.peers):
            peer.close("EXPIRED", "this user was changed")
        assert (await end_of(client))[0] == 1008
        assert await is_closed(reader) == b""
        writer.close()


class Certificates:
    def __init__(self, folder: Path) -> None:
        node = str(USERS.issue_node().write(folder / "node.pem"))
        self.folder = folder
        self.ca = USERS.write(folder / "users.pem")
        self.crl = folder / "crl.pem"
        self.crl.write_bytes(USERS.revocations())
        self.files = TlsFiles(
            TlsPaths(certificate=node, key=node, client_ca=str(self.ca), client_crl=str(self.crl)),
            changed=lambda: self.port.server.judge_again(self.files.trust),
        )
        self.port = Port(tls=self.files, anonymous="never")

    def context(self, shown: Issued | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.check_hostname = False
        if shown is not None:
            context.load_cert_chain(shown.write(self.folder / "shown.pem"))
        return context


async def test_over_tls_a_certificate_or_a_token_says_who_it_is(tmp_path: Path) -> None:
    world = Certificates(tmp_path)
    async with world.files, opened(world.port) as port:
        billing = world.context(USERS.issue("billing"))
        assert (await who(port, context=billing))[:2] == ["billing", "certificate"]  # type: ignore[index]
        assert await who(port, context=world.context()) == 401
        token = f"Authorization: Bearer {port.new_token('spark')}"
        assert (await who(port, token, context=billing))[0] == "spark"  # type: ignore[index]
        forwarded = await who(port, token, "Via: 1.1 x", context=world.context())
        assert forwarded == ["spark", "token", False], "our own TLS keeps it from who is between"
        assert await who(port, f"Origin: http://{port.host}", token, context=billing) == 403
        own = f"Origin: https://{port.host}"
        assert (await who(port, own, token, context=billing))[0] == "spark"  # type: ignore[index]


async def test_a_certificate_that_is_revoked_ends_its_websocket(tmp_path: Path) -> None:
    world = Certificates(tmp_path)
    async with world.files, opened(world.port) as port:
        issued = USERS.issue("billing")
        client = await connect(port.socket_url("/socket"), ssl=world.context(issued))
        await client.send("here")
        assert await client.recv() == "here"
        world.crl.write_bytes(USERS.revocations(issued))
        assert await world.files.reload() == ""
        code, reason = await end_of(client)
        assert code == 1008
        assert reason.startswith("EXPIRED")
        with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
            await port.ask("/open", context=world.context(issued))
        await until(lambda: port.refused)
        assert port.refused[0].mechanism == "certificate"


async def test_a_long_poll_is_answered_for_a_page(tmp_path: Path) -> None:
    world = Certificates(tmp_path)
    async with world.files, opened(world.port) as port:
        context = world.context(USERS.issue("billing"))
        asked = asyncio.create_task(port.ask("/held", context=context))
        await until(lambda: port.waiting)
        port.waiting[0].set_result(text_response("now"))
        assert (await asked)[2] == b"now"
