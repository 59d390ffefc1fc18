"""Room: mqtt. One connection of a client: bytes in and out, the machine of the connection, and who it is.

    bytes ─► Decoder ─► Connection (core/mqtt) ─► effects ─► here: words, timers, proofs
                                                         └─► ClientSession: publishes, filters, answers

The transport is whoever brings the bytes: a TCP socket (mqtt/listener.py), or a WebSocket. What is said
during one read, or one turn of the loop, leaves in one write.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from moorline.core.access.principal import Proof
from moorline.core.effects import Effect, Event, TimerFired
from moorline.core.mqtt.connection import Connection, ConnectionState, ConnectionTerms
from moorline.core.mqtt.effects import (
    Authenticate,
    EndConnection,
    OpenSession,
    SayAcks,
    SayPacket,
    TakeAcks,
    TakePublishes,
    TakeSubscribe,
    TakeUnsubscribe,
)
from moorline.core.mqtt.packets import Publish
from moorline.core.mqtt.reason import ReasonCode, Violation
from moorline.limits import MQTT_GOODBYE_MS, MQTT_TURN_BYTES
from moorline.mqtt.counts import Counts
from moorline.mqtt.logins import Gssapi, Logins, MqttAdmission, Refused, become
from moorline.mqtt.redirects import Redirects
from moorline.net.clock import monotonic_ms
from moorline.net.http.peer import Peer
from moorline.net.interpreter import TableInterpreter
from moorline.wire.mqtt.decoder import Decoder
from moorline.wire.mqtt.encoder import encode, encode_acks
from moorline.wire.mqtt.publish_writer import PublishWriter

if TYPE_CHECKING:
    from moorline.mqtt.session import ClientSession

log = logging.getLogger("moorline.mqtt")

TURN: Final = "turn"
"""Why it is not read from: there is a rest of the last read."""

REASONS: Final = {
    "TAKEN_OVER": ReasonCode.SESSION_TAKEN_OVER,
    "STOPPING": ReasonCode.SERVER_SHUTTING_DOWN,
    "KICKED": ReasonCode.ADMINISTRATIVE_ACTION,
    "EXPIRED": ReasonCode.NOT_AUTHORIZED,
    "OVER_QUOTA": ReasonCode.QUOTA_EXCEEDED,
    "BUSY": ReasonCode.SERVER_BUSY,
    "CATALOG": ReasonCode.SERVER_BUSY,
}
"""By the code with which the node ends a login."""


class Transport(Protocol):
    """Whoever carries the bytes."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Host(Protocol):
    """The node's side: `mqtt.broker.MqttBroker`."""

    logins: Logins
    redirects: Redirects

    async def open(self, client: "Client", effect: OpenSession) -> None:
        """Ends with `client.opened`, or raises `Refused`."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...
    def violated(self, client: "Client", violation: Violation) -> None: ...
    def ended(self, client: "Client", end: EndConnection) -> None: ...


class Client(Peer):
    """As the node's rooms see one that has come (net/http/peer.py), and as its transport sees it.

    Thousands of them say nothing for hours: what an idle one holds is counted in hundreds of bytes.
    """

    __slots__ = (
        "_admission",
        "_decoder",
        "_flush_due",
        "_gssapi",
        "_holds",
        "_host",
        "_interpreter",
        "_is_over",
        "_loop",
        "_machine",
        "_out",
        "_rest",
        "_room",
        "_shown",
        "_transport",
        "_turn_due",
        "_writer",
        "client_id",
        "connected_ms",
        "counts",
        "gone",
        "is_proxied",
        "is_unwanted",
        "is_writable",
        "keep_alive_s",
        "name",
        "numbered_producer",
        "producer",
        "session",
    )

    def __init__(
        self, host: Host, admission: MqttAdmission, terms: ConnectionTerms, transport: Transport
    ) -> None:
        super().__init__("", admission.listener, _no_later_proof)
        self.counts = Counts()
        self.client_id = ""
        self.name = "mqtt"
        self.session: ClientSession | None = None
        self.connected_ms = 0
        self.keep_alive_s = 0
        self.is_proxied = False
        self.is_unwanted = False
        """There is no room for it: its CONNECT is answered by that."""
        self.producer = 0
        self.numbered_producer = 0
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_writable = True
        self._host = host
        self._admission = admission
        self._transport = transport
        self._machine = Connection(terms)
        self._decoder = Decoder(terms.packet_bytes_max)
        self._writer: PublishWriter | None = None
        self._gssapi: Gssapi | None = None
        self._shown = b""
        self._out: list[bytes] = []
        self._flush_due = False
        self._rest = b""
        """Of what was read: for the next turns."""
        self._turn_due = False
        self._is_over = False
        self._holds: dict[str, None] = {}
        self._room: list[asyncio.Future[None]] = []
        self._interpreter = TableInterpreter(self, self._PERFORMERS, self._timer_fired)
        self._loop = asyncio.get_running_loop()
        self.cut = self._cut

    @property
    def level(self) -> int:
        return self._machine.level

    @property
    def has_connect(self) -> bool:
        """Whether its CONNECT has come."""
        return self._machine.state is not ConnectionState.AWAITING_CONNECT

    @property
    def receive_max(self) -> int:
        """What the client takes unanswered."""
        return self._machine.receive_max

    @property
    def is_bridge(self) -> bool:
        """Whether it is another broker, which said so by its protocol level."""
        return self._machine.is_bridge

    @property
    def session_expiry_s(self) -> int:
        """How long its session outlives it."""
        return self._machine.session_expiry_s

    @property
    def is_serving(self) -> bool:
        """Whether it is connected, and its session is open."""
        return self.is_open and self._machine.state is ConnectionState.OPEN

    # --- the transport ----------------------------------------------------------------------------

    def begin(self, address: str, shown: bytes, *, is_encrypted: bool) -> None:
        """The transport is there."""
        self.peer_address, self.is_encrypted, self._shown = address, is_encrypted, shown
        try:
            self._host.logins.describe(self._admission, self, shown)
        except Refused:
            self._end_transport()
            return
        self.perform(self._machine.opened(monotonic_ms()))

    def received(self, data: bytes) -> None:
        if self._is_over:
            return
        self.counts.received_bytes += len(data)
        if self._rest:
            self._rest += data  # its transport had it already
        elif len(data) > MQTT_TURN_BYTES:
            # The loop reads on from a socket that is full as long as it may: one that floods would have it
            # for seconds. From here on there is one piece in a turn.
            self._rest = data[MQTT_TURN_BYTES:]
            self.hold_reading(TURN)
            self._hear(data[:MQTT_TURN_BYTES])
            self._go_on_soon()
        else:
            self._hear(data)

    def _go_on_soon(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """With the next piece of a large read, unless it is held for another reason too."""
        self._turn_due = False
        if self._is_over or not self._rest or len(self._holds) > 1:
            return
        data = self._rest
        self._rest = data[MQTT_TURN_BYTES:]
        self._hear(data[:MQTT_TURN_BYTES])
        if self._rest:
            self._go_on_soon()
        else:
            self.release_reading(TURN)

    def _hear(self, data: bytes) -> None:
        try:
            packets = self._decoder.feed(data)
        except Violation as violation:
            self.perform(self._machine.heard(violation.before, monotonic_ms()))
            self._broke(violation)
        else:
            self.perform(self._machine.heard(packets, monotonic_ms()))
        if self.session is not None:
            self.session.read_over()
        self.flush()

    def pause_writing(self) -> None:
        self.is_writable = False
        self.hold_reading("slow reader")

    def resume_writing(self) -> None:
        self.is_writable = True
        self.release_reading("slow reader")
        waiters, self._room = self._room, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self.session is not None:
            self.session.outlet.go_on()

    def lost(self) -> None:
        """The transport is gone; what it brought before counts."""
        rest, self._rest = self._rest, b""
        if rest and len(self._holds) == 1 and not self._is_over:
            self._hear(rest)
        if not self.gone.done():
            self.gone.set_result(None)
        if not self._is_over:
            self.perform(self._machine.lost())
        self._over("LOST")

    async def room_to_write(self) -> None:
        while not self.is_writable and self.is_open:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._room.append(waiter)
            await waiter

    # --- of group commits, which hold a sender while the disk is behind ---------------------------

    def answer(self, answers: list[Any]) -> None:  # noqa: ARG002
        raise AssertionError("a client of MQTT is answered by its packets")

    def hold_reading(self, reason: str) -> None:
        if not self._holds and not self._is_over:
            self._transport.pause_reading()
        self._holds[reason] = None

    def release_reading(self, reason: str) -> None:
        self._holds.pop(reason, None)
        if not self._holds and not self._is_over:
            self._transport.resume_reading()
        elif self._rest and len(self._holds) == 1:
            self._go_on_soon()

    # --- words ------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Leaves with whatever else is said in this turn of the loop."""
        if not data or self._is_over:
            return
        self._out.append(data)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._flush_due = False
        if not self._out:
            return
        out, self._out = self._out, []
        data = out[0] if len(out) == 1 else b"".join(out)
        self.counts.sent_bytes += len(data)
        self._transport.write(data)

    def say_acks(self, effect: SayAcks) -> None:
        self.write(encode_acks(effect.acks, self.level))

    def say_publishes(self, publishes: list[Publish]) -> list[Publish]:
        """Returns those that are larger than the client takes."""
        if self._is_over or self._writer is None:
            return []
        data, dropped = self._writer.write(publishes)
        self.counts.sent += len(publishes) - len(dropped)
        self.write(data)
        return dropped

    def _say(self, effect: SayPacket) -> None:
        self.write(
            encode(
                effect.packet,
                self.level or self._decoder.level,
                self._machine.packet_bytes_max,
                self._machine.has_problem_information,
            )
        )

    # --- the machine ------------------------------------------------------------------------------

    def perform(self, effects: Iterable[Effect]) -> None:
        try:
            self._interpreter.perform(effects)
        except Violation as violation:
            # A machine of the session raised it: of what came before there are effects.
            if self.session is not None:
                self.session.perform(violation.before)
            self._broke(violation)

    def broke(self, violation: Violation) -> None:
        self._broke(violation)
        self.flush()

    def _broke(self, violation: Violation) -> None:
        if self._is_over:
            return
        self._host.violated(self, violation)
        self.perform(self._machine.broke(violation, monotonic_ms(), self._decoder.level))

    def refuse(self, reason: ReasonCode, text: str, server_reference: str | None = None) -> None:
        """The node's own end of it, before or behind CONNACK."""
        if not self._is_over:
            self.perform(self._machine.refused(reason, text, server_reference))
            self.flush()

    def _take_publishes(self, effect: TakePublishes) -> None:
        assert self.session is not None
        self.counts.received += len(effect.publishes)
        self.session.published(effect.publishes)

    def _take_acks(self, effect: TakeAcks) -> None:
        assert self.session is not None
        self.session.acknowledged(effect.acks)

    def _take_request(self, effect: TakeSubscribe | TakeUnsubscribe) -> None:
        assert self.session is not None
        self.session.requests.take(effect.packet)

    # --- who it is --------------------------------------------------------------------------------

    def _open_session(self, effect: OpenSession) -> None:
        if self.is_unwanted:
            self._turn_away()
            return
        self.hold_reading("opening")
        self._host.spawn(self._opening(effect))

    async def _opening(self, effect: OpenSession) -> None:
        connect = effect.connect
        machine = self._machine
        self._writer = PublishWriter(self.level, machine.packet_bytes_max, machine.topic_alias_max)
        try:
            if effect.principal is None:
                await self._host.logins.judge(self._admission, self, connect)
            else:
                self._host.logins.enter(self._admission, self)
            await self._host.open(self, effect)
        except Refused as refused:
            self.refuse(refused.reason, str(refused), refused.server_reference)
        except Exception:
            log.exception("a client was not let in by a mistake of ours")
            self.refuse(ReasonCode.UNSPECIFIED_ERROR, "a mistake in the node; its log says more")
        finally:
            self.release_reading("opening")
            self.flush()

    def _turn_away(self) -> None:
        others = self._host.redirects.others
        reason = ReasonCode.USE_ANOTHER_SERVER if others else ReasonCode.SERVER_BUSY
        self.refuse(reason, "this node has no room: try again later, or another", others)

    def _authenticate(self, effect: Authenticate) -> None:
        if self.is_unwanted:
            self._turn_away()
            return
        self.hold_reading("proof")
        self._host.spawn(self._authenticating(effect))

    async def _authenticating(self, effect: Authenticate) -> None:
        logins = self._host.logins
        if self._gssapi is None:
            self._gssapi = logins.gssapi(self._admission)
        try:
            step = await logins.step(self._admission, self, self._gssapi, effect.data)
            if isinstance(step, bytes):
                effects = self._machine.auth_continues(step, monotonic_ms())
            else:
                self._gssapi = None
                if effect.is_again and step.principal != self.principal:
                    raise Refused(ReasonCode.NOT_AUTHORIZED, "another principal than before")
                if not effect.is_again:
                    become(self, step, Proof.KERBEROS)
                effects = self._machine.auth_accepted(step.principal, b"", monotonic_ms())
        except Refused as refused:
            effects = self._machine.auth_refused(refused.reason, str(refused), monotonic_ms())
        self.perform(effects)
        self.release_reading("proof")
        self.flush()

    def accepted(self, *, session_present: bool, **more: Any) -> None:
        """CONNACK leaves, and what came behind CONNECT is heard."""
        self.connected_ms = monotonic_ms()
        self.perform(self._machine.accepted(session_present, monotonic_ms(), **more))

    # --- timers, and the end ----------------------------------------------------------------------

    def _timer_fired(self, event: Event) -> None:
        assert isinstance(event, TimerFired), f"nothing else is answered: {event}"
        self.perform(self._machine.timer(event.name, monotonic_ms()))
        self.flush()

    def _cut(self, code: str, text: str) -> None:
        """The node has ended the login."""
        others = self._host.redirects.others if code == "STOPPING" else None
        reason = REASONS.get(code, ReasonCode.UNSPECIFIED_ERROR)
        self.refuse(ReasonCode.USE_ANOTHER_SERVER if others else reason, text, others)
        self._over(code)

    def _end_connection(self, effect: EndConnection) -> None:
        self.flush()
        code = self.end_code or ("DONE" if effect.is_normal else effect.reason.name)
        self._over(code, effect)

    def _over(self, code: str, effect: EndConnection | None = None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._interpreter.close()
        if effect is None:
            effect = EndConnection(ReasonCode.UNSPECIFIED_ERROR, "", False, 0)
        self._end_transport()
        self.is_ended_here = code != "DONE"
        self.end_text = effect.text
        self._host.ended(self, effect)
        self.end(code, effect.text)
        waiters, self._room = self._room, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _end_transport(self) -> None:
        self._transport.close()
        # One that does not read would hold the socket for ever.
        self._loop.call_later(MQTT_GOODBYE_MS / 1_000, self._transport.abort)

    _PERFORMERS: ClassVar[dict[type[Effect], Callable[[Any, Any], None]]] = {
        SayPacket: _say,
        SayAcks: say_acks,
        TakePublishes: _take_publishes,
        TakeAcks: _take_acks,
        TakeSubscribe: _take_request,
        TakeUnsubscribe: _take_request,
        OpenSession: _open_session,
        Authenticate: _authenticate,
        EndConnection: _end_connection,
    }
    """One table for all: one for each would be a kilobyte of bound methods."""


async def _no_later_proof(peer: Peer, brought: Any, /) -> bytes:  # noqa: ARG001
    raise AssertionError("MQTT proves by CONNECT and AUTH")
