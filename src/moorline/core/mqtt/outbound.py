"""Room: core/mqtt. What a client gets: packet ids, its receive maximum, redelivery, exchanges of qos 2.

    qos 1   SENT ──PUBACK──► over
    qos 2   KEEPING ──kept──► SENT ──PUBREC──► RELEASING ──kept──► RELEASED, PUBREL ──PUBCOMP──► FORGETTING
            ──forgotten──► over
            a new connection: SENT becomes AGAIN, and SENT once more when its message is delivered again

An exchange of qos 2 is kept before it is sent, and forgotten in one commit with the cursor that passes its
message: after a crash at any step the message comes with the id that the client knows, or not at all. That of
qos 1 is not kept: after a crash of the node it may come under another id, as a message that comes twice.

Invariants, looked at by `check`:

    O1  a message is in one exchange at most, and each is found by its packet id and by its position
    O2  what was sent on this connection and has no last answer is counted, and within the receive maximum
    O3  an id that may still be kept is nobody else's
"""

from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec

from moorline.core.effects import Effect
from moorline.core.mqtt.effects import (
    Ack,
    ForgetSent,
    KeepReleased,
    KeepSent,
    MessagePosition,
    MessagesDone,
    MessagesFailed,
    SayAcks,
    SayPublishes,
    Sent,
)
from moorline.core.mqtt.packets import NONE, Properties, Puback, Publish, Pubrec, Pubrel
from moorline.core.mqtt.reason import ReasonCode, Violation
from moorline.core.stream import Shard

PACKET_ID_MAX = 65_535
NO_FEED = -1
"""Of a message that no delivery has out: one that is retained."""


class Outgoing(msgspec.Struct, gc=False):
    """A message for the client, as its subscriptions grant it (core/mqtt/subscriptions.py)."""

    position: MessagePosition
    feed: int
    """Of the delivery that it comes from, above 0; or NO_FEED."""
    topic: str
    payload: bytes
    qos: int
    retain: bool = False
    expires_at_ms: int = 0
    """0 is never."""
    properties: Properties = NONE
    """With the subscription identifiers, without the expiry."""


class _State(Enum):
    KEEPING = "keeping"
    SENT = "sent"
    AGAIN = "again"
    """Sent on a connection that is gone; its message is to be delivered again."""
    RELEASING = "releasing"
    RELEASED = "released"
    OVER = "over"
    """PUBCOMP came before its message was delivered again: there is nobody yet whose cursor passes it."""
    FORGETTING = "forgetting"


class _Exchange:
    __slots__ = (
        "feed",
        "is_counted",
        "is_gone",
        "packet_id",
        "position",
        "publish",
        "qos",
        "state",
        "was_sent",
    )

    def __init__(
        self, packet_id: int, position: MessagePosition, qos: int, state: _State, feed: int
    ) -> None:
        self.packet_id = packet_id
        self.position = position
        self.qos = qos
        self.state = state
        self.feed = feed
        """0 from a new connection on, until its message is delivered again."""
        self.is_counted = False
        self.is_gone = False
        """Its message is never delivered again: no cursor is waited for."""
        self.was_sent = False
        self.publish: Publish | None = None
        """What is sent when it is kept."""


