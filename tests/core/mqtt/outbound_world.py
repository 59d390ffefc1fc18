"""A node that delivers and a client that takes, with a net, a catalog and a stream between steps that chance
orders: connections are cut, either side crashes, what was being written then is written or not, retention
takes messages away.

The delivery is a plain one: what is done, what is out, and a cursor that is stored now and then.
"""

import random
from collections import Counter, deque

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
from moorline.core.mqtt.outbound import Outbound, Outgoing
from moorline.core.mqtt.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from moorline.core.mqtt.reason import ReasonCode
from moorline.core.stream import Shard

SHARD = Shard("home", 0)
MESSAGES = 24
LARGE = b"L"
BAD = b"B"
"""Payloads that begin so are too large for the client, and are refused by it."""


class World:
    def __init__(self, seed: int, breaks: bool = True) -> None:
        self.chance = chance = random.Random(seed)
        self.breaks = breaks
        self.now_ms = 0
        self.to_node: deque[Ack] = deque()
        self.to_client: deque[Packet] = deque()
        self.is_connected = False
        self.messages = [
            (
                chance.choice((0, 1, 1, 2, 2)),
                chance.choice((b"m", b"m", b"m", b"m", LARGE, BAD)) + str(at).encode(),
                chance.choice((0, 0, 0, 40)),
            )
            for at in range(MESSAGES)
        ]
        # The delivery, and what of it is on disk.
        self.feed = 1
        self.done: set[int] = set()
        self.out: set[int] = set()
        self.cursor: set[int] = set()
        self.kept_from = 0
        self.kept: dict[int, Sent] = {}
        # What is being written.
        self.catalog: deque[list[Sent] | list[int]] = deque()
        self.to_forget: list[int] = []
        self.window = chance.randint(1, 6)
        self.outbound = Outbound(self.window)
        # The client; its memory outlives its crashes.
        self.received: set[int] = set()
        self.given: list[bytes] = []
        self.receive_max = 0
        self.unanswered: set[int] = set()

    def run(self) -> None:
        for _ in range(self.chance.randint(50, 700)):
            self.step(self.breaks)
        for _ in range(3_000):
            if len(self.done) == MESSAGES and not self.kept and not self.received:
                break
            self.step(False)
        self.settled()

    def step(self, breaks: bool) -> None:
        self.now_ms += 1
        moves = []
        if not self.is_connected:
            moves.append(self.connect)
        else:
            moves.append(self.deliver)
            if self.to_node:
                moves.append(self.node_hears)
            if self.to_client:
                moves.append(self.client_hears)
        if self.catalog:
            moves.append(self.write_catalog)
        if self.cursor != self.done or self.to_forget:
            moves.append(self.commit)
        if breaks and self.chance.random() < 0.08:
            moves = [self.chance.choice((self.cut, self.cut, self.crash, self.crash, self.retain))]
        self.chance.choice(moves)()
        self.outbound.check()

    # --- connections and crashes --------------------------------------------------------------------

    def connect(self) -> None:
        self.is_connected = True
        self.receive_max = self.chance.randint(1, 5)
        self.unanswered.clear()
        self.perform(self.outbound.connected(self.receive_max))
        # All that was out is given back, and a feed is opened anew.
        self.out.clear()
        self.feed += 1
        self.tell_gone()

    def cut(self) -> None:
        self.is_connected = False
        self.to_node.clear()
        self.to_client.clear()

    def crash(self) -> None:
        self.cut()
        while self.catalog and self.chance.random() < 0.5:
            self.write_catalog(tells=False)
        self.catalog.clear()
        self.to_forget.clear()
        self.done = set(self.cursor)
        self.out.clear()
        # As the rows of a table come: in the order of their ids.
        self.outbound = Outbound(self.window, [self.kept[one] for one in sorted(self.kept)])

    def retain(self) -> None:
        """Retention takes what is oldest."""
        self.kept_from = min(MESSAGES, self.kept_from + self.chance.randint(1, 3))
        if self.is_connected:
            self.tell_gone()

    def tell_gone(self) -> None:
        self.done |= set(range(self.kept_from)) - self.out
        self.perform(self.outbound.gone("", SHARD, self.kept_from))

    # --- the node -----------------------------------------------------------------------------------

    def deliver(self) -> None:
        room = self.outbound.room
        some: list[Outgoing] = []
        for offset in range(self.kept_from, MESSAGES):
            if offset in self.done or offset in self.out:
                continue
            qos, payload, life_ms = self.messages[offset]
            if room <= 0 or len(some) == 4:
                break
            room -= qos > 0
            self.out.add(offset)
            position = MessagePosition("", SHARD, offset)
            some.append(Outgoing(position, self.feed, "t", payload, qos, expires_at_ms=life_ms))
        if some:
            self.perform(self.outbound.deliver(some, self.now_ms))

    def node_hears(self) -> None:
        count = self.chance.randint(1, len(self.to_node))
        self.perform(self.outbound.answered([self.to_node.popleft() for _ in range(count)]))

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case KeepSent(sent):
                    self.catalog.append(sent)
                case KeepReleased(packet_ids):
                    self.catalog.append(packet_ids)
                case ForgetSent(packet_ids):
                    self.to_forget += packet_ids
                case MessagesDone(done):
                    self.finish([offset for feed, offset in done if feed == self.feed])
                case MessagesFailed(failed):
                    self.finish([offset for feed, offset, _ in failed if feed == self.feed])
                case SayPublishes(publishes) if self.is_connected:
                    self.say(publishes)
                case SayAcks(acks) if self.is_connected:
                    self.to_client += acks
                case SayAcks() | SayPublishes():
                    pass  # to a connection that is gone
                case _:
                    raise AssertionError(effect)

    def finish(self, offsets: list[int]) -> None:
        assert self.out >= set(offsets), f"{offsets} are done and not out"
        self.done.update(offsets)
        self.out.difference_update(offsets)

    def say(self, publishes: list[Publish]) -> None:
        # A connection may have a bound that the next one has not.
        large = [one for one in publishes if one.payload.startswith(LARGE) and self.receive_max % 2]
        self.to_client += [one for one in publishes if one not in large]
        if large:
            self.perform(self.outbound.dropped(large))

    def write_catalog(self, tells: bool = True) -> None:
        packet_ids = []
        for one in self.catalog.popleft():
            if isinstance(one, Sent):
                assert one.packet_id not in self.kept, "an id that is kept is given to another"
                self.kept[one.packet_id] = one
                packet_ids.append(one.packet_id)
            else:
                was = self.kept[one]
                self.kept[one] = Sent(one, was.position, was.qos, is_released=True)
                packet_ids.append(one)
        if tells:
            self.perform(self.outbound.kept(packet_ids))

    def commit(self) -> None:
        """The cursor and what is to be forgotten, in one."""
        self.cursor = set(self.done)
        for packet_id in self.to_forget:
            del self.kept[packet_id]
        forgotten, self.to_forget = self.to_forget, []
        self.outbound.forgotten(forgotten)

    # --- the client ---------------------------------------------------------------------------------

    def client_hears(self) -> None:
        packet = self.to_client.popleft()
        match packet:
            case Publish():
                self.take(packet)
            case Pubrel(packet_id):
                self.received.discard(packet_id)
                self.unanswered.discard(packet_id)
                self.to_node.append(Pubcomp(packet_id))
            case _:
                raise AssertionError(packet)

    def take(self, publish: Publish) -> None:
        packet_id = publish.packet_id
        if not publish.qos:
            self.given.append(publish.payload)
            return
        assert packet_id not in self.unanswered, "an id twice on one connection"
        self.unanswered.add(packet_id)
        assert len(self.unanswered) <= self.receive_max, "MQTT-3.3.4-9: more than it takes"
        is_bad = publish.payload.startswith(BAD) and not publish.dup
        reason = ReasonCode.UNSPECIFIED_ERROR if is_bad else ReasonCode.SUCCESS
        if publish.qos == 1:
            self.given.append(publish.payload)
            self.unanswered.discard(packet_id)
            self.to_node.append(Puback(packet_id, reason))
            return
        if packet_id in self.received:
            reason = ReasonCode.SUCCESS
        else:
            self.given.append(publish.payload)
            if not is_bad:
                self.received.add(packet_id)
        if reason.is_failure:
            self.unanswered.discard(packet_id)
        self.to_node.append(Pubrec(packet_id, reason))

    # --- what must be true --------------------------------------------------------------------------

    def settled(self) -> None:
        assert len(self.done) == MESSAGES, (
            f"{sorted(set(range(MESSAGES)) - self.done)} wait for ever"
        )
        assert not self.received, f"ids {self.received} are never released"
        while self.catalog or self.to_forget:
            self.write_catalog() if self.catalog else self.commit()
        assert not self.kept, f"{self.kept} are kept for ever"
        counts = Counter(self.given)
        for at, (qos, payload, life_ms) in enumerate(self.messages):
            count = counts[payload]
            # A refusal may be lost on its way, and then comes a second time what was refused.
            if qos == 2 and not payload.startswith(BAD):
                assert count <= 1, f"{payload!r} of qos {qos} came {count} times"
            may_be_gone = at < self.kept_from or life_ms or payload.startswith(LARGE)
            if qos and not may_be_gone:
                assert count >= 1, f"{payload!r} of qos {qos} is lost"
        for wanted in (1, 2):
            # What was dropped as too large may come after a crash, to a connection that takes it.
            some = [payload for qos, payload, _ in self.messages if qos == wanted]
            self.check_order([payload for payload in some if not payload.startswith(LARGE)])

    def check_order(self, published: list[bytes]) -> None:
        """MQTT-4.6.0-6: what comes for the first time comes in the order in which it was published."""
        firsts = [one for one in dict.fromkeys(self.given) if one in published]
        assert firsts == [one for one in published if one in firsts], f"{firsts} are out of order"
