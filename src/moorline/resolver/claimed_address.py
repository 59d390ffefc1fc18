"""Room: resolver. Which addresses a publisher may claim, and the proof that it listens there.

Refused at once: addresses that nobody can listen at for others (unspecified, multicast, link-local,
reserved, of translators between IPv6 and IPv4), and loopback ones of publishers that are elsewhere.
Everything else is dialled. What is found there is never told: a login that fails says the same words after
the same time, whatever answered or did not.
"""

import asyncio
import hmac
import ipaddress
import secrets
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from moorline.config.addresses import Address, listen_address
from moorline.core.directory.token import AddressQuestion, address_proof
from moorline.errors import AddressNotProven, BadAddress, LimitReached
from moorline.limits import (
    ADDRESS_NOT_PROVEN_MS,
    RESOLVER_DIALS_MAX,
    RESOLVER_DIALS_PER_ADDRESS_MAX,
    RESOLVER_DIALS_PER_PRINCIPAL_MAX,
    RESOLVER_DIALS_WAITING_MAX,
    RESOLVER_DIALS_WAITING_PER_PRINCIPAL_MAX,
    RESOLVER_LOOKUPS_MAX,
    RESOLVER_LOOKUPS_PER_PRINCIPAL_MAX,
)
from moorline.net.address_dial import answered_proof
from moorline.net.clock import monotonic_ms

NONCE_BYTES: Final = 32
_NOBODYS: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",
        "240.0.0.0/4",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2001::/32",
        "2002::/16",
    )
)
"""Networks that no machine has an address of: "this one", and what is reserved, broadcast included. Those of
IPv6 are of translators and tunnels: the address of IPv4 inside, 127.0.0.1 perhaps, is what is dialled."""
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
"""Addresses of IPv4 as they were once written, and at the beginning "unspecified" and "loopback"."""


def claimed(text: str, *, is_peer_local: bool) -> Address:
    """The address as it is written; refuses what no publisher can be reached at."""
    try:
        address = listen_address(text)
    except ValueError as error:
        raise BadAddress(f"{text[:80]!r} is no address of a publisher: {error}") from error
    if not address.port:
        raise BadAddress(f"{text!r} has no port: claim the one that you listen at")
    try:
        ip = ipaddress.ip_address(address.host)
    except ValueError:
        if address.is_loopback and not is_peer_local:
            raise _unreachable(text) from None
        return address
    if not is_allowed(ip, is_peer_local=is_peer_local):
        raise _unreachable(text)
    return address


def is_allowed(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, *, is_peer_local: bool) -> bool:
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    one = mapped or ip
    if one.is_unspecified or one.is_multicast or one.is_link_local:
        return False
    if any(one in network for network in _NOBODYS):
        return False
    if one in _COMPATIBLE and not one.is_loopback:
        return False
    return is_peer_local or not one.is_loopback


def _unreachable(text: str) -> BadAddress:
    return BadAddress(
        f"{text!r}: others cannot reach a publisher there: claim an address of this machine that they can"
    )


def not_proven(address: Address) -> AddressNotProven:
    return AddressNotProven(
        f"{address}: the resolver has dialled it and was not answered with the key of this login: does "
        "the publisher listen there, and does a firewall let the resolver through?"
    )


