"""A client that publishes and a node that stores, with a net, a catalog and a stream between steps that
chance orders: connections are cut, either side crashes, what was being written then is written or not.

Every write is a step of its own. The client is as the standard wants it (4.4): what has no last answer is
sent again, in order, with its packet id.
"""

import random
from collections import Counter, deque

from moorline.core.effects import Effect
from moorline.core.mqtt.effects import (
    Ack,
    ForgetReceived,
    Incoming,
    KeepReceived,
    SayAcks,
    StorePublishes,
)
from moorline.core.mqtt.inbound import Inbound
from moorline.core.mqtt.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from moorline.core.mqtt.reason import ReasonCode

RECEIVE_MAX = 4
DENIED = b"!"
"""A payload that begins so is not let in."""


class Client:
    """Its memory outlives its crashes, as that of a client with a store does."""

    def __init__(self, world: "World", messages: list[tuple[int, bytes]]) -> None:
        self.world = world
        self.waiting = deque(messages)
        self.sent: dict[int, tuple[Publish | None, int]] = {}
        """Packet id: what is sent again, or None behind PUBREC; and its qos."""
        self.refused: set[bytes] = set()
        self.fresh: set[int] = set()

    def connected(self) -> None:
        while self.world.is_impatient and self.waiting and self.has_room:
            # As some do: new ones before those that are said again.
            self.publish()
            self.fresh.add(next(reversed(self.sent)))
        fresh, self.fresh = self.fresh, set()
        for packet_id, (publish, qos) in self.sent.items():
            if packet_id in fresh:
                continue
            if publish is None:
                self.world.to_node.append(Pubrel(packet_id))
            else:
                again = Publish(publish.topic, publish.payload, qos, False, True, packet_id)
                self.world.to_node.append(again)

    def publish(self) -> None:
        qos, payload = self.waiting.popleft()
        # The lowest that is free, so that ids are used again as soon as they may be.
        packet_id = next(one for one in range(1, 100) if one not in self.sent)
        publish = Publish(f"t{len(payload) % 2}", payload, qos, False, False, packet_id)
        self.sent[packet_id] = (publish, qos)
        self.world.to_node.append(publish)

    @property
    def has_room(self) -> bool:
        return len(self.sent) < RECEIVE_MAX

    def hear(self, packet: Packet) -> None:
        assert isinstance(packet, Puback | Pubrec | Pubcomp)
        publish, qos = self.sent.get(packet.packet_id, (None, 0))
        match packet:
            case Puback():
                assert qos == 1, f"{packet} of qos {qos}"
                del self.sent[packet.packet_id]
            case Pubrec(reason=reason) if reason.is_failure:
                assert publish is not None, f"{packet} after a success"
                self.refused.add(publish.payload)
                del self.sent[packet.packet_id]
            case Pubrec():
                assert qos == 2, f"{packet} of qos {qos}"
                self.sent[packet.packet_id] = (None, 2)
                self.world.to_node.append(Pubrel(packet.packet_id))
            case Pubcomp():
                # MQTT-4.3.3: it comes behind PUBREL only, of this very exchange.
                assert publish is None, f"{packet} of {publish}"
                assert qos == 2, f"{packet} of qos {qos}"
                del self.sent[packet.packet_id]


