"""Room: core/mqtt. What a client gets: packet ids, its receive maximum, redelivery, exchanges of qos 2."""

from collections.abc import Iterable, Sequence

import msgspec

from moorline.core.effects import Effect
from moorline.core.mqtt.effects import Ack, Place, Sent
from moorline.core.mqtt.packets import NONE, Properties, Publish


class Outgoing(msgspec.Struct, gc=False):
    """A message for the client, as its subscriptions grant it (core/mqtt/subscriptions.py)."""

    place: Place
    feed: int
    """Of the delivery that it comes from; 0 for none (a retained message)."""
    topic: str
    payload: bytes
    qos: int
    retain: bool = False
    expires_at_ms: int = 0
    """0 is never."""
    properties: Properties = NONE
    """With the subscription identifiers, without the expiry."""


class Outbound:
    """Of one session; it outlives its connections."""

    def __init__(self, window: int, sent: Iterable[Sent] = ()) -> None:
        """`window` bounds the exchanges that are open at once; `sent` are those that were kept."""
        raise NotImplementedError

    def connected(self, receive_max: int) -> list[Effect]:
        """A new connection of the session. PUBRELs go at once; give all else back to the deliveries, and
        what comes again (`deliver`) has its old packet id and DUP."""
        raise NotImplementedError

    @property
    def room(self) -> int:
        """How many messages of qos 1 and 2 may be delivered now."""
        raise NotImplementedError

    def deliver(self, messages: Sequence[Outgoing], now_ms: int) -> list[Effect]:
        """In this order, at most `room` of them with a qos. What has expired is done and counted."""
        raise NotImplementedError

    def kept(self, packet_ids: Iterable[int]) -> list[Effect]:
        raise NotImplementedError

    def answered(self, acks: Sequence[Ack]) -> list[Effect]:
        """PUBACK, PUBREC and PUBCOMP of the client."""
        raise NotImplementedError

    def forgotten(self, packet_ids: Iterable[int]) -> None:
        raise NotImplementedError

    def dropped(self, publishes: Sequence[Publish]) -> list[Effect]:
        """Too large for this client: done as if they had been sent (MQTT 5, 3.1.2.11.4), and counted."""
        raise NotImplementedError

    def gone(self, source: str, place_shard: object, below: int) -> list[Effect]:
        """Of this source and shard nothing below that offset comes again (retention, expiry, an end of the
        subscription): exchanges that wait for it are finished without it."""
        raise NotImplementedError

    def unfinished(self) -> list[Sent]:
        """All open exchanges in their order, as a restart or another node takes them."""
        raise NotImplementedError

    expired: int
    too_large: int

    def check(self) -> None:
        raise NotImplementedError
