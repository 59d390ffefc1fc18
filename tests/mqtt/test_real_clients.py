"""The clients that people have: paho and aiomqtt from PyPI, and mosquitto's from Debian, as they come."""

import asyncio
import itertools
import json
import queue
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from paho.mqtt.client import Client, MQTTMessage, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from tests.process.nodes import NodeProcess

pytestmark = pytest.mark.process

WITHIN_S = 30
NUMBERS = itertools.count(1)
VERSIONS = [pytest.param(MQTTv5, id="v5"), pytest.param(MQTTv311, id="v3.1.1")]
needs_mosquitto = pytest.mark.skipif(
    shutil.which("mosquitto_sub") is None, reason="Debian's mosquitto-clients is not installed"
)


class Paho:
    """One client of paho with its own thread, as its examples use it."""

    def __init__(
        self, place: tuple[str, int], version: MQTTProtocolVersion = MQTTv5, name: str = ""
    ) -> None:
        self.name = name or f"paho{next(NUMBERS)}"
        self.place = place
        self.version = version
        self.heard: queue.Queue[MQTTMessage] = queue.Queue()
        self.made: queue.Queue[Any] = queue.Queue()
        self.gone: queue.Queue[Any] = queue.Queue()
        self.subscribed: queue.Queue[Any] = queue.Queue()

    def open(self, *, expiry_s: int = 0, clean: bool = True, will: Any = None) -> "Paho":
        how = {} if self.version == MQTTv5 else {"clean_session": clean}
        self.client = client = Client(
            CallbackAPIVersion.VERSION2,
            self.name,
            protocol=self.version,
            **how,  # type: ignore[arg-type]
        )
        client.on_message = lambda _c, _u, message: self.heard.put(message)
        client.on_connect = lambda _c, _u, flags, reason, _p: self.made.put((flags, reason))
        client.on_disconnect = lambda _c, _u, _f, reason, _p: self.gone.put(reason)
        client.on_subscribe = lambda _c, _u, _m, reasons, _p: self.subscribed.put(reasons)
        if will is not None:
            client.will_set(*will)
        more: dict[str, Any] = {}
        if self.version == MQTTv5:
            properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = expiry_s
            more = {"clean_start": clean, "properties": properties}
        client.connect(*self.place, keepalive=30, **more)
        client.loop_start()
        flags, reason = self.made.get(timeout=WITHIN_S)
        assert not reason.is_failure, reason
        self.session_present = flags.session_present
        return self

    def subscribe(self, text: str, qos: int = 1) -> None:
        self.client.subscribe(text, qos)
        (reason,) = self.subscribed.get(timeout=WITHIN_S)
        assert reason.value == qos, reason

    def publish(self, topic: str, payload: bytes, qos: int = 1, **more: Any) -> None:
        """Waits until it is acknowledged."""
        info = self.client.publish(topic, payload, qos, **more)
        info.wait_for_publish(WITHIN_S)
        assert info.is_published()

    def take(self, count: int) -> list[MQTTMessage]:
        return [self.heard.get(timeout=WITHIN_S) for _ in range(count)]

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def drop(self) -> None:
        """Without a goodbye, as a device that loses its net."""
        self.client.loop_stop()
        socket = self.client.socket()
        if socket is not None:
            socket.close()


@pytest.fixture
def opened() -> Iterator[list[Paho]]:
    """Closed at the end."""
    clients: list[Paho] = []
    yield clients
    for client in clients:
        client.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_q10_every_qos_of_publisher_and_subscriber(
    node: NodeProcess, opened: list[Paho], name: str, version: MQTTProtocolVersion
) -> None:
    """With paho: the lower of both, in order."""
    sender = Paho(node.mqtt, version).open()
    readers = [Paho(node.mqtt, version).open() for _ in range(3)]
    opened += [sender, *readers]
    for granted, reader in enumerate(readers):
        reader.subscribe(f"{name}/#", granted)
    for number in range(30):
        sender.publish(f"{name}/{number % 3}", str(number).encode(), number % 3)
    for granted, reader in enumerate(readers):
        messages = reader.take(30)
        for topic in range(3):
            mine = [message for message in messages if message.topic == f"{name}/{topic}"]
            assert [int(message.payload) for message in mine] == list(range(topic, 30, 3))
            assert {message.qos for message in mine} == {min(granted, topic)}


