"""Clients of MQTT on several nodes of a cluster: sessions that move, ids that are taken over."""

import asyncio
import signal
import time

import pytest
from tests.cluster.running import WITHIN_S, Nodes
from tests.mqtt.wire_client import WireClient

from moorline.core.mqtt.packets import (
    Connack,
    Disconnect,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Will,
)
from moorline.core.mqtt.reason import ReasonCode

pytestmark = pytest.mark.process


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


async def test_a_client_is_sent_to_the_node_that_should_serve_it(nodes: Nodes) -> None:
    """To the one that knows what became of its publishes of QoS 2, and away from one that stops."""
    for name in ("a", "b"):
        await nodes.start(name, flags=[f"--set=mqtt_reference={name}.example:1883"])

    def asked(node: str, level: int = 5) -> tuple[WireClient, Connack]:
        client = WireClient(nodes[node].mqtt, level, "writer")
        return client, client.connect(clean=False, expiry_s=600)

    def sent_on(of: str, at: str) -> tuple[str | None, int]:
        """Where `at` sends somebody whose publish is unfinished at `of`, once it has heard of that node."""
        end_s = time.monotonic() + WITHIN_S
        while True:
            writer, _ = asked(of)
            # PUBREC comes, and PUBREL is not said.
            assert writer.publish("t", b"x", 2) is ReasonCode.SUCCESS
            packet_id = writer._ids
            writer.socket.close()
            other, said = asked(at)
            other.socket.close()
            if said.reason is ReasonCode.USE_ANOTHER_SERVER:
                return said.properties.server_reference, packet_id
            assert said.reason is ReasonCode.SUCCESS
            assert time.monotonic() < end_s
            finished(of, packet_id)

    def finished(at: str, packet_id: int) -> None:
        writer, said = asked(at)
        assert said.session_present
        writer.say(Pubrel(packet_id))
        assert writer.hear(Pubcomp).reason is ReasonCode.SUCCESS
        writer.socket.close()

    def both() -> None:
        reference, packet_id = sent_on("b", "a")
        assert reference == "b.example:1883"
        finished("b", packet_id)
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
