"""A client of MQTT over a plain socket: it says packets and waits for packets, and nothing else."""

import socket
import time
from types import TracebackType
from typing import Any, TypeVar

from moorline.core.mqtt.packets import (
    MQTT_5,
    NONE,
    Connack,
    Connect,
    Packet,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from moorline.core.mqtt.reason import ReasonCode
from moorline.wire.mqtt.decoder import Decoder
from moorline.wire.mqtt.encoder import encode

WITHIN_S = 20
Kind = TypeVar("Kind")
Place = tuple[str, int]


class Closed(Exception):
    """The node has closed the connection."""


class WireClient:
    """One connection. It answers nothing by itself."""

    def __init__(self, place: Place, level: int = MQTT_5, name: str = "") -> None:
        self.socket = socket.create_connection(place, timeout=WITHIN_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.level = level
        self.name = name
        self.decoder = Decoder(1 << 20, level, hears_server=True)
        self.heard: list[Packet] = []
        self._ids = 0

    def __enter__(self) -> "WireClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    # --- words ------------------------------------------------------------------------------------

    def say(self, *packets: Packet) -> None:
        self.socket.sendall(b"".join(encode(packet, self.level) for packet in packets))

    def hear(self, kind: type[Kind], *, within_s: float = WITHIN_S) -> Kind:
        """The next packet of that type; what came before it stays in `heard`."""
        end = time.monotonic() + within_s
        while True:
            for place, packet in enumerate(self.heard):
                if isinstance(packet, kind):
                    del self.heard[place]
                    return packet
            left_s = end - time.monotonic()
            assert left_s > 0, f"no {kind.__name__} came; {self.heard} did"
            self.socket.settimeout(left_s)
            try:
                data = self.socket.recv(1 << 16)
            except TimeoutError:
                continue
            if not data:
                raise Closed(self.heard)
            self.heard += self.decoder.feed(data)

    def is_silent(self, kind: type[Any]) -> bool:
        """Whether nothing of that type has come by the time that a PINGREQ behind it is answered."""
        from moorline.core.mqtt.packets import Pingreq, Pingresp

        self.say(Pingreq())
        self.hear(Pingresp)
        return not any(isinstance(packet, kind) for packet in self.heard)

    def is_closed(self) -> bool:
        try:
            self.hear(_Nothing)
        except (Closed, ConnectionError):
            return True
        return False

    # --- the usual --------------------------------------------------------------------------------

    def connect(
        self,
        *,
        clean: bool = True,
        expiry_s: int = 0,
        keep_alive_s: int = 0,
        will: Will | None = None,
        user: str | None = None,
        password: bytes | None = None,
        **wishes: Any,
    ) -> Connack:
        properties = (
            Properties(session_expiry_s=expiry_s or None, **wishes)
            if self.level == MQTT_5
            else NONE
        )
        self.say(
            Connect(
                self.level,
                self.name,
                clean,
                keep_alive_s,
                will,
                user,
                password,
                properties,
            )
        )
        return self.hear(Connack)

    def subscribe(self, *filters: str | Subscription, qos: int = 1, **wishes: Any) -> Suback:
        self._ids += 1
        wanted = tuple(
            one if isinstance(one, Subscription) else Subscription(one, qos) for one in filters
        )
        properties = Properties(**wishes) if wishes else NONE
        self.say(Subscribe(self._ids, wanted, properties))
        return self.hear(Suback)

    def publish(
        self, topic: str, payload: bytes = b"", qos: int = 0, *, retain: bool = False, **more: Any
    ) -> ReasonCode | None:
        """Waits for PUBACK; of QoS 2 for PUBREC, and says no more."""
        properties = Properties(**more) if more else NONE
        packet_id = 0
        if qos:
            self._ids += 1
            packet_id = self._ids
        self.say(Publish(topic, payload, qos, retain, False, packet_id, properties))
        if qos == 1:
            return self.hear(Puback).reason
        return self.hear(Pubrec).reason if qos == 2 else None

    def message(self, *, within_s: float = WITHIN_S) -> Publish:
        """The next PUBLISH, acknowledged where its QoS is 1."""
        found = self.hear(Publish, within_s=within_s)
        if found.qos == 1:
            self.say(Puback(found.packet_id))
        return found


class _Nothing:
    """No packet is of that type."""
