"""Room: mqtt. What clients publish, into the streams: checked, appended together, answered when durable.

    hear ─► keep (QoS 2 of a durable session) ─► append ─► one commit for all of a read ─► stored

A denied PUBLISH of MQTT 5 gets its reason. 3.1.1 has none for it: there it is acknowledged and not stored,
counted and in the audit, because a client that is cut would send it again for ever. What may be taken later,
when the disk has room or a quota does, is not acknowledged: that client is cut.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from moorline.access.demands import Demands
from moorline.access.guard import denied
from moorline.core.access.right import WRITE
from moorline.core.frames.frame import QOS0, RETAIN
from moorline.core.mqtt.effects import Incoming
from moorline.core.mqtt.packets import MQTT_5, NONE, Publish
from moorline.core.mqtt.reason import ReasonCode
from moorline.core.topic import check_topic
from moorline.errors import BadTopic, Denied, NodeDiskFull, OverQuota, RightsUnknown, TooLarge
from moorline.journal.streams.producers import UNNUMBERED
from moorline.limits import TOPIC_HEADERS_BYTES_MAX
from moorline.mqtt.counts import Counts, NodeCounts
from moorline.mqtt.headers import headers_of
from moorline.net.clock import monotonic_ms
from moorline.net.session_rights import SessionAllowance, SessionRights
from moorline.topics.commands import TopicBroker
from moorline.topics.paths import TOPICS, check_reserved
from moorline.topics.stored_bytes import check_stored

ACT: Final = "Publish"
Results = list[tuple[int, ReasonCode]]
RUN_MIN: Final = 4
"""Messages from which on one pass for all of them costs less than one for each."""


class Publisher(Protocol):
    """Whoever publishes: a client, or what is left of one when its will is due."""

    rights: SessionRights
    counts: Counts
    producer: int
    """By which *no local* knows its messages."""
    numbered_producer: int
    """By which its messages of QoS 2 are stored once."""

    @property
    def level(self) -> int: ...

    @property
    def allowance(self) -> SessionAllowance | None: ...


class Publishing:
    def __init__(
        self,
        topics: TopicBroker,
        demands: Demands,
        counts: NodeCounts,
        *,
        message_bytes_max: int,
        retained_bytes_max: int,
    ) -> None:
        self._topics = topics
        self._streams = topics.streams
        self._store = topics.streams.store
        self._demands = demands
        self._counts = counts
        self._message_bytes_max = message_bytes_max
        self._retained_bytes_max = retained_bytes_max

    def store(
        self, who: Publisher, incoming: Sequence[Incoming], stored: Callable[[Results], None]
    ) -> Results:
        """Appends what may be; `stored` hears of it, in this order, when it is durable. Returns what was not
        let in. Before MQTT 5 that is told by the end of the connection alone: it is the first that might be
        taken later, and what follows it is not looked at."""
        refused: Results = []
        plain = self._append_plain(who, incoming) if len(incoming) >= RUN_MIN else 0
        kept: Results = [(one.number, ReasonCode.SUCCESS) for one in incoming[:plain]]
        for one in incoming[plain:] if plain else incoming:
            reason, may_pass = self._append(who, one)
            if reason.is_failure:
                if who.level == MQTT_5:
                    refused.append((one.number, reason))
                    continue
                if may_pass and one.publish.qos:
                    # What was promised to be stored must be: its client is cut, and says it again.
                    refused.append((one.number, reason))
                    break
                # Nothing can say so, and it would be said for ever: taken, as far as the client is told.
                reason = ReasonCode.SUCCESS
            kept.append((one.number, reason))
        if kept:
            self._streams.commits.when_durable(partial(stored, kept))
        return refused

    def store_alone(self, who: Publisher, publish: Publish) -> ReasonCode:
        """A message that nobody waits for: a will."""
        reason, _ = self._append(who, Incoming(0, publish))
        self._streams.commits.changed()
        return reason

    def _append_plain(self, who: Publisher, incoming: Sequence[Incoming]) -> int:
        """Stores the messages that the run begins with and that have a known topic and a payload and nothing
        else, in one pass; how many. Whatever could be refused is left to be judged one by one."""
        allowance = who.allowance
        if self._streams.is_disk_full:
            return 0
        bytes_max, known = self._message_bytes_max, self._store.known_topics
        messages: list[tuple[str, bytes, int]] = []
        add = messages.append
        for one in incoming:
            publish = one.publish
            topic, payload, qos = publish.topic, publish.payload, publish.qos
            if (
                one.sequence
                or publish.properties is not NONE
                or publish.retain
                or len(payload) > bytes_max
                or topic not in known
            ):
                break
            add((topic, payload, 0 if qos else QOS0))
        if not messages:
            return 0
        topics = list(dict.fromkeys([topic for topic, _, _ in messages]))
        principal = who.rights.principal
        if who.rights.first_lacking(WRITE, TOPICS, topics) is not None:
            return 0
        if allowance is not None:
            try:
                check_stored(self._store.stored_bytes, allowance, principal)
            except OverQuota:
                return 0
            if allowance.is_rate_bounded:
                size = sum([len(payload) for _, payload, _ in messages])
                if not allowance.take_run(len(messages), size, monotonic_ms()):
                    return 0  # a part of them may fit
        self._store.append_unnumbered(messages, who.producer, principal)
        self._topics.counts.published += len(messages)
        return len(messages)

    def _append(self, who: Publisher, one: Incoming) -> tuple[ReasonCode, bool]:
        """The reason, and of a refusal whether the same message may be taken later."""
        publish = one.publish
        try:
            return self._appended(who, publish, one.sequence), False
        except (Denied, RightsUnknown) as error:
            who.counts.denied += 1
            self._counts.denied += 1
            self._demands.tell(who, ACT, error)
            return ReasonCode.NOT_AUTHORIZED, isinstance(error, RightsUnknown)
        except OverQuota as error:
            self._demands.tell(who, ACT, error)
            reason, may_pass = ReasonCode.QUOTA_EXCEEDED, True
        except NodeDiskFull:
            reason, may_pass = ReasonCode.QUOTA_EXCEEDED, True
        except BadTopic:
            reason, may_pass = ReasonCode.TOPIC_NAME_INVALID, False
        except TooLarge:
            # 3.4.2.1 and 3.5.2.1 know no "packet too large": a bound of ours is what it is.
            reason, may_pass = ReasonCode.QUOTA_EXCEEDED, False
        who.counts.refused += 1
        self._counts.refused += 1
        return reason, may_pass

    def _appended(self, who: Publisher, publish: Publish, sequence: int) -> ReasonCode:
        """Whatever can be refused is refused before the append."""
        store, topic, payload = self._store, publish.topic, publish.payload
        if self._streams.is_disk_full:
            raise NodeDiskFull("the node's disk is nearly full: no messages are taken")
        lacking = who.rights.first_lacking(WRITE, TOPICS, [topic])
        if lacking is not None:
            who.rights.check_known()
            raise denied(WRITE, lacking)
        if topic not in store.known_topics:
            check_reserved(topic)
            check_topic(topic)
            if who.allowance is not None:
                who.allowance.take_topics((topic,))
            store.check_topic(topic)
        if len(payload) > self._message_bytes_max:
            raise TooLarge(f"a message of {len(payload)} bytes")
        allowance = who.allowance
        if allowance is not None:
            allowance.take_published(1, len(payload))
            check_stored(store.stored_bytes, allowance, who.rights.principal)
        headers = headers_of(publish)
        if len(headers) > TOPIC_HEADERS_BYTES_MAX:
            raise TooLarge(f"headers of {len(headers)} bytes")
        flags = QOS0 if publish.qos == 0 else 0
        reason = ReasonCode.SUCCESS
        if publish.retain:
            if self._may_retain(topic, payload, headers):
                flags |= RETAIN
            else:
                who.counts.not_retained += 1
                self._counts.not_retained += 1
        producer, number = (
            (who.numbered_producer, sequence) if sequence else (who.producer, UNNUMBERED)
        )
        store.append(
            topic,
            payload,
            None,
            headers,
            publish.properties.message_expiry_s or 0,
            flags,
            producer,
            number,
            who.rights.principal,
        )
        self._topics.counts.published += 1
        return reason

    def _may_retain(self, topic: str, payload: bytes, headers: bytes) -> bool:
        if not payload:
            return True  # it takes one back
        size = len(payload) + len(headers) + len(topic)
        return self._store.retained_bytes + size <= self._retained_bytes_max
