"""Room: wire/mqtt. Packets to bytes."""

from collections.abc import Sequence

from moorline.core.mqtt.effects import Ack
from moorline.core.mqtt.packets import Packet, Publish


def encode(
    packet: Packet, level: int, packet_bytes_max: int = 0, problem_information: bool = True
) -> bytes:
    """With a bound, reason strings and user properties that do not fit are left out (MQTT 5, 3.2.2.3.9 and
    the like); without `problem_information` they are left out of all but CONNACK, PUBLISH and DISCONNECT."""
    raise NotImplementedError


def encode_acks(acks: Sequence[Ack], level: int) -> bytes:
    raise NotImplementedError


class PublishWriter:
    """Of one connection: it has the aliases that the client knows."""

    def __init__(self, level: int, packet_bytes_max: int = 0, topic_alias_max: int = 0) -> None:
        raise NotImplementedError

    def write(self, publishes: Sequence[Publish]) -> tuple[bytes, list[Publish]]:
        """One buffer for all, and those that are larger than the client takes."""
        raise NotImplementedError
