"""Names that publishers claim: looked up a few at once, so that silent servers of names stop nobody."""

import asyncio
import socket
import threading
from typing import Any

import pytest
from tests.waiting import until

from moorline.config.addresses import Address
from moorline.limits import RESOLVER_LOOKUPS_MAX, RESOLVER_LOOKUPS_PER_PRINCIPAL_MAX
from moorline.resolver.claimed_address import Dials, Lookups


async def test_names_whose_servers_are_silent_leave_threads_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, over, real = list[str](), threading.Event(), socket.getaddrinfo

    def silent(host: str, *given: Any, **named: Any) -> Any:
        if host.endswith(".silent.test"):
            asked.append(host)
            over.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return real(host, *given, **named)

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    dials = Dials(bytes(16), timeout_ms=100)
    try:
        claims = [Address("tcp", f"{number}.silent.test", 7_400) for number in range(16)]
        flood = [
            asyncio.create_task(dials.is_proven(one, bytes(32), "evil", is_peer_local=False))
            for one in claims
        ]
        assert not any(await asyncio.gather(*flood)), "all have given up"
        assert len(asked) == RESOLVER_LOOKUPS_PER_PRINCIPAL_MAX, "what was begun goes on"
        # Who looks up a name of its own, as a node does for a link.
        async with asyncio.timeout(10):
            loop = asyncio.get_running_loop()
            assert await loop.getaddrinfo("localhost", 7_400, type=socket.SOCK_STREAM)
            found = await Lookups().found(Address("tcp", "localhost", 7_400), "good")
        assert {"127.0.0.1", "::1"} & set(found)
    finally:
        over.set()


async def test_a_place_is_free_again_when_its_lookup_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, over = list[str](), threading.Event()

    def silent(host: str, *_: Any, **__: Any) -> Any:
        asked.append(host)
        over.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    lookups = Lookups()
    names = [f"principal {number}" for number in range(RESOLVER_LOOKUPS_MAX + 1)]
    waiting = [
        asyncio.create_task(lookups.found(Address("tcp", "name.test", 1), name)) for name in names
    ]
    await until(lambda: len(asked) == RESOLVER_LOOKUPS_MAX, what="all threads that it may have")
    waiting[0].cancel()
    await asyncio.wait([waiting[0]])
    assert len(asked) == RESOLVER_LOOKUPS_MAX, "its thread is not free for that"
    over.set()
    assert await asyncio.gather(*waiting[1:]) == [[]] * RESOLVER_LOOKUPS_MAX
    assert len(asked) == RESOLVER_LOOKUPS_MAX + 1


async def test_an_address_needs_no_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("looked up")

    monkeypatch.setattr(socket, "getaddrinfo", never)
    assert await Lookups().found(Address("tcp", "192.0.2.7", 1), "any") == ["192.0.2.7"]
    assert await Lookups().found(Address("tcp", "2001:db8::1", 1), "any") == ["2001:db8::1"]
