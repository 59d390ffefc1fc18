"""Wills and retained messages against a real node."""

import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.mqtt.conftest import Join
from tests.mqtt.wire_client import WireClient
from tests.process.nodes import NodeProcess
from tests.waiting import eventually

from moorline.core.mqtt.packets import (
    MQTT_5,
    NONE,
    Disconnect,
    Properties,
    Puback,
    Publish,
    Subscription,
    Will,
)
from moorline.core.mqtt.reason import ReasonCode
from moorline.mqtt.wills import Life, Wills


def will_of(topic: str, level: int = MQTT_5, *, delay_s: int = 0, retain: bool = False) -> Will:
    properties = Properties(will_delay_s=delay_s) if delay_s and level == MQTT_5 else NONE
    return Will(topic, b"gone", 1, retain, properties)


def test_a_will_is_published_when_its_client_is_lost(join: Join, name: str, level: int) -> None:
    """Q06."""
    watcher = join(level=level)
    watcher.subscribe(f"{name}/#")
    client = join(level=level, will=will_of(f"{name}/will", level, retain=True))
    client.socket.close()
    assert watcher.message().payload == b"gone"
    late = join(level=level)
    late.subscribe(f"{name}/#")
    found = late.message()
    assert (found.payload, found.retain) == (b"gone", True)


def test_a_goodbye_drops_the_will_unless_it_asks_for_it(join: Join, name: str) -> None:
    """Q06."""
    watcher = join()
    watcher.subscribe(f"{name}/#")
    client = join(will=will_of(f"{name}/dropped"))
    client.say(Disconnect())
    assert client.is_closed()
    client = join(will=will_of(f"{name}/wanted"))
    client.say(Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE))
    assert watcher.message().topic == f"{name}/wanted"
    assert watcher.is_silent(Publish)


def test_a_client_that_is_back_in_time_has_no_will_published(join: Join, name: str) -> None:
    """Q06."""
    watcher = join()
    watcher.subscribe(f"{name}/#")
    how = {"clean": False, "expiry_s": 600}
    client = join(name, will=will_of(f"{name}/will", delay_s=2), **how)
    client.socket.close()
    back = join(name, **how)
    begun_s = time.monotonic()
    while time.monotonic() < begun_s + 3:
        assert watcher.is_silent(Publish)
    assert back.is_silent(Publish)


def test_a_will_waits_for_its_delay_and_not_for_longer_than_the_session(
    join: Join, name: str
) -> None:
    """Q06."""
    watcher = join()
    watcher.subscribe(f"{name}/#")
    begun_s = time.monotonic()
    client = join(will=will_of(f"{name}/will", delay_s=600), clean=False, expiry_s=2)
    client.socket.close()
    assert watcher.message().payload == b"gone"
    assert time.monotonic() - begun_s >= 1.5


def test_a_client_that_is_silent_for_too_long_is_ended(join: Join, name: str) -> None:
    """Q01, Q06."""
    watcher = join()
    watcher.subscribe(f"{name}/#")
    client = join(keep_alive_s=1, will=will_of(f"{name}/will"))
    assert client.hear(Disconnect).reason is ReasonCode.KEEP_ALIVE_TIMEOUT
    assert watcher.message().payload == b"gone"


def test_a_will_outlives_its_node(tmp_path: Path) -> None:
    """Q06."""
    with NodeProcess(tmp_path / "data") as node:
        watcher = WireClient(node.mqtt, name="watcher")
        watcher.connect(clean=False, expiry_s=600)
        watcher.subscribe("wills/#")
        client = WireClient(node.mqtt, name="client")
        client.connect(clean=False, expiry_s=600, will=will_of("wills/client"))
        node.kill()
    with NodeProcess(tmp_path / "data") as node:
        watcher = WireClient(node.mqtt, name="watcher")
        assert watcher.connect(clean=False, expiry_s=600).session_present
        assert watcher.message().payload == b"gone"
        watcher.socket.close()
        client.socket.close()


def test_retained_messages_are_set_replaced_and_taken_back(join: Join, name: str) -> None:
    """Q25."""
    writer = join()
    for payload in (b"old", b"new"):
        writer.publish(f"{name}/a", payload, 1, retain=True)
    writer.publish(f"{name}/b", b"b", 1, retain=True)
    writer.publish(f"{name}/b", b"", 1, retain=True)
    reader = join()
    reader.subscribe(f"{name}/+")
    found = reader.message()
    assert (found.topic, found.payload, found.retain) == (f"{name}/a", b"new", True)
    assert reader.is_silent(Publish)
    # One that comes while it is subscribed is not marked, unless that was asked for (3.3.1.3).
    writer.publish(f"{name}/a", b"newer", 1, retain=True)
    assert not reader.message().retain
    published = join()
    published.subscribe(Subscription(f"{name}/+", 1, retain_as_published=True, retain_handling=2))
    writer.publish(f"{name}/a", b"newest", 1, retain=True)
    assert published.message().retain