class Outbound:
    """Of one session; it outlives its connections."""

    def __init__(self, window: int, sent: Iterable[Sent] = ()) -> None:
        """`window` bounds the exchanges that are open at once; `sent` are those that were kept."""
        # By half, so that there is always a free id: what comes again has one already.
        self._window = min(window, PACKET_ID_MAX // 2)
        self._receive_max = 0
        self._counted = 0
        self._unplaced = 0
        """Exchanges whose messages are to be delivered again."""
        self._next_id = 1
        self._by_id: dict[int, _Exchange] = {}
        self._by_position: dict[MessagePosition, _Exchange] = {}
        self.expired = 0
        self.too_large = 0
        for one in sent:
            state = _State.RELEASED if one.is_released else _State.AGAIN
            exchange = self._open(one.packet_id, one.position, one.qos, state, 0)
            exchange.was_sent = True
            self._unplaced += 1

    # --- connections --------------------------------------------------------------------------------

    def connected(self, receive_max: int) -> list[Effect]:
        """A new connection of the session. PUBRELs go at once. Give all that is out back to the deliveries:
        what comes again (`deliver`) has its old packet id and DUP, or is not sent if the client has it."""
        self._receive_max = receive_max
        self._counted = 0
        self._unplaced = len(self._by_id)
        pubrels: list[Ack] = []
        for one in self._by_id.values():
            one.is_counted = False
            one.publish = None
            one.feed = 0
            if one.state is _State.SENT:
                one.state = _State.AGAIN
            elif one.state is _State.RELEASED:
                pubrels.append(Pubrel(one.packet_id))
        return [SayAcks(pubrels)] if pubrels else []

    @property
    def room(self) -> int:
        """How many messages of qos 1 and 2 may be delivered now."""
        # Those that come again are not stopped by themselves.
        in_window = self._window - len(self._by_id) + self._unplaced
        return max(0, min(self._receive_max - self._counted, in_window))

    # --- messages -----------------------------------------------------------------------------------

    def deliver(self, messages: Sequence[Outgoing], now_ms: int) -> list[Effect]:
        """In this order, at most `room` of them with a qos. What has expired is done and counted."""
        keep: list[Sent] = []
        say: list[Publish] = []
        done: list[tuple[int, int]] = []
        forget: list[int] = []
        known_positions = self._by_position
        for one in messages:
            known = known_positions.get(one.position) if known_positions else None
            if known is not None:
                self._unplaced -= not known.feed
                known.feed = one.feed
                if known.state is _State.AGAIN:
                    known.state = _State.SENT
                    say.append(self._count(known, one, now_ms))
                elif known.state is _State.OVER:
                    known.state = _State.FORGETTING
                    forget.append(known.packet_id)
                    done.append((one.feed, one.position.offset))
                elif known.state is _State.FORGETTING:
                    done.append((one.feed, one.position.offset))
                elif known.state is _State.KEEPING:
                    known.publish = self._count(known, one, now_ms)
                continue  # all others are with the client already
            if one.expires_at_ms and one.expires_at_ms <= now_ms:
                self.expired += 1
                done.append((one.feed, one.position.offset))
            elif not one.qos:
                say.append(_publish(one, 0, 0, False, now_ms))
                done.append((one.feed, one.position.offset))
            elif one.qos == 1:
                new = self._open(self._free_id(), one.position, 1, _State.SENT, one.feed)
                say.append(self._count(new, one, now_ms))
            else:
                new = self._open(self._free_id(), one.position, 2, _State.KEEPING, one.feed)
                new.publish = self._count(new, one, now_ms)
                keep.append(Sent(new.packet_id, one.position, 2))
        assert self._counted <= self._receive_max, "more was delivered than there is room for"
        effects: list[Effect] = [KeepSent(keep)] if keep else []
        if say:
            effects.append(SayPublishes(say))
        return effects + _ended(done, [], forget)

    def kept(self, packet_ids: Iterable[int]) -> list[Effect]:
        """What `KeepSent` or `KeepReleased` asked for is durable."""
        say: list[Publish] = []
        pubrels: list[Ack] = []
        for packet_id in packet_ids:
            one = self._by_id.get(packet_id)
            if one is None:
                continue
            if one.state is _State.RELEASING:
                one.state = _State.RELEASED
                pubrels.append(Pubrel(packet_id))
            elif one.state is _State.KEEPING and one.publish is not None:
                one.state, one.was_sent = _State.SENT, True
                say.append(one.publish)
                one.publish = None
            elif one.state is _State.KEEPING:
                # The connection that it was for is gone, and its message is delivered again.
                one.state = _State.AGAIN
        effects: list[Effect] = [SayPublishes(say)] if say else []
        return [*effects, SayAcks(pubrels)] if pubrels else effects

    def dropped(self, publishes: Sequence[Publish]) -> list[Effect]:
        """Too large for this client: done as if they had been sent (MQTT 5, 3.1.2.11.4), and counted."""
        done: list[tuple[int, int]] = []
        release: list[int] = []
        forget: list[int] = []
        for publish in publishes:
            self.too_large += 1
            one = self._by_id.get(publish.packet_id) if publish.qos else None
            if one is None:
                continue
            if one.qos == 2 and publish.dup:
                # A connection that took larger ones has seen it: its id is to be let go of there too.
                self._uncount(one)
                one.state = _State.RELEASING
                release.append(one.packet_id)
            else:
                self._end(one, done, forget)
        effects: list[Effect] = [KeepReleased(release)] if release else []
        return effects + _ended(done, [], forget)

    def gone(self, source: str, shard: Shard, below: int) -> list[Effect]:
        """Of this source and shard nothing below that offset comes again (retention, expiry, an end of the
        subscription): exchanges that wait for it are finished without it."""
        release: list[int] = []
        forget: list[int] = []
        for one in list(self._by_id.values()):
            position = one.position
            if position.source != source or position.shard != shard or position.offset >= below:
                continue
            one.is_gone = True
            if one.state is _State.OVER:
                one.state = _State.FORGETTING
                forget.append(one.packet_id)
            elif one.state is _State.AGAIN:
                if one.qos == 2:
                    # The client may have seen it. PUBREL makes it forget the id before another has it.
                    one.state = _State.RELEASING
                    release.append(one.packet_id)
                else:
                    self._close(one)
        effects: list[Effect] = [KeepReleased(release)] if release else []
        return effects + _ended([], [], forget)

    # --- what the client says -----------------------------------------------------------------------

    def answered(self, acks: Sequence[Ack]) -> list[Effect]:
        """PUBACK, PUBREC and PUBCOMP of the client."""
        done: list[tuple[int, int]] = []
        failed: list[tuple[int, int, ReasonCode]] = []
        forget: list[int] = []
        release: list[int] = []
        pubrels: list[Ack] = []
        for ack in acks:
            one = self._by_id.get(ack.packet_id)
            if one is None:
                # Of an exchange that is over, or of none. PUBREC alone waits for an answer.
                if isinstance(ack, Pubrec) and not ack.reason.is_failure:
                    pubrels.append(Pubrel(ack.packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND))
            elif (one.qos == 1) is not isinstance(ack, Puback):
                text = f"packet id {ack.packet_id} is of qos {one.qos}"
                raise Violation(ReasonCode.PROTOCOL_ERROR, text)
            elif isinstance(ack, Puback | Pubrec) and ack.reason.is_failure:
                self._fail(one, ack.reason, failed, forget)
            elif isinstance(ack, Puback):
                self._end(one, done, forget)
            elif isinstance(ack, Pubrec):
                if one.state in (_State.SENT, _State.AGAIN):
                    one.state = _State.RELEASING
                    release.append(one.packet_id)
                elif one.state is _State.RELEASED:
                    pubrels.append(Pubrel(one.packet_id))
            elif one.state is _State.RELEASED:
                self._end(one, done, forget)
        effects: list[Effect] = [KeepReleased(release)] if release else []
        if pubrels:
            effects.append(SayAcks(pubrels))
        return effects + _ended(done, failed, forget)

    def forgotten(self, packet_ids: Iterable[int]) -> None:
        """They are, durably: the ids are free."""
        for packet_id in packet_ids:
            one = self._by_id.get(packet_id)
            if one is not None and one.state is _State.FORGETTING:
                self._close(one)

    def _fail(
        self,
        one: _Exchange,
        reason: ReasonCode,
        failed: list[tuple[int, int, ReasonCode]],
        forget: list[int],
    ) -> None:
        done: list[tuple[int, int]] = []
        if one.state in (_State.SENT, _State.AGAIN):
            self._end(one, done, forget)
        failed += [(feed, offset, reason) for feed, offset in done]

    def _end(self, one: _Exchange, done: list[tuple[int, int]], forget: list[int]) -> None:
        """The client has it, or will not."""
        self._uncount(one)
        if one.feed:
            done.append((one.feed, one.position.offset))
        if one.qos == 1:
            self._close(one)
        elif one.feed or one.is_gone:
            one.state = _State.FORGETTING
            forget.append(one.packet_id)
        else:
            one.state = _State.OVER

    # --- packet ids ---------------------------------------------------------------------------------

    def _free_id(self) -> int:
        packet_id = self._next_id
        while packet_id in self._by_id:
            packet_id = packet_id % PACKET_ID_MAX + 1
        self._next_id = packet_id % PACKET_ID_MAX + 1
        return packet_id

    def _open(
        self, packet_id: int, position: MessagePosition, qos: int, state: _State, feed: int
    ) -> _Exchange:
        one = _Exchange(packet_id, position, qos, state, feed)
        self._by_id[packet_id] = self._by_position[position] = one
        return one

    def _close(self, one: _Exchange) -> None:
        del self._by_id[one.packet_id]
        del self._by_position[one.position]
        self._unplaced -= not one.feed

    def _count(self, one: _Exchange, message: Outgoing, now_ms: int) -> Publish:
        """What goes to the client, which may have so many."""
        if not one.is_counted:
            one.is_counted = True
            self._counted += 1
        publish = _publish(message, one.qos, one.packet_id, one.was_sent, now_ms)
        one.was_sent |= one.state is _State.SENT
        return publish

    def _uncount(self, one: _Exchange) -> None:
        if one.is_counted:
            one.is_counted = False
            self._counted -= 1

    # --- what is kept, and what always holds --------------------------------------------------------

    def unfinished(self) -> list[Sent]:
        """All open exchanges in their order, as a restart or another node takes them."""
        released = (_State.RELEASED, _State.OVER, _State.FORGETTING)
        return [
            Sent(one.packet_id, one.position, one.qos, one.state in released)
            for one in self._by_id.values()
            if one.state is not _State.KEEPING
        ]

    def check(self) -> None:
        """Asserts the invariants."""
        by_position = {one.position: one for one in self._by_id.values()}
        assert by_position == self._by_position, (
            f"O1: {len(by_position)} positions of {len(self._by_id)} ids"
        )
        for packet_id, one in self._by_id.items():
            assert one.packet_id == packet_id, f"O1: {one.packet_id} is found as {packet_id}"
            assert 1 <= packet_id <= PACKET_ID_MAX, f"O1: {packet_id} is no packet id"
            is_kept = one.qos == 2 or one.state in (_State.SENT, _State.AGAIN)
            assert is_kept, f"O3: {packet_id} of qos 1 is {one.state.value}"
            is_idle = one.state in (_State.AGAIN, _State.OVER, _State.FORGETTING)
            assert not (is_idle and one.is_counted), f"O2: {packet_id} is {one.state.value}"
        counted = sum(one.is_counted for one in self._by_id.values())
        assert counted == self._counted, f"O2: {self._counted} are counted of {counted}"
        assert counted <= self._receive_max, f"O2: {counted} of {self._receive_max}"
        unplaced = sum(not one.feed for one in self._by_id.values())
        assert unplaced == self._unplaced, f"O1: {self._unplaced} come again of {unplaced}"


def _publish(message: Outgoing, qos: int, packet_id: int, dup: bool, now_ms: int) -> Publish:
    properties = message.properties
    if message.expires_at_ms:
        # What is left of it, and not what its publisher said (MQTT 5, 3.3.2.3.3).
        left_s = max(0, -(-(message.expires_at_ms - now_ms) // 1_000))
        properties = msgspec.structs.replace(properties, message_expiry_s=left_s)
    return Publish(message.topic, message.payload, qos, message.retain, dup, packet_id, properties)


def _ended(
    done: list[tuple[int, int]], failed: list[tuple[int, int, ReasonCode]], forget: list[int]
) -> list[Effect]:
    """Before what is forgotten of them, which is kept in one commit with their cursors."""
    effects: list[Effect] = []
    has_done = [one for one in done if one[0] != NO_FEED]
    if has_done:
        effects.append(MessagesDone(has_done))
    if failed:
        effects.append(MessagesFailed(failed))
    if forget:
        effects.append(ForgetSent(forget))
    return effects