class World:
    def __init__(
        self, seed: int, crashes: bool = True, moves: bool = False, is_impatient: bool = False
    ) -> None:
        """With `moves` a node that crashed may be followed by another, whose streams lack what it stored."""
        self.chance = random.Random(seed)
        self.crashes = crashes
        self.moves = moves
        self.is_impatient = is_impatient
        self.marked: set[int] = set()
        """Packet ids whose messages are known to be stored, wherever that was."""
        self.doubtful: set[bytes] = set()
        """What a node had stored that was lost before anybody else could know."""
        self.to_node: deque[Packet] = deque()
        self.to_client: deque[Ack] = deque()
        self.is_connected = False
        # What the node has on disk.
        self.kept: dict[int, int] = {}
        self.sequence = 0
        self.stored: Counter[bytes] = Counter()
        self.sequences: dict[int, bytes] = {}
        self.lasts: dict[str, int] = {}
        """What is last by topic, each of which is in a shard of its own."""
        self.lasts_then: dict[int, tuple[int, dict[str, int]]] = {}
        self.lasts_kept: dict[int, dict[str, int]] = {}
        """The same as it was at the restart that each packet id was first unheard at; and on disk."""
        # What is being written, and told to the machine when it is.
        self.catalog: deque[tuple[str, list[Incoming] | list[int]]] = deque()
        self.stream: deque[Incoming] = deque()
        self.inbound = Inbound(marks=moves)
        messages = [
            (self.chance.choice((1, 2)), (DENIED if not n % 7 else b"m") + str(n).encode())
            for n in range(20)
        ]
        self.messages = {payload: qos for qos, payload in messages}
        self.client = Client(self, messages)

    # --- chance -------------------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(self.chance.randint(50, 600)):
            self.step(self.crashes)
        # Then nothing breaks any more, and all comes to its end.
        for _ in range(2_000):
            if not self.client.waiting and not self.client.sent:
                break
            self.step(False)
        self.settled()

    def step(self, breaks: bool) -> None:
        moves = []
        if not self.is_connected:
            moves.append(self.connect)
        else:
            if self.to_node:
                moves.append(self.node_hears)
            if self.to_client:
                moves.append(self.client_hears)
            if self.client.waiting and self.client.has_room:
                moves.append(self.client.publish)
        if self.catalog:
            moves.append(self.write_catalog)
        if self.stream:
            moves.append(self.write_stream)
        if breaks and self.chance.random() < 0.08:
            moves = [self.chance.choice((self.cut, self.crash))]
        if moves:
            self.chance.choice(moves)()
            self.inbound.check()

    def connect(self) -> None:
        self.is_connected = True
        self.inbound.connected(RECEIVE_MAX)
        self.client.connected()

    def cut(self) -> None:
        """What is on its way is lost, in either direction."""
        self.is_connected = False
        self.to_node.clear()
        self.to_client.clear()

    def crash(self) -> None:
        """Of the node; of what it was writing some is on disk, from the beginning on."""
        self.cut()
        while self.catalog and self.chance.random() < 0.5:
            self.write_catalog(tells=False)
        while self.stream and self.chance.random() < 0.5:
            self.write_stream(tells=False)
        self.catalog.clear()
        self.stream.clear()
        if self.moves and self.chance.random() < 0.5:
            self.move()
        known = max([self.sequence, *self.sequences])
        lasts = dict(self.lasts)
        self.lasts_then = {
            packet_id: (sequence, self.lasts_kept.get(packet_id, lasts))
            for packet_id, sequence in self.kept.items()
        }
        self.inbound = Inbound(
            dict(self.kept),
            known,
            set(self.marked),
            was_stored=self.was_stored,
            marks=self.moves,
        )

    def was_stored(self, packet_id: int, sequence: int, topic: str) -> bool:
        return sequence <= self.lasts_then[packet_id][1].get(topic, -1)

    def move(self) -> None:
        for packet_id, sequence in self.kept.items():
            if sequence in self.sequences and packet_id not in self.marked:
                # Nobody was told so: the client still has it, and says it again.
                assert self.client.sent[packet_id][0] is not None, f"{packet_id} was answered"
                self.doubtful.add(self.sequences[sequence])
        self.sequences, self.lasts = {}, {}
        self.lasts_kept = {}

    # --- the node -----------------------------------------------------------------------------------

    def node_hears(self) -> None:
        # One read has one packet or several.
        count = self.chance.randint(1, len(self.to_node))
        heard = [self.to_node.popleft() for _ in range(count)]
        for packet in heard:
            if isinstance(packet, Publish):
                self.perform(self.inbound.hear([packet]))
            else:
                assert isinstance(packet, Pubrel)
                self.perform(self.inbound.released([packet]))

    def client_hears(self) -> None:
        self.client.hear(self.to_client.popleft())

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case StorePublishes(incoming):
                    self.store(incoming)
                case ForgetReceived(packet_ids):
                    self.catalog.append(("forget", packet_ids))
                case KeepReceived(packet_ids):
                    assert self.moves, "nobody else goes on with it"
                    self.catalog.append(("mark", packet_ids))
                case SayAcks(acks) if self.is_connected:
                    self.to_client += acks
                case SayAcks():
                    pass
                case _:
                    raise AssertionError(effect)

    def store(self, incoming: list[Incoming]) -> None:
        denied = [one for one in incoming if one.publish.payload.startswith(DENIED)]
        is_late = self.chance.random() < 0.5
        new = [one for one in incoming if one.sequence and not one.is_kept]
        if not is_late:
            new = [one for one in new if one not in denied]
        if new:
            self.catalog.append(("keep", new))
        self.stream += [
            one for one in incoming if one not in new and (is_late or one not in denied)
        ]
        if not is_late and denied:
            results = [(one.number, ReasonCode.NOT_AUTHORIZED) for one in denied]
            self.perform(self.inbound.refused(results))

    def write_catalog(self, tells: bool = True) -> None:
        what, those = self.catalog.popleft()
        for one in those:
            if isinstance(one, Incoming):
                self.kept[one.publish.packet_id] = one.sequence
                self.sequence = max(self.sequence, one.sequence)
            elif what == "mark":
                assert one in self.kept, "marked before it is kept"
                self.marked.add(one)
            else:
                self.kept.pop(one, None)
                self.marked.discard(one)
        # Written with each change, as long as the sequence is that of before the restart.
        self.lasts_kept = {
            packet_id: lasts
            for packet_id, (sequence, lasts) in self.lasts_then.items()
            if self.kept.get(packet_id) == sequence
        }
        packet_ids = [one for one in those if isinstance(one, int)]
        if what == "keep":
            self.stream += [one for one in those if isinstance(one, Incoming)]
        elif tells and what == "mark":
            self.perform(self.inbound.marked(packet_ids))
        elif tells:
            self.perform(self.inbound.forgotten(packet_ids))

    def write_stream(self, tells: bool = True) -> None:
        # Shards are written in any order, and each in its own.
        topic = self.chance.choice([one.publish.topic for one in self.stream])
        one = next(one for one in self.stream if one.publish.topic == topic)
        self.stream.remove(one)
        payload = one.publish.payload
        if payload.startswith(DENIED):
            if tells:
                self.perform(self.inbound.stored([(one.number, ReasonCode.NOT_AUTHORIZED)]))
            return
        # As streams do: what is not above the last is a duplicate.
        if not one.sequence or one.sequence > self.lasts.get(topic, -1):
            self.stored[payload] += 1
        if one.sequence:
            assert self.kept.get(one.publish.packet_id) == one.sequence, "stored before it is kept"
            self.sequences[one.sequence] = payload
            self.lasts[topic] = max(one.sequence, self.lasts.get(topic, -1))
        if tells:
            self.perform(self.inbound.stored([(one.number, ReasonCode.SUCCESS)]))

    # --- what must be true --------------------------------------------------------------------------

    def settled(self) -> None:
        assert not self.client.sent, f"without an end: {self.client.sent}"
        for payload, qos in self.messages.items():
            count = self.stored[payload]
            if payload.startswith(DENIED):
                assert not count
                assert qos == 1 or payload in self.client.refused
            elif qos == 2 and payload in self.doubtful:
                assert count >= 1, f"{payload!r} is lost"
            elif qos == 2:
                assert count == 1, f"{payload!r} of qos 2 is stored {count} times"
            else:
                assert count >= 1, f"{payload!r} is lost"
        while self.catalog:
            self.write_catalog()
        assert self.inbound.kept() == self.kept == {}, "exchanges that nobody has are kept"
        assert self.inbound.out == 0