class Shares:
    """Places of each of many, none of whom takes those of another."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._places: dict[object, asyncio.Semaphore] = {}
        self._used: Counter[object] = Counter()

    @asynccontextmanager
    async def place(self, whose: object) -> AsyncIterator[None]:
        self._used[whose] += 1
        try:
            async with self._places.setdefault(whose, asyncio.Semaphore(self._size)):
                yield
        finally:
            self._used[whose] -= 1
            if not self._used[whose]:
                del self._used[whose], self._places[whose]


class Lookups:
    """Names that publishers claim. A lookup has a thread until it is over, and cannot be taken back: whoever
    gave up waiting leaves its place to it for so long."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(RESOLVER_LOOKUPS_MAX)
        self._of_principals = Shares(RESOLVER_LOOKUPS_PER_PRINCIPAL_MAX)
        self._tasks = set[asyncio.Task[list[str]]]()

    async def found(self, address: Address, name: str) -> list[str]:
        """The addresses that it stands for."""
        try:
            return [str(ipaddress.ip_address(address.host))]
        except ValueError:
            pass
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._of_principals.place(name))
            await stack.enter_async_context(self._places)
            task = asyncio.create_task(_looked_up(address, stack.pop_all()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)


async def _looked_up(address: Address, places: AsyncExitStack) -> list[str]:
    async with places:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return []
    return [str(one[4][0]) for one in found]


class Dials:
    """The addresses that are being proven, as many at once as a node has places for.

    Each principal has a share of them, and each address that it claims one of that: who claims what never
    answers waits for itself. A place is held for the whole time of a failure. Were it free as soon as an
    address has refused, the next login would tell by its wait what was there.
    """

    def __init__(self, resolver: bytes, *, timeout_ms: int) -> None:
        self._resolver = resolver
        self._timeout_ms = timeout_ms
        self._places = asyncio.Semaphore(RESOLVER_DIALS_MAX)
        self._of_principals = Shares(RESOLVER_DIALS_PER_PRINCIPAL_MAX)
        self._of_addresses = Shares(RESOLVER_DIALS_PER_ADDRESS_MAX)
        self._lookups = Lookups()
        self._logins = Counter[str]()
        self.waiting = 0
        self.failed = 0

    def check_room(self, name: str) -> None:
        """`name` is whose share it is (resolver/whose.py)."""
        if self.waiting >= RESOLVER_DIALS_WAITING_MAX:
            raise LimitReached(
                f"{self.waiting} logins of publishers wait for their addresses to be proven: try again"
            )
        if self._logins[name] >= RESOLVER_DIALS_WAITING_PER_PRINCIPAL_MAX:
            raise LimitReached(
                f"{self._logins[name]} logins of {name} wait for their addresses to be proven: try again"
            )

    async def is_proven(
        self, address: Address, key: bytes, name: str, *, is_peer_local: bool
    ) -> bool:
        """Whether somebody at the address knows the key of a login. Every failure takes the same time."""
        self.waiting += 1
        self._logins[name] += 1
        try:
            async with (
                self._of_addresses.place((name, str(address))),
                self._of_principals.place(name),
                self._places,
            ):
                began_ms = monotonic_ms()
                if await self._is_answered_in_time(address, key, name, is_peer_local):
                    return True
                self.failed += 1
                ends_ms = began_ms + max(ADDRESS_NOT_PROVEN_MS, self._timeout_ms)
                await asyncio.sleep(max(0, ends_ms - monotonic_ms()) / 1_000)
                return False
        finally:
            self.waiting -= 1
            self._logins[name] -= 1
            if not self._logins[name]:
                del self._logins[name]

    async def _is_answered_in_time(
        self, address: Address, key: bytes, name: str, is_peer_local: bool
    ) -> bool:
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                return await self._is_answered(address, key, name, is_peer_local)
        except TimeoutError:
            return False

    async def _is_answered(
        self, address: Address, key: bytes, name: str, is_peer_local: bool
    ) -> bool:
        host = await self._host_of(address, name, is_peer_local)
        if not host:
            return False
        question = AddressQuestion.of(self._resolver, key, secrets.token_bytes(NONCE_BYTES))
        wanted = address_proof(key, question)
        given = await answered_proof(address, host, bytes(question), self._timeout_ms)
        return hmac.compare_digest(wanted, given)

    async def _host_of(self, address: Address, name: str, is_peer_local: bool) -> str:
        """The address that a name stands for; empty if there is none, or one that nobody may claim."""
        hosts = await self._lookups.found(address, name)
        for host in hosts:
            if not is_allowed(ipaddress.ip_address(host), is_peer_local=is_peer_local):
                return ""
        return hosts[0] if hosts else ""
