"""Clients of MQTT on several nodes of a cluster: sessions that move, ids that are taken over."""

import asyncio
import signal
import time

import asyncpg
import msgspec
import pytest
from tests.cluster.running import WITHIN_S, Nodes
from tests.mqtt.wire_client import WireClient

from moorline.core.mqtt.packets import (
    Connack,
    Disconnect,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Will,
)
from moorline.core.mqtt.reason import ReasonCode
from moorline.mqtt.stored import Exchanges

pytestmark = pytest.mark.process

FORGET_STORED = "update moorline.mqtt_session set exchanges = $1 where name = 'mqtt/writer'"
encode = msgspec.msgpack.encode


def joined(nodes: Nodes, node: str, name: str, **how: object) -> tuple[WireClient, bool]:
    client = WireClient(nodes[node].mqtt, name=name)
    said = client.connect(clean=False, expiry_s=600, **how)  # type: ignore[arg-type]
    assert said.reason is ReasonCode.SUCCESS, said
    return client, said.session_present


async def test_a_session_moves_to_another_node_when_its_own_is_killed(nodes: Nodes) -> None:
    """Filters, place, and unfinished exchanges of QoS 2 in both directions; its will is published."""
    await nodes.start("a", "b")

    def before() -> tuple[int, int]:
        reader, _ = joined(nodes, "a", "reader", will=Will("wills/reader", b"gone", 1))
        writer, _ = joined(nodes, "b", "writer")
        reader.subscribe("t/#", "wills/#", qos=2)
        reader.publish("kept", b"mine", 2)  # PUBREC came; PUBREL is still to be said
        mine = reader._ids
        writer.publish("t/1", b"one", 2)
        writer.say(Pubrel(writer._ids))
        writer.hear(Pubcomp)
        found = reader.hear(Publish)
        reader.say(Pubrec(found.packet_id))
        reader.hear(Pubrel)
        return mine, found.packet_id

    mine, theirs = await asyncio.to_thread(before)
    await asyncio.to_thread(nodes["a"].kill)

    def behind() -> None:
        reader, present = joined(nodes, "b", "reader")
        assert present
        assert reader.hear(Pubrel).packet_id == theirs
        reader.say(Pubcomp(theirs), Pubrel(mine))
        assert reader.hear(Pubcomp).reason is ReasonCode.SUCCESS, "the id is known on any node"
        writer, _ = joined(nodes, "b", "writer")
        writer.publish("t/2", b"two", 1)
        got = []
        while b"two" not in got:
            got.append(reader.message().payload)
        assert b"one" not in got, "it was released"

    await asyncio.to_thread(behind)


async def test_q04_q12_what_pubrec_has_answered_is_not_stored_by_another_node(
    nodes: Nodes,
) -> None:
    """PUBREC is lost with its node: the client says it again, to one whose streams do not have it."""
    await nodes.start("a", "b")

    def before() -> int:
        reader, _ = joined(nodes, "b", "reader")
        reader.subscribe("t/#")
        writer, _ = joined(nodes, "a", "writer")
        writer.publish("t/1", b"once", 2)
        assert reader.message().payload == b"once"
        reader.socket.close()
        return writer._ids

    packet_id = await asyncio.to_thread(before)
    await asyncio.to_thread(nodes["a"].kill)

    def behind() -> None:
        writer, present = joined(nodes, "b", "writer")
        assert present
        reader, _ = joined(nodes, "b", "reader")
        writer.say(Publish("t/1", b"once", 2, False, True, packet_id))
        assert writer.hear(Pubrec).reason is ReasonCode.SUCCESS
        writer.say(Pubrel(packet_id))
        assert writer.hear(Pubcomp).reason is ReasonCode.SUCCESS
        writer.publish("t/1", b"last", 1)
        assert reader.message().payload == b"last"

    await asyncio.to_thread(behind)


async def test_a_client_id_is_taken_over_from_another_node(nodes: Nodes) -> None:
    await nodes.start("a", "b")

    def both() -> None:
        old, _ = joined(nodes, "a", "same")
        old.subscribe("t")
        new, present = joined(nodes, "b", "same")
        assert present
        assert old.hear(Disconnect).reason is ReasonCode.SESSION_TAKEN_OVER
        assert old.is_closed()
        writer, _ = joined(nodes, "a", "writer")
        writer.publish("t", b"x", 1)
        assert new.message().payload == b"x"

    await asyncio.to_thread(both)


async def test_q04_q06_who_takes_over_at_another_node_has_a_will_of_its_own(nodes: Nodes) -> None:
    """That of the connection that is taken over is published too, unless its delay is not over."""
    await nodes.start("a", "b")

    def joined_with(node: str, name: str, payload: bytes, delay_s: int = 0) -> WireClient:
        properties = Properties(will_delay_s=delay_s or None)
        will = Will(f"wills/{name}", payload, 1, properties=properties)
        return joined(nodes, node, name, will=will)[0]

    def both() -> None:
        watcher, _ = joined(nodes, "b", "watcher")
        watcher.subscribe("wills/#")
        for name, delay_s, expected in [("prompt", 0, [b"old", b"new"]), ("slow", 1, [b"new"])]:
            old = joined_with("a", name, b"old", delay_s)
            new = joined_with("b", name, b"new")
            assert old.hear(Disconnect).reason is ReasonCode.SESSION_TAKEN_OVER
            assert old.is_closed()
            # Behind what the old node does when it hears of it.
            other, _ = joined(nodes, "a", f"{name}-other", will=Will("wills/other", b"-", 1))
            other.socket.close()
            assert watcher_until(watcher, b"-") == expected[:-1]
            new.socket.close()
            assert watcher.message().payload == b"new"

    await asyncio.to_thread(both)


