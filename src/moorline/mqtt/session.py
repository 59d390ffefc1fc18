"""Room: mqtt. The session of a client that is connected: its machines, its place in the streams, its groups.

It begins from what the catalog keeps of it, and ends with the connection: what is unfinished goes back to the
catalog, or is nobody's, where the session ends too.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from moorline.catalog.sessions import SessionRow
from moorline.core.access.right import SUBSCRIBE
from moorline.core.delivery.delivery import FAR
from moorline.core.effects import Effect
from moorline.core.mqtt.effects import (
    Ack,
    ForgetReceived,
    ForgetSent,
    KeepReceived,
    KeepReleased,
    KeepSent,
    MessagesDone,
    MessagesFailed,
    SayAcks,
    SayPublishes,
    Sent,
    StorePublishes,
)
from moorline.core.mqtt.inbound import Inbound
from moorline.core.mqtt.outbound import PACKET_ID_MAX, Outbound
from moorline.core.mqtt.packets import MQTT_5, Publish, Pubrel
from moorline.core.stream import Shard
from moorline.errors import MoorlineError
from moorline.limits import (
    MQTT_IN_FLIGHT_MAX,
    MQTT_RECEIVE_MAX,
    MQTT_STARTS_LOOK_MS,
    PRIVATE_COMMIT_MS,
)
from moorline.mqtt.filters import Filters
from moorline.mqtt.outlet import MqttOutlet
from moorline.mqtt.publishing import Results
from moorline.mqtt.requests import Requests
from moorline.mqtt.stored import Exchanges, Lasts
from moorline.sessions.session import TopicSession
from moorline.topics.paths import path_of_topic

if TYPE_CHECKING:
    from moorline.mqtt.broker import MqttBroker
    from moorline.mqtt.client import Client

log = logging.getLogger("moorline.mqtt")


class ClientSession:
    """Made by the broker for each connection."""

    __slots__ = (
        "_broker",
        "_forgetting",
        "_is_over",
        "_lasts",
        "_look_at_starts_s",
        "_loop",
        "_own",
        "_received_over",
        "_restored",
        "_sent",
        "client",
        "filters",
        "inbound",
        "name",
        "outbound",
        "outlet",
        "reading",
        "requests",
        "sendings",
        "shared",
        "sleeper",
    )

    def __init__(self, client: "Client", broker: "MqttBroker", name: str) -> None:
        self.client = client
        self.name = name
        """In the catalog."""
        self.sleeper = broker.topics.streams.news.sleeper()
        self.filters = Filters(self.sleeper)
        self.shared: dict[str, int] = {}
        """Numbers of memberships in groups, by filter."""
        self.reading = 0
        """The number of the subscription of all plain filters; 0 before there is one."""
        self.sendings = 0
        """How often retained messages were looked for: the same one is another message each time."""
        self.outbound = Outbound(MQTT_IN_FLIGHT_MAX)
        self._restored: list[Sent] = []
        self._sent: dict[int, Sent] = {}
        """What was sent and is to be kept, as its effects have asked for it."""
        self._lasts: dict[int, Lasts] = {}
        """By packet ids of QoS 2 that the client used before this connection."""
        self._received_over: dict[int, None] = {}
        """Packet ids that the client has used, on their way out of what is kept."""
        self._broker = broker
        self.inbound = Inbound(sequence=self._numbered(), marks=broker.is_shared)
        self._is_over = False
        self._forgetting: list[int] = []
        self._look_at_starts_s = 0.0
        self._loop = asyncio.get_running_loop()
        self.outlet = MqttOutlet(
            client,
            self.filters,
            self.outbound,
            (client.producer, client.numbered_producer),
            client.counts,
            broker.counts,
            self.perform,
            self._subscription_over,
        )
        self._own: TopicSession | None = None
        self.requests = Requests(self, broker)

    # --- as it is kept ----------------------------------------------------------------------------

    @property
    def own(self) -> TopicSession:
        """What reads streams for it, from when it is needed: a client that only publishes has none."""
        if self._own is None:
            self._own = own = self._broker.sessions.adopt(self.client, self.outlet)
            delivery = own.delivery
            self.outlet.ack, self.outlet.reject = delivery.ack, delivery.reject
            self.outlet.confirm_lost = delivery.confirm_lost
        return self._own

    @property
    def own_if_any(self) -> TopicSession | None:
        return self._own

    @property
    def row(self) -> SessionRow | None:
        return self._own.row if self._own is not None else None

    @property
    def epoch(self) -> int:
        row = self.row
        assert row is not None
        return row.epoch

    def restore(self, kept: Exchanges) -> None:
        """Before anything is said: it goes on where its last connection ended."""
        lasts = self._broker.topics.streams.store.producer_lasts(self.client.numbered_producer)
        home = self._broker.home
        # Of those that were not said again since an earlier restart what was last then stays true: behind it
        # others may have been stored above them.
        self._lasts = {
            packet_id: {home: lasts} | kept.lasts.get(packet_id, {}) for packet_id in kept.received
        }
        self.inbound = Inbound(
            kept.received,
            max(kept.sequence, self._numbered()),
            kept.stored,
            was_stored=self._was_stored,
            marks=self._broker.is_shared,
        )
        self._restored = kept.unfinished()
        self._sent = {one.packet_id: one for one in self._restored if one.qos == 2}
        self.outbound = Outbound(MQTT_IN_FLIGHT_MAX, self._restored)
        self.outlet.use(self.outbound)

    def _was_stored(self, packet_id: int, sequence: int, topic: str) -> bool:
        lasts = self._lasts[packet_id].get(self._broker.home, {})
        shard = self._broker.topics.streams.store.shard_of_topic(topic)
        return sequence <= lasts.get(shard, -1)

    def _numbered(self) -> int:
        """The highest sequence that the streams know of the client."""
        store = self._broker.topics.streams.store
        return max(store.producer_last(self.client.numbered_producer), 0)

    def connected(self) -> None:
        """Before CONNACK, and what came behind CONNECT."""
        # Before MQTT 5 a client cannot be told of a bound, and has the one that packet ids are.
        told = MQTT_RECEIVE_MAX if self.client.level == MQTT_5 else PACKET_ID_MAX
        self.inbound.connected(told)

    def begin(self) -> None:
        """Behind CONNACK."""
        self.perform(self.outbound.connected(self.client.receive_max))
        # A group does not wait: what was out of it is another member's.
        for source, shard in {(one.position.source, one.position.shard) for one in self._restored}:
            if source.startswith("$"):
                self.gone(source, shard, FAR)

    def gone(self, source: str, shard: Shard, below: int) -> None:
        """Nothing of that comes again: exchanges that wait for it are finished without it."""
        self.perform(self.outbound.gone(source, shard, below))

    def pass_places(self) -> None:
        """Behind the places of the client nothing comes again."""
        if not self._restored:
            return
        subscription = self.own.subscriptions.get(self.reading)
        if subscription is None or subscription.private is None:
            return
        for shard, low in subscription.private.lows():
            self.gone("", shard, low)

    def exchanges(self) -> Exchanges:
        received = {
            packet_id: sequence
            for packet_id, sequence in self.inbound.kept().items()
            if packet_id not in self._received_over
        }
        sent = self._sent
        if self._is_over:
            # Those of QoS 1 too: they come again under their ids.
            sent = {one.packet_id: one for one in self.outbound.unfinished()} | sent
        stored = [packet_id for packet_id in self.inbound.stored_ids() if packet_id in received]
        lasts = {packet_id: self._lasts[packet_id] for packet_id in self.inbound.unheard_ids()}
        return Exchanges.of(received, self.inbound.sequence, list(sent.values()), stored, lasts)

    def taken_over(self) -> None:
        self.own.take_over()

    @property
    def is_kept(self) -> bool:
        """Whether the catalog has what is unfinished of it."""
        own = self._own
        return own is not None and own.row is not None and not own.ends_with_connection

    @property
    def in_flight(self) -> int:
        """What the client has not acknowledged, and what waits for that."""
        return len(self.outbound.unfinished()) + self.outlet.waiting

    def qos_of(self, filter_text: str) -> int:
        """Of a membership in a group."""
        member = self.outlet.members.get(self.shared.get(filter_text, 0))
        return member.qos if member is not None else 0

    def _keep(self, then: Callable[[], None]) -> None:
        if self.is_kept:
            self._broker.exchanges.keep(self, then)
        else:
            then()

    # --- what the client says ---------------------------------------------------------------------

    def published(self, publishes: Sequence[Publish]) -> None:
        """`Violation` ends the connection, by whoever called."""
        self.perform(self.inbound.hear(publishes))

    def acknowledged(self, acks: Iterable[Ack]) -> None:
        released = list[Pubrel]()
        answers = list[Ack]()
        for ack in acks:
            if isinstance(ack, Pubrel):
                released.append(ack)
            else:
                answers.append(ack)
        if released:
            self.perform(self.inbound.released(released))
        if answers:
            self.perform(self.outbound.answered(answers))
            self.outlet.go_on()

    def read_over(self) -> None:
        """All of one read was heard."""
        streams = self._broker.topics.streams
        streams.commits.hold_if_behind(self.client)
        self.outlet.flush()
        if self.filters.has_late and self._loop.time() >= self._look_at_starts_s:
            self._look_at_starts_s = self._loop.time() + MQTT_STARTS_LOOK_MS / 1_000
            subscription = self.own.subscriptions.get(self.reading)
            if subscription is not None and subscription.private is not None:
                self.own.delivery.pass_slept()
                self.filters.passed(dict(subscription.private.lows()))

    def perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self._PERFORMERS[type(effect)](self, effect)

    def _say_acks(self, effect: SayAcks) -> None:
        self.client.say_acks(effect)

    # --- PUBLISHes of the client ------------------------------------------------------------------

    def _store_publishes(self, effect: StorePublishes) -> None:
        incoming = effect.incoming
        if self.is_kept and any(one.sequence and not one.is_kept for one in incoming):
            # All of them wait with those of QoS 2, so that they stay in order.
            self._keep(lambda: self._append(effect, is_kept=True))
        else:
            self._append(effect, is_kept=False)

    def _append(self, effect: StorePublishes, *, is_kept: bool) -> None:
        refused = self._broker.publishing.store(self.client, effect.incoming, self._stored)
        if not refused:
            return
        if self.client.level != MQTT_5:
            text = "a message cannot be taken now: connect again later, and say it again"
            self.client.refuse(refused[0][1], text)
        elif is_kept:
            self.perform(self.inbound.stored(refused))
        else:
            self.perform(self.inbound.refused(refused))

    def _stored(self, results: Results) -> None:
        if not self._is_over:
            self.perform(self.inbound.stored(results))
            self.client.flush()

    def _keep_received(self, effect: KeepReceived) -> None:
        self._keep(lambda: self._said(lambda: self.inbound.marked(effect.packet_ids)))

    def _forget_received(self, effect: ForgetReceived) -> None:
        packet_ids = effect.packet_ids
        self._received_over.update(dict.fromkeys(packet_ids))

        def forgotten() -> None:
            for packet_id in packet_ids:
                self._received_over.pop(packet_id, None)
            self._said(lambda: self.inbound.forgotten(packet_ids))

        self._keep(forgotten)

    # --- PUBLISHes to the client ------------------------------------------------------------------

    def _say_publishes(self, effect: SayPublishes) -> None:
        dropped = self.client.say_publishes(effect.publishes)
        self._broker.counts.sent += len(effect.publishes) - len(dropped)
        if dropped:
            self.client.counts.too_large += len(dropped)
            self._broker.counts.too_large += len(dropped)
            log.info(
                "messages are larger than a client takes",
                extra={"client": self.client.client_id, "messages": len(dropped)},
            )
            self.perform(self.outbound.dropped(dropped))

    def _keep_sent(self, effect: KeepSent) -> None:
        packet_ids = [one.packet_id for one in effect.sent]
        self._sent.update((one.packet_id, one) for one in effect.sent)
        self._keep(lambda: self._said(lambda: self.outbound.kept(packet_ids)))

    def _keep_released(self, effect: KeepReleased) -> None:
        packet_ids = effect.packet_ids
        for packet_id in packet_ids:
            known = self._sent.get(packet_id)
            if known is not None:
                self._sent[packet_id] = Sent(packet_id, known.position, known.qos, True)
        self._keep(lambda: self._said(lambda: self.outbound.kept(packet_ids)))

    def _said(self, effects: Callable[[], list[Effect]]) -> None:
        if not self._is_over:
            self.perform(effects())
            self.client.flush()

    def _messages_done(self, effect: MessagesDone) -> None:
        self.outlet.done(effect.done)

    def _messages_failed(self, effect: MessagesFailed) -> None:
        for feed, offset, _ in effect.failed:
            self.outlet.failed(feed, offset)

    def _forget_sent(self, effect: ForgetSent) -> None:
        if not self.is_kept:
            for packet_id in effect.packet_ids:
                self._sent.pop(packet_id, None)
            self.outbound.forgotten(effect.packet_ids)
            return
        if not self._forgetting:
            self._loop.call_later(PRIVATE_COMMIT_MS / 1_000, self._forget_soon)
        self._forgetting += effect.packet_ids

    def _forget_soon(self) -> None:
        if not self._is_over:
            self._broker.spawn(self._forget_all())

    async def _forget_all(self) -> None:
        """Behind the places that pass these messages."""
        packet_ids, self._forgetting = self._forgetting, []
        self.outlet.flush()
        await self.own.commit()
        for packet_id in packet_ids:
            self._sent.pop(packet_id, None)
        self.pass_places()

        def forgotten() -> None:
            self.outbound.forgotten(packet_ids)
            self.outlet.go_on()

        self._keep(forgotten)

    # --- subscriptions ----------------------------------------------------------------------------

    def _subscription_over(self, number: int, code: str) -> None:
        """A group that is gone, or not granted any more."""
        filter_text = next((text for text, known in self.shared.items() if known == number), None)
        if number == self.reading:
            self.reading = 0
        if filter_text is None:
            return
        del self.shared[filter_text]
        self.outlet.members.pop(number, None)
        self._withheld(filter_text, code)
        self.requests.membership_over(filter_text, code)

    def judge_again(self) -> Generator[None, None, None]:
        """Rights have changed: plain filters that are not granted let nothing through, and what is granted
        again goes on. A step for each."""
        rights = self.client.rights
        if not rights.is_known:
            # Nothing may reach it, and nothing else can say so: its library connects again, and is let in as
            # soon as the catalog says who may do what.
            self.client.close("CATALOG", "the catalog does not answer: connect again later")
            return
        for kept in self.filters.kept:
            if not rights.at(path_of_topic(kept.filter)) & SUBSCRIBE and self.filters.withhold(
                kept.filter
            ):
                self._withheld(kept.filter, "DENIED")
            yield
        self.requests.rights_changed()

    def _withheld(self, filter_text: str, code: str) -> None:
        self.client.counts.filters_denied += 1
        self._broker.counts.filters_denied += 1
        log.info(
            "a filter of a client lets nothing through any more",
            extra={"client": self.client.client_id, "filter": filter_text, "code": code},
        )

    # --- the end ----------------------------------------------------------------------------------

    def end(self) -> None:
        """The connection is over; what the client answered with its last words counts."""
        self.outlet.flush()
        self._is_over = True
        self.requests.close()
        self.sleeper.close()
        self.client.counts.expired = self.outbound.expired
        self._broker.counts.expired += self.outbound.expired
        self.outlet.close()

    async def settle(self) -> None:
        """What is left is stored; whoever connects next waits for it."""
        if self.is_kept and self.client.end_code != "TAKEN_OVER_ELSEWHERE":
            try:
                await self._broker.exchanges.durable(self)
            except MoorlineError as error:  # pragma: no cover
                log.warning("a session was not stored", extra={"error": str(error)})

    _PERFORMERS: ClassVar[dict[type[Effect], Callable[[Any, Any], None]]] = {
        SayAcks: _say_acks,
        SayPublishes: _say_publishes,
        StorePublishes: _store_publishes,
        KeepReceived: _keep_received,
        ForgetReceived: _forget_received,
        KeepSent: _keep_sent,
        KeepReleased: _keep_released,
        MessagesDone: _messages_done,
        MessagesFailed: _messages_failed,
        ForgetSent: _forget_sent,
    }
    """One table for all sessions."""
