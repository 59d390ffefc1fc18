"""Clients behind a proxy that is trusted, and what those can say who are none."""

import asyncio
import ipaddress
import json

import pytest
from tests.net.http.port import Port, answer_of, opened
from websockets.asyncio.client import connect
from websockets.typing import Origin

from moorline.net.http.logins import Facts, Proxies

NAME = "moor.example"
HERE = Proxies((ipaddress.ip_network("127.0.0.0/8"),))
ELSEWHERE = Proxies((ipaddress.ip_network("192.0.2.0/24"),))
CLIENT = "X-Forwarded-For: 203.0.113.7"
SAFE = (CLIENT, "X-Forwarded-Proto: https")


async def who(port: Port, *headers: str) -> list[object] | int:
    status, _, body = await port.ask("/who", *headers)
    found: list[object] = json.loads(body) if status == 200 else []
    return found or status


async def test_a_proxy_that_is_trusted_says_who_asks_and_how() -> None:
    async with opened(Port(hosts=[NAME], proxies=HERE)) as port:
        token = f"Authorization: Bearer {port.new_token('olga')}"
        assert await who(port, token, *SAFE, f"Host: {NAME}") == ["olga", "token", False]
        assert [peer.peer_address for peer in port.entered] == ["203.0.113.7"]
        assert await who(port, *SAFE) == 401
        assert port.refused[-1].address == "203.0.113.7"
        # The way to the proxy was in clear.
        assert await who(port, token, CLIENT, "X-Forwarded-Proto: http") == 401
        assert await who(port, token, CLIENT) == 401


async def test_who_comes_from_a_proxy_is_never_of_this_machine() -> None:
    async with opened(Port(proxies=HERE)) as port:
        assert await who(port) == 401, "also where the proxy says nothing"
        assert await who(port, "X-Forwarded-For: 127.0.0.1") == 401
        assert await who(port, "X-Forwarded-For: ::1", "X-Forwarded-Proto: https") == 401


async def test_who_is_no_proxy_is_not_believed() -> None:
    async with opened(Port(hosts=[NAME], proxies=ELSEWHERE, anonymous="everywhere")) as port:
        token = f"Authorization: Bearer {port.new_token('olga')}"
        assert await who(port, token, *SAFE) == 401, "https in its own words"
        assert (await who(port, *SAFE))[0] == "anonymous"  # type: ignore[index]
        assert {peer.peer_address for peer in port.entered} == {"127.0.0.1"}
        assert await who(port, "X-Forwarded-Host: moor.example", "Host: evil.example") == 421


async def test_the_origin_of_a_page_is_that_of_the_proxy() -> None:
    async with opened(Port(hosts=[NAME], proxies=HERE, anonymous="everywhere")) as port:
        host = f"X-Forwarded-Host: {NAME}:8443"
        for origin, wanted in (
            (f"https://{NAME}:8443", 200),
            (f"https://{NAME}", 403),
            (f"http://{NAME}:8443", 403),
            (f"http://{port.host}", 403),
            ("https://evil.example", 403),
        ):
            status, headers, _ = await port.ask("/who", *SAFE, host, f"Origin: {origin}")
            assert status == wanted, origin
            assert "access-control-allow-origin" not in headers
        assert await who(port, *SAFE, "X-Forwarded-Host: evil.example") == 421
        assert await who(port, *SAFE, "X-Forwarded-Host: a b") == 400


@pytest.mark.parametrize(
    "said", [("X-Forwarded-For: me",), (CLIENT, "X-Forwarded-Proto: https, https")]
)
async def test_a_proxy_that_is_not_understood_is_refused(said: tuple[str, ...]) -> None:
    async with opened(Port(proxies=HERE, anonymous="everywhere")) as port:
        assert await who(port, *said) == 400


async def test_one_connection_of_a_proxy_is_of_many_clients() -> None:
    async with opened(Port(proxies=HERE, anonymous="everywhere")) as port:
        reader, writer = await port.connect()
        for address in ("203.0.113.7", "203.0.113.7", "203.0.113.8", "203.0.113.7"):
            writer.write(
                f"GET /who HTTP/1.1\r\nHost: {port.host}\r\nX-Forwarded-For: {address}\r\n\r\n".encode()
            )
            assert (await answer_of(reader))[0] == 200
        writer.close()
        seen = [peer.peer_address for peer in port.entered]
        assert seen == ["203.0.113.7", "203.0.113.8", "203.0.113.7"]


async def test_a_proxys_own_certificate_proves_nobody_that_it_speaks_for() -> None:
    shown = Facts("127.0.0.1", "127.0.0.1", True, b"certificate")
    found = HERE.facts_of(shown, [(b"x-forwarded-for", b"203.0.113.7")])
    assert found.certificate == b""
    assert not found.is_encrypted, "it does not say that the way before it was"
    assert ELSEWHERE.facts_of(shown, [(b"x-forwarded-for", b"203.0.113.7")]) is shown


async def test_in_clear_from_another_machine_nothing_is_private() -> None:
    shown = Facts("192.0.2.9", "192.0.2.1", False)
    said = [(b"x-forwarded-for", b"203.0.113.7"), (b"x-forwarded-proto", b"https")]
    found = ELSEWHERE.facts_of(shown, said)
    assert (found.address, found.scheme, found.is_encrypted) == ("203.0.113.7", "https", False)
    shown = Facts("192.0.2.9", "192.0.2.1", True)
    assert ELSEWHERE.facts_of(shown, said).is_encrypted


async def test_a_websocket_is_of_the_client_too() -> None:
    async with opened(Port(hosts=[NAME], proxies=HERE, anonymous="everywhere")) as port:
        headers = dict(line.split(": ") for line in (*SAFE, f"X-Forwarded-Host: {NAME}"))
        async with connect(
            port.socket_url("/socket"),
            origin=Origin(f"https://{NAME}"),
            additional_headers=headers,
            proxy=None,
        ) as client:
            await client.send("hello")
            async with asyncio.timeout(60):
                assert await client.recv() == "hello"
        assert port.entered[-1].peer_address == "203.0.113.7"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/moor/open", 200),
        ("/open", 200),
        ("/moor/below/a/b", 200),
        ("/moor/below/../open", 400),
        ("/moor/below/%2e%2e/open", 400),
        ("/moor/below/a%2fb", 400),
        ("/moor/../open", 404),
        ("/moor//open", 404),
        ("/moor/moor/open", 404),
        ("/moorings/open", 404),
        ("/%6door/open", 404),
        ("/moor/open/", 404),
        ("/moor", 404),
    ],
)
async def test_below_a_base_path_the_same_is_served(path: str, status: int) -> None:
    async with opened(Port(base_path="/moor")) as port:
        found, _, body = await port.ask(path)
        assert found == status
        if path == "/moor/below/a/b":
            assert body == b"a/b"
