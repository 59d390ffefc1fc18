"""Room: core/mqtt. What a client publishes: each answered when it is stored, and at qos 2 stored once.

    PUBLISH of qos 1   STORING ──stored──► PUBACK
    PUBLISH of qos 2   STORING ──stored──► RECEIVED, PUBREC ──PUBREL──► FORGETTING ──forgotten──► PUBCOMP
                       with `marks`: STORING ──stored──► MARKING ──marked──► RECEIVED, PUBREC

Answers go in the order in which the publishes came (MQTT 5, 4.6), whichever is stored first. An id of qos 2
is known from its first PUBLISH until it is forgotten durably: what comes with it meanwhile is the same
message. A stream knows the last sequence of a client alone: whether a message of before a restart is stored
can be told only by what was last then (`was_stored`), and one that was not gets another sequence, above those
that came in between.

Where another node may go on with the session, that the message is stored is kept too before PUBREC
leaves (`marks`): only this node's streams know the sequence.

Invariants, looked at by `check`:

    I1  a packet id of qos 2 has one exchange, and its sequence is no other's, nor above the highest
    I2  who waits for an answer stands in line once, and is found by the number of what is stored for it
    I3  no more is out than the client was told
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum

from moorline.core.effects import Effect
from moorline.core.mqtt.effects import (
    Ack,
    ForgetReceived,
    Incoming,
    KeepReceived,
    SayAcks,
    StorePublishes,
)
from moorline.core.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from moorline.core.mqtt.reason import ReasonCode, Violation


class _State(Enum):
    KEPT = "kept"
    """Known from before a restart: whether it was stored, its sequence says to the stream."""
    STORING = "storing"
    MARKING = "marking"
    """It is stored, and that is being kept."""
    RECEIVED = "received"
    FAILING = "failing"
    """It could not be stored; the client is told when the id is forgotten."""
    FORGETTING = "forgetting"


class _Exchange:
    """Of qos 2."""

    __slots__ = ("is_asked", "is_kept", "number", "reason", "sequence", "state")

    def __init__(self, sequence: int, state: _State) -> None:
        self.sequence = sequence
        self.state = state
        self.number = 0
        """Of the try that is under way."""
        self.is_kept = state is not _State.STORING
        self.is_asked = False
        """PUBREL came on this connection. One of the last comes again, and is answered then: an answer before
        would free the packet id, and the one behind it would be taken for that of another message."""
        self.reason = ReasonCode.SUCCESS


class _Waiting:
    """Its place in the line of answers."""

    __slots__ = ("answer", "number", "packet_id", "qos")

    def __init__(self, number: int, packet_id: int, qos: int) -> None:
        self.number = number
        self.packet_id = packet_id
        self.qos = qos
        self.answer: Ack | None = None


WasStored = Callable[[int, int, str], bool]
"""Whether the message of a packet id, sequence and topic was stored before the restart."""


class Inbound:
    """Of one session; it outlives its connections."""

    def __init__(
        self,
        kept: Mapping[int, int] | None = None,
        sequence: int = 0,
        stored: Collection[int] = (),
        *,
        was_stored: WasStored = lambda _packet_id, _sequence, _topic: True,
        marks: bool = False,
    ) -> None:
        """`kept` is packet id to sequence of what was not finished, `sequence` the highest ever kept, and
        `stored` those ids whose messages certainly are."""
        self._was_stored = was_stored
        self._marks = marks
        self._exchanges = {
            packet_id: _Exchange(number, _State.RECEIVED if packet_id in stored else _State.KEPT)
            for packet_id, number in (kept or {}).items()
        }
        self._sequence = max([sequence, *(kept or {}).values()])
        self._number = 0
        # No deque: an empty one holds 700 bytes, and most clients say nothing most of the time.
        self._line: list[_Waiting] = []
        """Who is answered next stands first."""
        self._waiting: dict[int, _Waiting] = {}
        """The same by their numbers."""
        self._storing: dict[int, int] = {}
        """Number to packet id of the tries of qos 2 that are under way, also of connections that are gone."""
        self._receive_max = 0
        self._out = 0
        """Of this connection: publishes of qos 1 and 2 that have no last answer yet."""
        self._heard: dict[int, None] = {}
        """Packet ids of qos 2 that count among them."""

    def connected(self, receive_max: int) -> None:
        """A new connection of the session; what was being stored of the last one has no answer any more."""
        self._receive_max = receive_max
        self._line.clear()
        self._waiting.clear()
        self._out = 0
        self._heard.clear()
        for exchange in self._exchanges.values():
            exchange.is_asked = False

    @property
    def out(self) -> int:
        return self._out

    # --- publishes ----------------------------------------------------------------------------------

    def hear(self, publishes: Sequence[Publish]) -> list[Effect]:
        """`Violation` where more are out than the client was told: RECEIVE_MAXIMUM_EXCEEDED.

        Its `before` is the effects of those before.
        """
        incoming: list[Incoming] = []
        answers: list[Ack] = []
        number = self._number
        for one in publishes:
            qos = one.qos
            if not qos:
                number += 1
                incoming.append(Incoming(number, one))
                continue
            if self._out == self._receive_max and one.packet_id not in self._heard:
                self._number = number
                effects = self._effects(incoming, answers)
                text = f"more than {self._receive_max} publishes without an answer"
                raise Violation(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, text, effects)
            number += 1
            if qos == 1:
                self._out += 1
                self._wait(number, one.packet_id, 1)
                incoming.append(Incoming(number, one))
            else:
                self._hear_exactly_once(number, one, incoming)
        self._number = number
        answers += self._answered()
        return self._effects(incoming, answers)

    def _wait(self, number: int, packet_id: int, qos: int) -> _Waiting:
        waiting = self._waiting[number] = _Waiting(number, packet_id, qos)
        self._line.append(waiting)
        return waiting

    def _hear_exactly_once(self, number: int, one: Publish, incoming: list[Incoming]) -> None:
        packet_id = one.packet_id
        if packet_id not in self._heard:
            self._heard[packet_id] = None
            self._out += 1
        exchange = self._exchanges.get(packet_id)
        if exchange is None:
            self._sequence += 1
            exchange = self._exchanges[packet_id] = _Exchange(self._sequence, _State.STORING)
            incoming.append(Incoming(number, one, exchange.sequence))
            self._storing[number] = packet_id
        elif exchange.state is _State.KEPT:
            exchange.state = _State.STORING
            is_known = self._was_stored(packet_id, exchange.sequence, one.topic)
            if not is_known:
                # A client that says new ones first has sequences above this one stored by now: under its old
                # one it would be taken for a duplicate.
                self._sequence += 1
                exchange.sequence = self._sequence
            incoming.append(Incoming(number, one, exchange.sequence, is_kept=is_known))
            self._storing[number] = packet_id
        elif exchange.number in self._waiting:
            return  # said twice on one connection: the first is answered
        elif exchange.state is _State.STORING:
            # Its try began on a connection that is gone, and goes on: whoever has it answers under the
            # number that it knows.
            number = exchange.number
        exchange.number = number
        waiting = self._wait(number, packet_id, 2)
        if exchange.state in (_State.RECEIVED, _State.FORGETTING):
            waiting.answer = Pubrec(packet_id)

    def stored(self, results: Sequence[tuple[int, ReasonCode]]) -> list[Effect]:
        """(number, reason) of what is durable, or could not be stored (and certainly is not)."""
        answers = self._answer_run(results)
        if not answers:
            return self._settle(results, is_kept=True)
        if len(answers) == len(results):
            return [SayAcks(answers + self._answered())]
        return [SayAcks(answers), *self._settle(results[len(answers) :], is_kept=True)]

    def _answer_run(self, results: Sequence[tuple[int, ReasonCode]]) -> list[Ack]:
        """Those of QoS 1 that stand first in the line, in its order: nearly all, and one step for each."""
        line, waiting = self._line, self._waiting
        answers: list[Ack] = []
        for (number, reason), first in zip(results, line, strict=False):
            if first.number != number or first.qos != 1:
                break
            del waiting[number]
            answers.append(Puback(first.packet_id, reason))
        count = len(answers)
        if count:
            del line[:count]
            self._out -= count
        return answers

    def refused(self, results: Iterable[tuple[int, ReasonCode]]) -> list[Effect]:
        """(number, reason) of what was not let in: nothing of it was kept."""
        return self._settle(results, is_kept=False)

    def _settle(self, results: Iterable[tuple[int, ReasonCode]], is_kept: bool) -> list[Effect]:
        forget: list[int] = []
        mark: list[int] = []
        for number, reason in results:
            waiting = self._waiting.get(number)
            if waiting is not None and waiting.qos == 1:
                waiting.answer = Puback(waiting.packet_id, reason)
                continue
            packet_id = self._storing.pop(number, 0)
            if not packet_id:
                continue
            state = self._settle_exchange(packet_id, reason, is_kept, waiting)
            if state is _State.FAILING:
                forget.append(packet_id)
            elif state is _State.MARKING:
                mark.append(packet_id)
        effects: list[Effect] = [ForgetReceived(forget)] if forget else []
        if mark:
            effects.append(KeepReceived(mark))
        return effects + self._effects([], self._answered())

    def _settle_exchange(
        self, packet_id: int, reason: ReasonCode, is_kept: bool, waiting: _Waiting | None
    ) -> _State:
        """What is to be written before it is answered: FAILING, MARKING, or any other for nothing."""
        exchange = self._exchanges[packet_id]
        assert exchange.state is _State.STORING, f"{packet_id} is {exchange.state.value}"
        if reason.is_failure and (is_kept or exchange.is_kept):
            # The client uses the id for another message as soon as it knows, and that must not find the
            # sequence of this one.
            exchange.state, exchange.reason = _State.FAILING, reason
            return exchange.state
        if reason.is_failure:
            del self._exchanges[packet_id]
        else:
            exchange.state = _State.MARKING if self._marks else _State.RECEIVED
            exchange.is_kept = True
        if waiting is not None and exchange.state is not _State.MARKING:
            waiting.answer = Pubrec(packet_id, reason)
        return exchange.state

    def marked(self, packet_ids: Iterable[int]) -> list[Effect]:
        """That these are stored is known wherever the session goes on."""
        for packet_id in packet_ids:
            exchange = self._exchanges.get(packet_id)
            if exchange is None or exchange.state is not _State.MARKING:
                continue
            exchange.state = _State.RECEIVED
            # By its present number: a client that has come back may have said it again.
            waiting = self._waiting.get(exchange.number)
            if waiting is not None:
                waiting.answer = Pubrec(packet_id)
        return self._effects([], self._answered())

    # --- the second half of qos 2 -------------------------------------------------------------------

    def released(self, packets: Sequence[Pubrel]) -> list[Effect]:
        forget: list[int] = []
        answers: list[Ack] = []
        for packet in packets:
            exchange = self._exchanges.get(packet.packet_id)
            if exchange is None:
                reason = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
                answers.append(Pubcomp(packet.packet_id, reason))
            elif exchange.state in (_State.RECEIVED, _State.KEPT):
                # KEPT: PUBREL follows PUBREC, so it was stored before the restart.
                exchange.state, exchange.is_asked = _State.FORGETTING, True
                forget.append(packet.packet_id)
            elif exchange.state is _State.FORGETTING:
                # It began on another connection: that one's end is this one's answer.
                exchange.is_asked = True
            else:
                text = f"PUBREL of packet id {packet.packet_id} before its PUBREC"
                raise Violation(ReasonCode.PROTOCOL_ERROR, text, _released(forget, answers))
        return _released(forget, answers)

    def forgotten(self, packet_ids: Iterable[int]) -> list[Effect]:
        """They are, durably."""
        answers: list[Ack] = []
        for packet_id in packet_ids:
            exchange = self._exchanges.get(packet_id)
            if exchange is None:
                continue
            if exchange.state is _State.FORGETTING:
                del self._exchanges[packet_id]
                self._finish(packet_id)
                if exchange.is_asked:
                    answers.append(Pubcomp(packet_id))
            elif exchange.state is _State.FAILING:
                del self._exchanges[packet_id]
                waiting = self._waiting.get(exchange.number)
                if waiting is not None:
                    waiting.answer = Pubrec(packet_id, exchange.reason)
        return self._effects([], answers + self._answered())

    # --- answers ------------------------------------------------------------------------------------

    def _answered(self) -> list[Ack]:
        """What stands first in the line and has its answer."""
        answers: list[Ack] = []
        for first in self._line:
            if (answer := first.answer) is None:
                break
            del self._waiting[first.number]
            answers.append(answer)
            if isinstance(answer, Puback):
                self._out -= 1
            elif answer.reason.is_failure:
                self._finish(answer.packet_id)
        del self._line[: len(answers)]
        return answers

    def _finish(self, packet_id: int) -> None:
        """The last answer of an exchange of qos 2."""
        if packet_id in self._heard:
            del self._heard[packet_id]
            self._out -= 1

    @staticmethod
    def _effects(incoming: list[Incoming], answers: list[Ack]) -> list[Effect]:
        effects: list[Effect] = []
        if incoming:
            effects.append(StorePublishes(incoming))
        if answers:
            effects.append(SayAcks(answers))
        return effects

    # --- what is kept, and what always holds --------------------------------------------------------

    def kept(self) -> dict[int, int]:
        """Packet id to sequence of what is not finished, as a restart takes it."""
        return {packet_id: one.sequence for packet_id, one in self._exchanges.items()}

    def unheard_ids(self) -> list[int]:
        """Those of before the restart that the client has not said again."""
        return [packet_id for packet_id, one in self._exchanges.items() if one.state is _State.KEPT]

    def stored_ids(self) -> list[int]:
        """Those of them whose messages are stored, wherever that was."""
        stored = (_State.MARKING, _State.RECEIVED, _State.FORGETTING)
        return [packet_id for packet_id, one in self._exchanges.items() if one.state in stored]

    @property
    def sequence(self) -> int:
        """The highest that was ever given."""
        return self._sequence

    def check(self) -> None:
        """Asserts the invariants."""
        sequences = [one.sequence for one in self._exchanges.values()]
        assert len(set(sequences)) == len(sequences), f"I1: a sequence twice in {sequences}"
        assert max(sequences, default=0) <= self._sequence, f"I1: {sequences} above the highest"
        line = {one.number: one for one in self._line}
        assert line == self._waiting, f"I2: {list(line)} in line, {list(self._waiting)} wait"
        assert len(line) == len(self._line), "I2: one stands in line twice"
        storing = {
            one.number: packet_id
            for packet_id, one in self._exchanges.items()
            if one.state is _State.STORING
        }
        assert storing == self._storing, f"I2: {storing} are stored, {self._storing} are known"
        firsts = sum(one.qos == 1 for one in self._line)
        assert self._out == firsts + len(self._heard), f"I3: {self._out} are counted"
        assert self._out <= self._receive_max, f"I3: {self._out} are out"


def _released(forget: list[int], answers: list[Ack]) -> list[Effect]:
    effects: list[Effect] = [ForgetReceived(forget)] if forget else []
    return [*effects, SayAcks(answers)] if answers else effects
