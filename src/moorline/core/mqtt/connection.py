"""Room: core/mqtt. The node's end of one connection of an MQTT client.

    AWAITING_CONNECT ──CONNECT──► DECIDING ──accepted──► OPEN ──► CLOSED
            └──with a method──► AUTHENTICATING ──accepted──┘ (to DECIDING)
                                 └── AUTH, another challenge, as often as the mechanism wants ──┘

From every state it may go to CLOSED, once. An open connection that authenticates anew stays OPEN: what it
says meanwhile is heard by the proof that it has (MQTT 5, 4.12.1).

Invariants, looked at by `check`:

    C1  nothing of a client is passed on before its CONNECT was answered with success
    C2  at most one proof, or one CONNECT, is judged at a time
    C3  what is held is of a client that is judged, and within its bound
    C4  it ends once, and says nothing afterwards
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

import msgspec

from moorline.core.effects import Effect, SetTimer
from moorline.core.mqtt.aliases import Aliases
from moorline.core.mqtt.effects import (
    Ack,
    Authenticate,
    EndConnection,
    OpenSession,
    SayPacket,
    TakeAcks,
    TakePublishes,
    TakeSubscribe,
    TakeUnsubscribe,
)
from moorline.core.mqtt.packets import (
    MQTT_5,
    NONE,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
)
from moorline.core.mqtt.reason import CONNACK_REASONS, DISMISSALS, ReasonCode, Violation
from moorline.limits import MQTT_AUTH_ROUNDS_MAX, MQTT_HELD_PACKETS_MAX

RECEIVE_MAX_DEFAULT: Final = 65_535
_ACKS: Final = (Puback, Pubrec, Pubrel, Pubcomp)
_NEAREST: Final = {
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: ReasonCode.PROTOCOL_ERROR,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: ReasonCode.NOT_AUTHORIZED,
    ReasonCode.BAD_AUTHENTICATION_METHOD: ReasonCode.NOT_AUTHORIZED,
    ReasonCode.BANNED: ReasonCode.NOT_AUTHORIZED,
    ReasonCode.SERVER_UNAVAILABLE: ReasonCode.SERVER_BUSY,
    ReasonCode.SERVER_SHUTTING_DOWN: ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.SESSION_TAKEN_OVER: ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.ADMINISTRATIVE_ACTION: ReasonCode.NOT_AUTHORIZED,
    ReasonCode.TOPIC_FILTER_INVALID: ReasonCode.PROTOCOL_ERROR,
    ReasonCode.TOPIC_ALIAS_INVALID: ReasonCode.PROTOCOL_ERROR,
    ReasonCode.RECEIVE_MAXIMUM_EXCEEDED: ReasonCode.PROTOCOL_ERROR,
    ReasonCode.KEEP_ALIVE_TIMEOUT: ReasonCode.UNSPECIFIED_ERROR,
}
"""Of reasons that stand in one of CONNACK and DISCONNECT, and not in the other."""


class ConnectionTerms(msgspec.Struct, frozen=True):
    """What a listener offers to each of its connections."""

    receive_max: int
    packet_bytes_max: int
    topic_alias_max: int
    keep_alive_s_max: int
    """0 is no bound; a client that asks for more, or for none, is told of this one (server keep alive)."""
    connect_timeout_ms: int
    session_expiry_s_max: int = 0xFFFF_FFFF
    """A client that asks for more is told of this."""
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
    """One for each socket. Methods are called in the order in which things happen, and return what is to be
    done."""

    __slots__ = (
        "_aliases",
        "_connect",
        "_heard_ms",
        "_held",
        "_is_checking",
        "_keep_alive_ms",
        "_method",
        "_principal",
        "_rounds",
        "_terms",
        "level",
        "session_expiry_s",
        "state",
    )

    def __init__(self, terms: ConnectionTerms) -> None:
        self._terms = terms
        self.state = ConnectionState.AWAITING_CONNECT
        self.level = 0
        """0 before CONNECT."""
        self.session_expiry_s = 0
        self._connect: Connect | None = None
        self._aliases: Aliases | None = None
        self._held: list[Packet] = []
        self._heard_ms = 0
        self._keep_alive_ms = 0
        self._method: str | None = None
        self._principal: str | None = None
        self._rounds = 0
        self._is_checking = False

    # --- what the client takes ----------------------------------------------------------------------

    @property
    def receive_max(self) -> int:
        """Of the client: for `Outbound.connected`."""
        return self._wishes.receive_max or RECEIVE_MAX_DEFAULT

    @property
    def packet_bytes_max(self) -> int:
        """0 is no bound."""
        return self._wishes.packet_bytes_max or 0

    @property
    def topic_alias_max(self) -> int:
        return self._wishes.topic_alias_max or 0

    @property
    def is_bridge(self) -> bool:
        return self._connect is not None and self._connect.is_bridge

    @property
    def has_problem_information(self) -> bool:
        """Whether it wants reason strings and user properties in all answers."""
        return self._wishes.request_problem_information != 0

    @property
    def _wishes(self) -> Properties:
        return self._connect.properties if self._connect is not None else NONE

    # --- what comes ---------------------------------------------------------------------------------

    def opened(self, now_ms: int) -> list[Effect]:
        self._heard_ms = now_ms
        return [SetTimer("connect", self._terms.connect_timeout_ms)]

    def heard(self, packets: Sequence[Packet], now_ms: int) -> list[Effect]:
        """What `Decoder.feed` gave. What comes while a proof or the session is looked at is held: stop
        reading meanwhile."""
        self._heard_ms = now_ms
        effects: list[Effect] = []
        at = 0
        try:
            while at < len(packets) and self.state is not ConnectionState.CLOSED:
                if self.state is not ConnectionState.OPEN:
                    effects += self._before_open(packets[at])
                    at += 1
                else:
                    at = self._open_run(packets, at, effects)
        except Violation as violation:
            effects += self.broke(violation, now_ms)
        return effects

    def broke(self, violation: Violation, now_ms: int, level: int = 0) -> list[Effect]:
        """The decoder, or a machine of the session, raised it; do what its `before` says first.

        `level` is the decoder's: of a CONNECT that is none the version may be known nonetheless.
        """
        self._heard_ms = now_ms
        self.level = self.level or level
        return self.refused(violation.reason, violation.text)

    def _open_run(self, packets: Sequence[Packet], at: int, effects: list[Effect]) -> int:
        """PUBLISHes that follow each other are one effect, as are answers; returns how far it came."""
        first, start = packets[at], at
        if isinstance(first, Publish):
            while at < len(packets) and isinstance(packets[at], Publish):
                at += 1
            effects += self._publishes(
                [one for one in packets[start:at] if isinstance(one, Publish)]
            )
        elif isinstance(first, _ACKS):
            acks: list[Ack] = []
            while at < len(packets) and isinstance(one := packets[at], _ACKS):
                acks.append(one)
                at += 1
            effects.append(TakeAcks(acks))
        else:
            at += 1
            effects += self._control(first)
        return at

    def _publishes(self, publishes: list[Publish]) -> list[Effect]:
        if self._aliases is None:
            return [TakePublishes(publishes)]
        try:
            return [TakePublishes(self._aliases.resolve(publishes))]
        except Violation as violation:
            # Those before it were good; with them in one list, no order is lost.
            good: list[Effect] = [TakePublishes(violation.before)] if violation.before else []
            return good + self.refused(violation.reason, violation.text)

    def _control(self, packet: Packet) -> list[Effect]:
        match packet:
            case Subscribe():
                return [TakeSubscribe(packet)]
            case Unsubscribe():
                return [TakeUnsubscribe(packet)]
            case Pingreq():
                return [SayPacket(Pingresp())]
            case Disconnect():
                return self._goodbye(packet)
            case Auth():
                return self._auth_again(packet)
            case Connect():
                raise Violation(ReasonCode.PROTOCOL_ERROR, "a second CONNECT")
            case _:
                text = f"{type(packet).__name__} does not come from a client"
                raise Violation(ReasonCode.PROTOCOL_ERROR, text)

    def _before_open(self, packet: Packet) -> list[Effect]:
        is_awaited = self.state is ConnectionState.AUTHENTICATING and not self._is_checking
        match packet:
            case Connect() if self.state is ConnectionState.AWAITING_CONNECT:
                return self._connect_heard(packet)
            case Connect():
                raise Violation(ReasonCode.PROTOCOL_ERROR, "a second CONNECT")
            case Auth() if is_awaited:
                return self._proof(packet, is_again=False)
            case Disconnect() if is_awaited:
                return self._goodbye(packet)
            case _ if self.state is ConnectionState.AWAITING_CONNECT or is_awaited:
                # Only AUTH and DISCONNECT may come before CONNACK of who authenticates (3.1.2-30).
                raise Violation(ReasonCode.PROTOCOL_ERROR, "it has not been let in yet")
            case _:
                # It need not wait for its CONNACK (3.1.4).
                if len(self._held) == MQTT_HELD_PACKETS_MAX:
                    text = "too many packets before CONNACK"
                    raise Violation(ReasonCode.QUOTA_EXCEEDED, text)
                self._held.append(packet)
                return []

    def _connect_heard(self, connect: Connect) -> list[Effect]:
        self._connect, self.level = connect, connect.level
        self.session_expiry_s = min(connect.session_expiry_s, self._terms.session_expiry_s_max)
        self._method = connect.properties.authentication_method
        if self._method is None:
            self.state = ConnectionState.DECIDING
            return [OpenSession(connect, None)]
        if self._method not in self._terms.methods:
            taken = ", ".join(sorted(self._terms.methods)) or "none"
            text = f"{self._method!r} is no method that is taken here: {taken}"
            return self.refused(ReasonCode.BAD_AUTHENTICATION_METHOD, text)
        self.state = ConnectionState.AUTHENTICATING
        self._is_checking = True
        data = connect.properties.authentication_data or b""
        return [Authenticate(self._method, data, is_again=False)]

    # --- proofs -------------------------------------------------------------------------------------

    def _proof(self, packet: Auth, is_again: bool) -> list[Effect]:
        if packet.properties.authentication_method != self._method:
            raise Violation(ReasonCode.PROTOCOL_ERROR, "AUTH by another method than CONNECT's")
        is_first = is_again and not self._rounds
        wanted = ReasonCode.RE_AUTHENTICATE if is_first else ReasonCode.CONTINUE_AUTHENTICATION
        if packet.reason is not wanted:
            raise Violation(ReasonCode.PROTOCOL_ERROR, f"AUTH with {packet.reason.name} here")
        self._is_checking = True
        assert self._method is not None, "compared above"
        return [Authenticate(self._method, packet.properties.authentication_data or b"", is_again)]

    def _auth_again(self, packet: Auth) -> list[Effect]:
        if self._method is None:
            raise Violation(ReasonCode.PROTOCOL_ERROR, "AUTH, and CONNECT named no method")
        if self._is_checking:
            raise Violation(ReasonCode.PROTOCOL_ERROR, "AUTH while the last one is looked at")
        return self._proof(packet, is_again=True)

    def auth_continues(self, data: bytes, now_ms: int) -> list[Effect]:
        if self.state is ConnectionState.CLOSED:
            return []
        assert self._is_checking, "nobody asked for a challenge"
        self._is_checking = False
        # Each round costs a check: a mechanism that never ends must not be a way to get them for nothing.
        self._rounds += 1
        if self._rounds > MQTT_AUTH_ROUNDS_MAX:
            text = "the proof has too many rounds"
            return self.refused(ReasonCode.NOT_AUTHORIZED, text)
        said = Auth(ReasonCode.CONTINUE_AUTHENTICATION, self._auth_properties(data))
        return [SayPacket(said), *self._hear_held(now_ms)]

    def auth_accepted(self, principal: str, data: bytes, now_ms: int) -> list[Effect]:
        if self.state is ConnectionState.CLOSED:
            return []
        assert self._is_checking, "nobody asked for a verdict"
        self._is_checking, self._rounds = False, 0
        self._heard_ms = max(self._heard_ms, now_ms)
        if self.state is ConnectionState.OPEN:
            if principal != self._principal:
                # Its session, its grants and what it has in flight are somebody else's (4.12.1).
                text = "it proves to be another principal than it was"
                return self.refused(ReasonCode.NOT_AUTHORIZED, text)
            return [SayPacket(Auth(ReasonCode.SUCCESS, self._auth_properties(data)))]
        assert self._connect is not None, "its CONNECT asked for this"
        self._principal = principal
        # What the mechanism says last goes with CONNACK.
        properties = msgspec.structs.replace(
            self._connect.properties, authentication_data=data or None
        )
        self._connect = msgspec.structs.replace(self._connect, properties=properties)
        self.state = ConnectionState.DECIDING
        return [OpenSession(self._connect, principal)]

    def auth_refused(self, reason: ReasonCode, text: str, now_ms: int) -> list[Effect]:
        if self.state is ConnectionState.CLOSED:
            return []
        assert self._is_checking, "nobody asked for a verdict"
        self._heard_ms = max(self._heard_ms, now_ms)
        return self.refused(reason, text)

    def _auth_properties(self, data: bytes) -> Properties:
        return Properties(authentication_method=self._method, authentication_data=data or None)

    # --- let in, or not -----------------------------------------------------------------------------

    def accepted(
        self,
        session_present: bool,
        now_ms: int,
        *,
        assigned_client_id: str | None = None,
        properties: Properties = NONE,
    ) -> list[Effect]:
        """`properties` is what else CONNACK says; what the terms and the client's wishes make is added."""
        if self.state is ConnectionState.CLOSED:
            return []
        assert self.state is ConnectionState.DECIDING, "nobody asked"
        connect = self._connect
        assert connect is not None, "its CONNECT asked"
        keep_alive_s = self._keep_alive_s(connect)
        # Half as long again as was promised (3.1.2.10).
        self._keep_alive_ms = keep_alive_s * 1_500
        self.state = ConnectionState.OPEN
        if connect.level == MQTT_5:
            properties = self._said(connect, properties, keep_alive_s, assigned_client_id)
            self._aliases = Aliases(self._terms.topic_alias_max)
        effects: list[Effect] = [
            SayPacket(Connack(ReasonCode.SUCCESS, session_present, properties))
        ]
        if self._keep_alive_ms:
            effects.append(SetTimer("keep-alive", self._keep_alive_ms))
        return effects + self._hear_held(now_ms)

    def _keep_alive_s(self, connect: Connect) -> int:
        bound = self._terms.keep_alive_s_max
        # Before MQTT 5 the client cannot be told of another one, and is held to its own.
        if connect.level != MQTT_5 or not bound:
            return connect.keep_alive_s
        return min(connect.keep_alive_s, bound) if connect.keep_alive_s else bound

    def _said(
        self, connect: Connect, said: Properties, keep_alive_s: int, client_id: str | None
    ) -> Properties:
        terms, asked = self._terms, connect.session_expiry_s
        given = self.session_expiry_s
        return msgspec.structs.replace(
            said,
            receive_max=terms.receive_max if terms.receive_max < RECEIVE_MAX_DEFAULT else None,
            packet_bytes_max=terms.packet_bytes_max,
            topic_alias_max=terms.topic_alias_max or None,
            server_keep_alive_s=keep_alive_s if keep_alive_s != connect.keep_alive_s else None,
            session_expiry_s=given if given != asked else None,
            assigned_client_id=client_id,
            authentication_method=self._method,
            authentication_data=connect.properties.authentication_data if self._method else None,
        )

    def refused(
        self, reason: ReasonCode, text: str, server_reference: str | None = None
    ) -> list[Effect]:
        """At any time: of CONNECT, or as the node's own end of an open connection (taken over, kicked, shut
        down, moved)."""
        if self.state is ConnectionState.CLOSED:
            return []
        properties = Properties(reason_string=text or None, server_reference=server_reference)
        is_told = self.level == MQTT_5
        packet: Packet
        if self.state is ConnectionState.OPEN:
            # Before MQTT 5 a server has no word for it: the connection is closed.
            packet = Disconnect(_said_in(DISMISSALS, reason), properties)
        else:
            # Whoever said no CONNECT hears nothing of what this is; nor does one of before MQTT 5 whose
            # CONNECT is malformed (3.1.1, 4.8).
            is_told |= self._connect is not None
            is_told |= reason is ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
            packet = Connack(_said_in(CONNACK_REASONS, reason), False, properties)
        said: list[Effect] = [SayPacket(packet)] if is_told else []
        return said + self._end(reason, text, is_normal=False)

    def _goodbye(self, packet: Disconnect) -> list[Effect]:
        expiry_s = packet.properties.session_expiry_s
        if expiry_s is not None:
            if expiry_s and not self.session_expiry_s:
                text = "a session that ends with its connection cannot be kept by DISCONNECT"
                raise Violation(ReasonCode.PROTOCOL_ERROR, text)
            self.session_expiry_s = min(expiry_s, self._terms.session_expiry_s_max)
        is_normal = packet.reason is ReasonCode.NORMAL_DISCONNECTION
        text = packet.properties.reason_string or "the client said goodbye"
        return self._end(packet.reason, text, is_normal=is_normal)

    def _end(self, reason: ReasonCode, text: str, is_normal: bool) -> list[Effect]:
        assert self.state is not ConnectionState.CLOSED, "it ends once"
        self.state = ConnectionState.CLOSED
        self._held.clear()
        self._is_checking = False
        return [EndConnection(reason, text, is_normal, self.session_expiry_s)]

    def _hear_held(self, now_ms: int) -> list[Effect]:
        held, self._held = self._held, []
        return self.heard(held, now_ms) if held else []

    # --- time, and the end --------------------------------------------------------------------------

    def timer(self, name: str, now_ms: int) -> list[Effect]:
        if self.state is ConnectionState.CLOSED:
            return []
        if name == "connect":
            if self.state is ConnectionState.OPEN:
                return []
            return self.refused(ReasonCode.NOT_AUTHORIZED, "it was not let in in time")
        assert name == "keep-alive", f"no timer {name!r}"
        # Looked at when it might be over, and not set anew by each packet.
        left_ms = self._heard_ms + self._keep_alive_ms - now_ms
        if left_ms > 0:
            return [SetTimer("keep-alive", left_ms)]
        text = f"nothing was heard for {self._keep_alive_ms} ms"
        return self.refused(ReasonCode.KEEP_ALIVE_TIMEOUT, text)

    def lost(self) -> list[Effect]:
        """The socket is gone."""
        if self.state is ConnectionState.CLOSED:
            return []
        return self._end(ReasonCode.UNSPECIFIED_ERROR, "the connection is lost", is_normal=False)

    def check(self) -> None:
        """Asserts the invariants."""
        is_judged = self.state in (ConnectionState.AUTHENTICATING, ConnectionState.DECIDING)
        if self.state is ConnectionState.OPEN:
            assert self._connect is not None, "C1: open without a CONNECT"
            assert self._method is None or self._principal is not None, "C1: open without a proof"
        if self.state is ConnectionState.CLOSED:
            assert not self._is_checking, "C4: a proof is judged of one that is closed"
        if self._is_checking:
            is_open = self.state is ConnectionState.OPEN
            is_authenticating = self.state is ConnectionState.AUTHENTICATING
            assert is_authenticating or (is_open and self._method), f"C2: a proof of {self.state}"
        assert not self._held or is_judged, f"C3: packets are held of one that is {self.state}"
        assert len(self._held) <= MQTT_HELD_PACKETS_MAX, f"C3: {len(self._held)} are held"


def _said_in(among: frozenset[ReasonCode], reason: ReasonCode) -> ReasonCode:
    """The reason itself, or the nearest that the packet has a word for."""
    if reason in among:
        return reason
    return _NEAREST.get(reason, ReasonCode.UNSPECIFIED_ERROR)