def test_q17_properties_as_paho_says_and_hears_them(
    node: NodeProcess, opened: list[Paho], name: str
) -> None:
    sender, reader = Paho(node.mqtt).open(), Paho(node.mqtt).open()
    opened += [sender, reader]
    reader.subscribe(name)
    said: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    said.ContentType, said.ResponseTopic, said.CorrelationData = "text/plain", "a/b", b"\0\1"
    said.UserProperty = [("b", "1"), ("a", "2"), ("b", "1")]
    said.PayloadFormatIndicator = 1
    sender.publish(name, b"payload", properties=said)
    (message,) = reader.take(1)
    heard: Any = message.properties
    assert heard is not None
    assert (heard.ContentType, heard.ResponseTopic) == ("text/plain", "a/b")
    assert heard.CorrelationData == b"\0\1"
    assert heard.UserProperty == [("b", "1"), ("a", "2"), ("b", "1")]
    assert heard.PayloadFormatIndicator == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_q25_retained_is_set_replaced_and_cleared(
    node: NodeProcess, opened: list[Paho], name: str, version: MQTTProtocolVersion
) -> None:
    sender = Paho(node.mqtt, version).open()
    opened.append(sender)

    def retained() -> list[bytes]:
        reader = Paho(node.mqtt, version).open()
        opened.append(reader)
        reader.subscribe(f"{name}/+")
        # Behind what is retained comes what is published now.
        sender.publish(f"{name}/end", b"end")
        found = []
        while (message := reader.heard.get(timeout=WITHIN_S)).payload != b"end":
            assert message.retain
            found.append(bytes(message.payload))
        return found

    assert retained() == []
    sender.publish(f"{name}/a", b"1", retain=True)
    sender.publish(f"{name}/a", b"2", retain=True)
    sender.publish(f"{name}/a", b"3")
    assert retained() == [b"2"]
    sender.publish(f"{name}/a", b"", retain=True)
    assert retained() == []


WILL_PROGRAM = """
import sys, time
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
client = Client(CallbackAPIVersion.VERSION2, sys.argv[3])
client.will_set(sys.argv[4], b"gone", 1)
client.on_connect = lambda *_: print("connected", flush=True)
client.connect(sys.argv[1], int(sys.argv[2]))
client.loop_forever()
"""


def test_q06_a_will_is_published_when_the_client_is_killed(
    node: NodeProcess, opened: list[Paho], name: str
) -> None:
    reader = Paho(node.mqtt).open()
    opened.append(reader)
    reader.subscribe(name)
    host, port = node.mqtt
    program = [sys.executable, "-c", WILL_PROGRAM, host, str(port), f"doomed-{name}", name]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as doomed:
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == b"connected\n"
        doomed.send_signal(signal.SIGKILL)
        doomed.wait(WITHIN_S)
    (message,) = reader.take(1)
    assert (message.payload, message.retain) == (b"gone", False)


def test_q06_no_will_behind_a_goodbye(node: NodeProcess, opened: list[Paho], name: str) -> None:
    reader, sender = Paho(node.mqtt).open(), Paho(node.mqtt).open()
    opened += [reader, sender]
    reader.subscribe(name)
    Paho(node.mqtt).open(will=(name, b"gone", 1)).close()
    Paho(node.mqtt).open(will=(name, b"lost", 1)).drop()
    (message,) = reader.take(1)
    assert message.payload == b"lost"


@pytest.mark.parametrize("version", VERSIONS)
def test_q03_a_session_of_paho_over_kill_9_of_the_node(
    tmp_path: Path, version: MQTTProtocolVersion
) -> None:
    """What PUBACK and PUBCOMP said is there; QoS 2 comes once."""
    flags = ("--set=streams.shards=2",)
    with NodeProcess(tmp_path / "data", *flags) as node:
        reader = Paho(node.mqtt, version, "lasting").open(expiry_s=600, clean=version == MQTTv5)
        reader.subscribe("over/#", 2)
        reader.drop()
        sender = Paho(node.mqtt, version).open()
        for number in range(40):
            sender.publish(f"over/{number % 4}", str(number).encode(), 1 + number % 2)
        node.kill()
        sender.client.loop_stop()
    port = node.mqtt[1]
    with NodeProcess(tmp_path / "data", *flags, f"--mqtt=mqtt://127.0.0.1:{port}") as node:
        back = Paho(node.mqtt, version, "lasting").open(expiry_s=600, clean=False)
        assert back.session_present
        heard = back.take(40)
        numbers = [int(message.payload) for message in heard]
        assert sorted(numbers) == list(range(40))
        for topic in range(4):
            mine = [n for n in numbers if n % 4 == topic]
            assert mine == sorted(mine)
        back.close()


