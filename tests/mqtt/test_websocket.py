"""MQTT over WebSocket on the HTTP port: a stream in binary messages, of whoever the port lets in."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from tests.process.nodes import NodeProcess
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from moorline.core.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
)
from moorline.core.mqtt.reason import ReasonCode
from moorline.wire.mqtt import Decoder, encode

WITHIN_S = 20


class Browser:
    """A client of MQTT in binary messages."""

    def __init__(self, node: NodeProcess, path: str = "/mqtt", level: int = 5, **how: Any) -> None:
        how.setdefault("subprotocols", ["mqtt"])
        url = node.http.replace("http://", "ws://") + path
        self.stack = contextlib.ExitStack()
        self.socket: ClientConnection = self.stack.enter_context(
            connect(url, open_timeout=WITHIN_S, **how)
        )
        self.level = level
        self.decoder = Decoder(1 << 20, level, hears_server=True)
        self.heard: list[Packet] = []

    def say(self, *packets: Packet) -> None:
        self.socket.send(b"".join(encode(packet, self.level) for packet in packets))

    def hear(self) -> Packet:
        while not self.heard:
            data = self.socket.recv(timeout=WITHIN_S)
            assert isinstance(data, bytes)
            self.heard += self.decoder.feed(data)
        return self.heard.pop(0)


@pytest.fixture
def browsers() -> Iterator[list[Browser]]:
    opened: list[Browser] = []
    yield opened
    for one in opened:
        one.stack.close()


@pytest.mark.parametrize("path", ["/mqtt", "/"])
@pytest.mark.parametrize(
    ("subprotocol", "level"), [("mqtt", 5), ("mqtt", 4), ("mqttv3.1", 3), ("mqttv3.1.1", 4)]
)
def test_q43_the_subprotocols_that_are_spoken(
    node: NodeProcess, browsers: list[Browser], path: str, subprotocol: str, level: int
) -> None:
    one = Browser(node, path, level, subprotocols=[subprotocol])
    browsers.append(one)
    assert one.socket.subprotocol == subprotocol
    one.say(Connect(level, "", True, 30))
    answer = one.hear()
    assert isinstance(answer, Connack)
    assert answer.reason is ReasonCode.SUCCESS


def test_q43_another_subprotocol_and_none_at_all(node: NodeProcess) -> None:
    for offered in (["chat"], None):
        with pytest.raises(InvalidStatus) as caught:
            Browser(node, subprotocols=offered)
        assert caught.value.response.status_code == 400


def test_q43_a_page_of_a_foreign_origin(node: NodeProcess) -> None:
    with pytest.raises(InvalidStatus) as caught:
        Browser(node, origin="https://evil.example")
    assert caught.value.response.status_code == 403


def test_q43_packets_over_several_frames_and_several_in_one(
    node: NodeProcess, browsers: list[Browser], name: str
) -> None:
    one = Browser(node)
    browsers.append(one)
    said = b"".join(
        encode(packet, 5)
        for packet in (
            Connect(5, "", True, 30),
            Subscribe(1, (Subscription(name, 1),)),
            Publish(name, b"x" * 300, 1, packet_id=2),
            Pingreq(),
        )
    )
    # Each byte a message of its own, then all in one, then one message of many fragments.
    for at in range(len(said) - 1):
        one.socket.send(said[at : at + 1])
    one.socket.send(said[-1:] + encode(Publish(name, b"y", 0), 5))
    again = encode(Publish(name, b"z" * 500, 0), 5)
    one.socket.send(iter([again[at : at + 100] for at in range(0, len(again), 100)]))
    kinds: list[type[Packet]] = []
    payloads: list[bytes] = []
    while len(payloads) < 3 or not {Connack, Suback, Puback, Pingresp} <= set(kinds):
        packet = one.hear()
        kinds.append(type(packet))
        if isinstance(packet, Publish):
            payloads.append(packet.payload)
    assert sorted(payloads) == [b"x" * 300, b"y", b"z" * 500]


def test_q43_a_text_frame_ends_the_connection(node: NodeProcess, browsers: list[Browser]) -> None:
    one = Browser(node)
    browsers.append(one)
    one.say(Connect(5, "", True, 30))
    one.hear()
    one.socket.send("this is text")
    with pytest.raises(ConnectionClosed) as caught:
        one.socket.recv(timeout=WITHIN_S)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1003


def test_q01_a_client_over_a_websocket_is_held_to_the_protocol_too(
    node: NodeProcess, browsers: list[Browser]
) -> None:
    one = Browser(node)
    browsers.append(one)
    one.say(Pingreq())
    with pytest.raises(ConnectionClosed):
        one.socket.recv(timeout=WITHIN_S)
