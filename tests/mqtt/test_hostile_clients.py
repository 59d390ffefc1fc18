"""Clients that do harm, against a real node: others are served all the while."""

import contextlib
import socket
import threading
from pathlib import Path

from tests.mqtt.conftest import Join
from tests.mqtt.wire_client import Closed, WireClient
from tests.process.nodes import NodeProcess
from tests.waiting import eventually

from moorline.core.mqtt.packets import (
    Connect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Subscribe,
    Subscription,
)
from moorline.core.mqtt.reason import ReasonCode
from moorline.wire.mqtt.encoder import encode


def is_served(client: WireClient, topic: str, times: int = 20) -> None:
    client.subscribe(topic)
    for number in range(times):
        assert client.publish(topic, b"%d" % number, 1) is ReasonCode.SUCCESS
        assert client.message().payload == b"%d" % number


def test_q41_a_client_that_never_reads(join: Join, name: str) -> None:
    """What it does not read stays in the stream: nothing of it piles up, and nobody waits for it."""
    deaf = join(level=4)
    deaf.say(Subscribe(1, (Subscription(f"{name}/#", 0),)))
    reader, writer = join(level=4), join(level=4)
    reader.subscribe(f"{name}/#", qos=0)
    body, each = bytes(50_000), 20
    for _ in range(20):
        writer.say(*(Publish(f"{name}/a", body, 1, packet_id=n + 1) for n in range(each)))
        for _ in range(each):
            writer.hear(Puback)
        for _ in range(each):
            assert reader.hear(Publish).payload == body
    is_served(join(), f"{name}-other")
    # It may read after all, and has everything.
    assert len([deaf.hear(Publish) for _ in range(400)]) == 400


def test_q41_a_client_that_reads_a_byte_at_a_time(join: Join, name: str) -> None:
    slow, writer = join(level=4), join(level=4)
    slow.subscribe(name, qos=0)
    writer.publish(name, b"0123456789" * 5, 1)
    heard = b""
    while not heard.endswith(b"0123456789" * 5):
        heard += slow.socket.recv(1)
    is_served(join(), f"{name}-other", 3)


def test_q41_a_client_that_only_pings(join: Join, name: str) -> None:
    client = join()
    client.say(*[Pingreq()] * 5_000)
    is_served(join(), name)
    for _ in range(5_000):
        client.hear(Pingresp)
    assert client.publish(name, b"x", 1) is ReasonCode.SUCCESS


def test_q42_connections_as_fast_as_they_can_be_made(tmp_path: Path) -> None:
    """Half of them say CONNECT and go, half say nothing."""
    with NodeProcess(tmp_path / "data") as node, WireClient(node.mqtt, name="good") as good:
        good.connect()
        good.subscribe("good")
        over = threading.Event()
        made = [0] * 4

        def storm(which: int) -> None:
            while not over.is_set():
                try:
                    with socket.create_connection(node.mqtt, timeout=10) as one:
                        if made[which] % 2:
                            said = Connect(4, f"storm-{which}-{made[which]}", True, 0)
                            one.sendall(encode(said, 4))
                except OSError:
                    continue  # the backlog is full: that one waits
                made[which] += 1

        storms = [threading.Thread(target=storm, args=(which,)) for which in range(len(made))]
        for one in storms:
            one.start()
        try:
            number = 0
            while sum(made) < 4_000 or number < 100:
                assert good.publish("good", b"%d" % number, 1) is ReasonCode.SUCCESS
                assert good.message().payload == b"%d" % number
                number += 1
        finally:
            over.set()
            for one in storms:
                one.join()

        def is_let_in() -> bool:
            # What the storm has left in the backlog is still to be looked at.
            with contextlib.suppress(Closed, OSError), WireClient(node.mqtt, name="fresh") as one:
                return one.connect().reason is ReasonCode.SUCCESS
            return False

        eventually(is_let_in)
        assert "Traceback" not in node.errors, node.errors