def watcher_until(watcher: WireClient, last: bytes) -> list[bytes]:
    """What came before that."""
    got: list[bytes] = []
    while not got or got[-1] != last:
        got.append(watcher.message().payload)
    return got[:-1]


async def test_messages_and_retained_ones_come_from_all_nodes(nodes: Nodes) -> None:
    await nodes.start("a", "b")

    def all_of_it() -> None:
        reader, _ = joined(nodes, "a", "reader")
        writer, _ = joined(nodes, "b", "writer")
        writer.publish("t/kept", b"kept", 1, retain=True)
        reader.subscribe("t/#")
        got = {reader.message().payload}
        writer.publish("t/live", b"live", 1)
        while b"live" not in got:
            got.add(reader.message().payload)
        assert got == {b"kept", b"live"}

    await asyncio.to_thread(all_of_it)


async def test_q25_all_retained_messages_of_another_node_come_and_none_of_one_that_is_away(
    nodes: Nodes,
) -> None:
    """More than one answer between nodes holds; a node that is away delays nothing."""
    await nodes.start("a", "b")
    count, body = 1_500, bytes(1_000)

    def written() -> None:
        there, _ = joined(nodes, "b", "there")
        here, _ = joined(nodes, "a", "here")
        here.publish("t/here", body, 1, retain=True)
        for first in range(0, count, 500):
            some = range(first, first + 500)
            there.say(*(Publish(f"t/{n}", body, 1, True, False, n + 1) for n in some))
            for _ in some:
                there.hear(Puback)

    def found_at_a(wanted: int) -> set[str]:
        with WireClient(nodes["a"].mqtt) as reader:
            reader.connect()
            reader.subscribe("t/#")
            # Not those that come as they are published: what was a moment ago may come so as well.
            found: list[str] = []
            while len(found) < wanted:
                message = reader.message()
                if message.retain:
                    found.append(message.topic)
            assert reader.is_silent(Publish) or not any(
                packet.retain for packet in reader.heard if isinstance(packet, Publish)
            )
            assert len(set(found)) == wanted
            return set(found)

    await asyncio.to_thread(written)
    everything = {"t/here", *(f"t/{n}" for n in range(count))}
    assert await asyncio.to_thread(found_at_a, count + 1) == everything
    await asyncio.to_thread(nodes["b"].kill)
    assert await asyncio.to_thread(found_at_a, 1) == {"t/here"}


async def test_a_client_is_sent_to_the_node_that_should_serve_it(nodes: Nodes) -> None:
    """To the one that knows what became of its publishes of QoS 2, and away from one that stops."""
    for name in ("a", "b"):
        await nodes.start(name, flags=[f"--set=mqtt_reference={name}.example:1883"])

    def asked(node: str, level: int = 5) -> tuple[WireClient, Connack]:
        client = WireClient(nodes[node].mqtt, level, "writer")
        return client, client.connect(clean=False, expiry_s=600)

    def unfinished(at: str, packet_id: int) -> WireClient:
        """PUBREC comes, and PUBREL is not said."""
        writer, _ = asked(at)
        writer.say(Publish("t", b"x", 2, False, False, packet_id))
        assert writer.hear(Pubrec).reason is ReasonCode.SUCCESS
        return writer

    def released(writer: WireClient, packet_id: int) -> None:
        writer.say(Pubrel(packet_id))
        assert writer.hear(Pubcomp).reason is ReasonCode.SUCCESS
        writer.socket.close()

    def finished(at: str, packet_id: int) -> None:
        writer, said = asked(at)
        assert said.session_present
        released(writer, packet_id)

    async def sent_on(of: str, at: str) -> str | None:
        """Where `at` sends somebody of whose publish nobody but `of` can tell whether it is stored, once it
        has heard of that node."""
        end_s = time.monotonic() + WITHIN_S
        while True:
            writer = await asyncio.to_thread(unfinished, of, 2)
            # As it stands there before PUBREC may leave.
            row = encode(Exchanges({2: 2}, 2))
            assert await catalog.execute(FORGET_STORED, row) == "UPDATE 1"
            other, said = await asyncio.to_thread(asked, at)
            writer.socket.close()
            if said.reason is ReasonCode.USE_ANOTHER_SERVER:
                other.socket.close()
                return said.properties.server_reference
            assert said.reason is ReasonCode.SUCCESS
            # It has the exchange now: while that is unfinished, `of` would send us there.
            await asyncio.to_thread(released, other, 2)
            assert time.monotonic() < end_s

    # What PUBREC has answered any node knows to be stored.
    (await asyncio.to_thread(unfinished, "b", 1)).socket.close()
    await asyncio.to_thread(finished, "a", 1)
    catalog = await asyncpg.connect(nodes.dsn)
    try:
        assert await sent_on("b", "a") == "b.example:1883"
    finally:
        await catalog.close()

    def both() -> None:
        finished("b", 2)
        # Nothing is unfinished any more: any node serves it.
        other, said = asked("a")
        assert (said.reason, said.session_present) == (ReasonCode.SUCCESS, True)
        # Before MQTT 5 nobody can be sent anywhere.
        assert other.publish("t", b"y", 2) is ReasonCode.SUCCESS
        _, said = asked("b", 4)
        assert (said.reason, said.session_present) == (ReasonCode.SUCCESS, True)

    await asyncio.to_thread(both)
    watcher, _ = await asyncio.to_thread(joined, nodes, "a", "watcher")
    nodes["a"].signal(signal.SIGTERM)
    said = await asyncio.to_thread(watcher.hear, Disconnect)
    assert said.reason is ReasonCode.USE_ANOTHER_SERVER
    assert said.properties.server_reference == "b.example:1883"
    await asyncio.to_thread(nodes["a"].process.wait, 30)
