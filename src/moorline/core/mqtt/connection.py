"""Room: core/mqtt. The node's end of one connection of an MQTT client."""

from collections.abc import Sequence
from enum import Enum

import msgspec

from moorline.core.effects import Effect
from moorline.core.mqtt.packets import NONE, Packet, Properties
from moorline.core.mqtt.reason import ReasonCode, Violation


class ConnectionTerms(msgspec.Struct, frozen=True):
    """What a listener offers to each of its connections."""

    receive_max: int
    packet_bytes_max: int
    topic_alias_max: int
    keep_alive_s_max: int
    """0 is no bound; a client that asks for more, or for none, is told of this one (server keep alive)."""
    connect_timeout_ms: int
    methods: frozenset[str] = frozenset()
    """Of enhanced authentication."""


class ConnectionState(Enum):
    AWAITING_CONNECT = "awaiting connect"
    AUTHENTICATING = "authenticating"
    """A step is judged, or the client's next AUTH is awaited."""
    DECIDING = "deciding"
    """Whoever hosts it opens the session."""
    OPEN = "open"
    CLOSED = "closed"


class Connection:
    def __init__(self, terms: ConnectionTerms) -> None:
        raise NotImplementedError

    level: int
    """0 before CONNECT."""

    def opened(self, now_ms: int) -> list[Effect]:
        raise NotImplementedError

    def heard(self, packets: Sequence[Packet], now_ms: int) -> list[Effect]:
        """What `Decoder.feed` gave. What comes while a proof or the session is looked at is held: stop
        reading meanwhile."""
        raise NotImplementedError

    def broke(self, violation: Violation, now_ms: int) -> list[Effect]:
        """The decoder, or `Inbound.hear`, raised it; hear `violation.before` first."""
        raise NotImplementedError

    def auth_continues(self, data: bytes, now_ms: int) -> list[Effect]:
        raise NotImplementedError

    def auth_accepted(self, principal: str, data: bytes, now_ms: int) -> list[Effect]:
        raise NotImplementedError

    def auth_refused(self, reason: ReasonCode, text: str, now_ms: int) -> list[Effect]:
        raise NotImplementedError

    def accepted(
        self,
        session_present: bool,
        now_ms: int,
        *,
        assigned_client_id: str | None = None,
        properties: Properties = NONE,
    ) -> list[Effect]:
        """`properties` is what else CONNACK says; all that the terms and the client's wishes make is added."""
        raise NotImplementedError

    def refused(
        self, reason: ReasonCode, text: str, server_reference: str | None = None
    ) -> list[Effect]:
        """At any time: of CONNECT, or as the node's own end of an open connection (taken over, kicked, shut
        down, moved)."""
        raise NotImplementedError

    def timer(self, name: str, now_ms: int) -> list[Effect]:
        raise NotImplementedError

    def lost(self) -> list[Effect]:
        """The socket is gone."""
        raise NotImplementedError

    def check(self) -> None:
        raise NotImplementedError
