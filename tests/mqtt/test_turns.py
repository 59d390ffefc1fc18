"""Q41: a client that brings much at once has a piece of it in each turn of the loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from moorline.core.mqtt.connection import ConnectionTerms
from moorline.core.mqtt.effects import EndConnection, OpenSession
from moorline.core.mqtt.packets import Connect, Disconnect, Pingreq
from moorline.core.mqtt.reason import Violation
from moorline.limits import MQTT_TURN_BYTES
from moorline.mqtt.client import Client
from moorline.wire.mqtt.encoder import encode

PING = encode(Pingreq(), 4)
PER_TURN = MQTT_TURN_BYTES // len(PING)


class Transport:
    """Bytes go nowhere, and are counted."""

    def __init__(self) -> None:
        self.written = b""
        self.is_read = True

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_read = False

    abort = close

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True

    @property
    def answers(self) -> int:
        return self.written.count(b"\xd0\0")


class Doors:
    """Everybody comes in."""

    logins: Any
    redirects: Any = None

    def __init__(self) -> None:
        self.logins = self
        self.ends: list[EndConnection] = []

    async def judge(self, *_: object) -> None:
        pass

    async def open(self, client: Client, effect: OpenSession) -> None:  # noqa: ARG002
        client.accepted(session_present=False)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.work = asyncio.ensure_future(work)

    def violated(self, client: Client, violation: Violation) -> None:
        raise AssertionError(f"{client.name}: {violation}")

    def ended(self, client: Client, end: EndConnection) -> None:  # noqa: ARG002
        self.ends.append(end)


class Admission:
    listener = "mqtt://127.0.0.1:1883"


async def opened() -> tuple[Client, Transport, Doors]:
    doors, transport = Doors(), Transport()
    terms = ConnectionTerms(1_024, 1 << 20, 0, 0, 10_000)
    client = Client(doors, Admission(), terms, transport)  # type: ignore[arg-type]
    client.received(encode(Connect(4, "c", True, 0), 4))
    await doors.work
    return client, transport, doors


async def turn() -> None:
    """One of the loop, and what it has brought about."""
    await asyncio.sleep(0)


async def test_a_large_read_is_done_in_pieces() -> None:
    client, transport, _ = await opened()
    client.received(PING * (2 * PER_TURN + 5))
    assert transport.answers == PER_TURN
    assert not transport.is_read
    await turn()
    assert transport.answers == 2 * PER_TURN
    # What the transport had already is behind it.
    client.received(encode(Disconnect(), 4))
    await turn()
    assert transport.answers == 2 * PER_TURN + 5
    assert client.end_code == "DONE"


async def test_it_is_read_on_when_all_is_done() -> None:
    client, transport, _ = await opened()
    client.received(PING * (PER_TURN + 1))
    await turn()
    assert (transport.answers, transport.is_read) == (PER_TURN + 1, True)
    client.received(PING * PER_TURN)
    assert (transport.answers, transport.is_read) == (2 * PER_TURN + 1, True)


async def test_whoever_is_held_for_another_reason_waits_with_the_rest() -> None:
    client, transport, _ = await opened()
    client.received(PING * (PER_TURN + 1))
    client.hold_reading("commit")
    for _ in range(3):
        await turn()
    assert transport.answers == PER_TURN
    client.release_reading("commit")
    assert not transport.is_read
    await turn()
    assert (transport.answers, transport.is_read) == (PER_TURN + 1, True)


@pytest.mark.parametrize("is_goodbye", [True, False])
async def test_what_came_before_the_end_counts(is_goodbye: bool) -> None:
    client, _, doors = await opened()
    client.received(PING * PER_TURN + (encode(Disconnect(), 4) if is_goodbye else PING))
    client.lost()
    assert [end.is_normal for end in doors.ends] == [is_goodbye]