async def test_q11_aiomqtt_takes_up_its_session(node: NodeProcess, name: str) -> None:
    host, port = node.mqtt
    how: dict[str, Any] = {"port": port, "identifier": f"aio-{name}", "clean_session": False}
    async with aiomqtt.Client(host, **how) as reader:
        await reader.subscribe(f"{name}/#", qos=2)
    async with aiomqtt.Client(host, port=port) as sender:
        for number in range(20):
            await sender.publish(f"{name}/x", str(number), qos=2)
    async with aiomqtt.Client(host, **how) as reader:
        heard = []
        async with asyncio.timeout(WITHIN_S):
            async for message in reader.messages:
                heard.append(int(str(bytes(message.payload).decode())))
                if len(heard) == 20:
                    break
    assert heard == list(range(20))


def mosquitto(program: str, node: NodeProcess, *words: str) -> "subprocess.Popen[bytes]":
    host, port = node.mqtt
    # By lines: into a pipe it would say nothing before its end.
    command = ["stdbuf", "-oL", program, "-h", host, "-p", str(port), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@needs_mosquitto
@pytest.mark.parametrize("version", ["mqttv5", "mqttv311", "mqttv31"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_q10_mosquittos_clients(node: NodeProcess, name: str, version: str, qos: str) -> None:
    words = ("-V", version, "-q", qos, "-t", f"{name}/a")
    reader = mosquitto("mosquitto_sub", node, *words, "-C", "3", "-W", str(WITHIN_S), "-d")
    assert reader.stdout is not None
    said: list[bytes] = []
    while not any(b"SUBACK" in line for line in said):
        said.append(reader.stdout.readline())
        assert said[-1], b"".join(said)
    for number in range(3):
        sender = mosquitto("mosquitto_pub", node, *words, "-m", f"message {number}")
        _, errors = sender.communicate(timeout=WITHIN_S)
        assert sender.returncode == 0, errors
    out, errors = reader.communicate(timeout=WITHIN_S)
    assert reader.returncode == 0, errors
    lines = [line for line in out.splitlines() if line.startswith(b"message")]
    assert lines == [b"message 0", b"message 1", b"message 2"]


@needs_mosquitto
def test_q02_a_session_of_mosquitto_sub(node: NodeProcess, name: str) -> None:
    """With properties, as its options say them, and a message that came while it was away."""
    session = ("-V", "mqttv5", "-i", f"mosquitto-{name}", "-c", "-x", "600", "-q", "1", "-t", name)
    first = mosquitto("mosquitto_sub", node, *session, "-E")
    assert first.wait(WITHIN_S) == 0
    sender = mosquitto(
        "mosquitto_pub",
        node,
        "-V",
        "mqttv5",
        "-q",
        "1",
        "-t",
        name,
        "-m",
        "while away",
        "-D",
        "publish",
        "user-property",
        "k",
        "v",
        "-D",
        "publish",
        "content-type",
        "text/plain",
    )
    assert sender.wait(WITHIN_S) == 0
    again = mosquitto("mosquitto_sub", node, *session, "-C", "1", "-W", str(WITHIN_S), "-F", "%j")
    out, errors = again.communicate(timeout=WITHIN_S)
    assert again.returncode == 0, errors
    heard = json.loads(out)
    assert heard["payload"] == "while away"
    assert heard["properties"]["content-type"] == "text/plain"


def test_a_client_that_is_gone_is_seen_to_be(node: NodeProcess, opened: list[Paho]) -> None:
    """Q04: the same id again, and the first one hears why."""
    first = Paho(node.mqtt).open()
    second = Paho(node.mqtt, name=first.name).open()
    opened.append(second)
    reason = first.gone.get(timeout=WITHIN_S)
    first.client.loop_stop()
    assert str(reason) == "Session taken over"