def test_retain_handling_says_when_they_come(join: Join, name: str) -> None:
    """Q21."""
    writer, reader = join(), join()
    writer.publish(name, b"kept", 1, retain=True)
    reader.subscribe(Subscription(name, 1, retain_handling=2))
    assert reader.is_silent(Publish)
    reader.subscribe(Subscription(name, 1, retain_handling=1))
    assert reader.is_silent(Publish), "the filter was there"
    reader.subscribe(Subscription(name, 1, retain_handling=0))
    assert reader.message().payload == b"kept"
    other = join()
    other.subscribe(Subscription(name, 1, retain_handling=1))
    assert other.message().payload == b"kept"


def test_many_retained_messages_come_complete_to_a_client_that_takes_few_at_a_time(
    join: Join, name: str
) -> None:
    """Q25."""
    writer, reader = join(), join(receive_max=50)
    count = 5_000
    for first in range(0, count, 500):
        writer.say(
            *(
                Publish(f"{name}/{n}", b"%d" % n, 1, True, False, n + 1)
                for n in range(first, first + 500)
            )
        )
        for _ in range(500):
            writer.hear(Puback)
    reader.subscribe(f"{name}/#")
    found = {int(reader.message().payload) for _ in range(count)}
    assert found == set(range(count))


def test_q25_retained_ones_behind_a_restart_and_behind_their_expiry(tmp_path: Path) -> None:
    def found(node: NodeProcess) -> set[str]:
        with WireClient(node.mqtt, name="reader") as reader:
            reader.connect()
            reader.subscribe("t/+")
            reader.is_silent(Publish)
            return {one.topic for one in reader.heard if isinstance(one, Publish)}

    with NodeProcess(tmp_path / "data") as node, WireClient(node.mqtt, name="writer") as writer:
        writer.connect()
        writer.publish("t/kept", b"x", 1, retain=True)
        writer.publish("t/long", b"x", 1, retain=True, message_expiry_s=600)
        writer.publish("t/gone", b"x", 1, retain=True)
        writer.publish("t/gone", b"", 1, retain=True)
        writer.publish("t/brief", b"x", 1, retain=True, message_expiry_s=1)
        eventually(lambda: found(node) == {"t/kept", "t/long"})
        node.kill()
    with NodeProcess(tmp_path / "data") as node:
        assert found(node) == {"t/kept", "t/long"}


def test_retained_messages_have_a_bound(tmp_path: Path) -> None:
    with (
        NodeProcess(tmp_path / "data", "--set=mqtt_retained_bytes_max=20_000") as node,
        WireClient(node.mqtt, name="writer") as writer,
        WireClient(node.mqtt, name="reader") as reader,
    ):
        writer.connect()
        said = [writer.publish(f"t/{n}", bytes(1_000), 1, retain=True) for n in range(40)]
        assert said == [ReasonCode.SUCCESS] * 40, "all are stored"
        reader.connect()
        reader.subscribe("t/#")
        reader.is_silent(Publish)
        kept = [one for one in reader.heard if isinstance(one, Publish)]
        assert 10 <= len(kept) < 20


def test_dashboards_find_their_topics(join: Join) -> None:
    reader = join()
    reader.subscribe("$SYS/broker/#", qos=0)
    found: dict[str, bytes] = {}
    while "$SYS/broker/clients/connected" not in found:
        one = reader.hear(Publish)
        found[one.topic] = one.payload
    assert int(found["$SYS/broker/clients/connected"]) >= 1
    assert found["$SYS/broker/version"].startswith(b"moor")
    other = join()
    other.subscribe("#", qos=0)
    assert not any(isinstance(one, Publish) and one.topic.startswith("$") for one in other.heard)


async def test_a_life_whose_connection_did_not_come_to_be_ends_without_its_will() -> None:
    class Broker:
        def spawn(self, work: Coroutine[Any, Any, None]) -> None:
            self.work = work

    broker = Broker()
    wills = Wills(broker)  # type: ignore[arg-type]
    life = wills._lives["a"] = Life(wills, "a", is_kept=False)
    life.machine.connected(0, will_of("t"), True, 0)
    life.is_connected = True
    wills.disconnected("a", is_normal=True, expiry_s=0)
    await broker.work
    assert not wills._lives
    assert life.testator is None
    wills.disconnected("a", is_normal=True, expiry_s=0)
