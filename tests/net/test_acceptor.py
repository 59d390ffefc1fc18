"""Listeners with few descriptors to give: whoever is silent makes room, and all of them come back."""

import asyncio
import contextlib
import logging
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator

import pytest
from tests.net.test_session import Certificates, certificates

from moorline.client.connecting import connect
from moorline.client.moor import Moor
from moorline.config.addresses import Address
from moorline.core.descriptors import Descriptors, Shares, Use
from moorline.errors import ConnectionLost, Refused
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.wire.link import Welcome
from moorline.wire.message import Answer
from moorline.wire.node import Echo, Echoed

__all__ = ["certificates"]

PLACES = 4


def account() -> Descriptors:
    most = dict.fromkeys(Use, 0) | {Use.CONNECTIONS: PLACES, Use.TURNED_AWAY: 4}
    return Descriptors(Shares(100_000, 100, 100, most))


def echo(session: Session, calls: list[Echo]) -> list[Answer]:  # noqa: ARG001
    return [Echoed(call.call, call.body) for call in calls]


@contextlib.asynccontextmanager
async def listening(
    descriptors: Descriptors, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Address]:
    async with listening_at(descriptors, [tls]) as (address,):
        yield address


@contextlib.asynccontextmanager
async def listening_at(
    descriptors: Descriptors, contexts: list[ssl.SSLContext | None]
) -> AsyncIterator[list[Address]]:
    """At one address for each context."""
    protocol = NativeProtocol(
        {Echo: echo},
        lambda version, keepalive_ms: Welcome(version, "n", keepalive_ms=keepalive_ms),
    )
    listeners = Listeners(
        Admission(
            anonymous="everywhere",
            connections_max=PLACES,
            hello_timeout_ms=60_000,
            keepalive_ms=60_000,
        ),
        descriptors,
    )
    addresses: list[Address] = []
    for tls in contexts:
        wanted = Address("tls" if tls else "tcp", "127.0.0.1", 0)
        addresses += await listeners.open(wanted, tls, protocol)
    try:
        yield addresses
    finally:
        await listeners.close()
    assert listeners.sessions == set()


async def opened(certificates: Certificates, address: Address) -> Moor:
    if address.scheme == "tls":
        return await certificates.connect(address, proven=True)
    return await connect(str(address))


async def silent(address: Address, count: int, stack: contextlib.ExitStack) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(count):
        one = stack.enter_context(socket.socket())
        one.setblocking(False)
        await loop.sock_connect(one, (address.host, address.port))


async def all_back(descriptors: Descriptors) -> None:
    while descriptors.held(Use.CONNECTIONS) or descriptors.held(Use.TURNED_AWAY):
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("has_tls", [False, True])
async def test_silent_ones_make_room_and_nothing_of_them_is_kept(
    certificates: Certificates,
    has_tls: bool,
) -> None:
    descriptors = account()
    async with listening(descriptors, certificates.context() if has_tls else None) as address:
        await (
            await opened(certificates, address)
        ).close()  # a loop opens files of its own at the first
        await all_back(descriptors)
        before = len(os.listdir("/dev/fd"))
        with contextlib.ExitStack() as stack:
            await silent(address, 10 * PLACES, stack)
            moor = await opened(certificates, address)
            await silent(address, 10 * PLACES, stack)
            assert await moor.echo(b"served") == b"served"
            await moor.close()
        await all_back(descriptors)
        while len(os.listdir("/dev/fd")) > before:
            await asyncio.sleep(0.01)


async def test_all_places_taken_the_next_is_told_and_a_place_that_is_free_is_given() -> None:
    descriptors = account()
    async with listening(descriptors) as address:
        inside = [await connect(str(address)) for _ in range(PLACES)]
        for _ in range(20):
            with pytest.raises((Refused, ConnectionLost), match=r"BUSY.*4 connections at once"):
                async with connect(str(address)) as late:
                    await late.echo(b"too many")
        await inside.pop().close()
        while descriptors.held(Use.CONNECTIONS) == PLACES:
            await asyncio.sleep(0.01)
        async with connect(str(address)) as late:
            assert await late.echo(b"in time") == b"in time"
        for moor in inside:
            await moor.close()
        await all_back(descriptors)


async def test_visitors_of_two_addresses_are_told_apart_and_make_room_for_each_other(
    certificates: Certificates,
) -> None:
    descriptors = account()
    async with listening_at(descriptors, [None, certificates.context()]) as (plain, secure):
        for _ in range(2 * PLACES):
            first, second = await opened(certificates, plain), await opened(certificates, secure)
            assert descriptors.held(Use.CONNECTIONS) == 2
            await first.close()
            await second.close()
            await all_back(descriptors)
        with contextlib.ExitStack() as stack:
            await silent(plain, 10 * PLACES, stack)
            moor = await opened(certificates, secure)
            assert await moor.echo(b"served") == b"served"
            await moor.close()
        await all_back(descriptors)


async def test_where_the_system_has_no_descriptor_what_knocks_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    async with listening(account()) as address:
        with socket.socket() as early, caplog.at_level(logging.WARNING):
            early.setblocking(False)
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            lowest_free = os.dup(early.fileno())
            os.close(lowest_free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
            try:
                await loop.sock_connect(early, (address.host, address.port))
                while not caplog.messages:
                    await asyncio.sleep(0.01)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            async with connect(str(address)) as moor:
                assert await moor.echo(b"later") == b"later"
        assert len(caplog.messages) == 1
