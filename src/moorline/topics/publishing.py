"""Room: topics. Publishing: what may be stored is appended to the streams, and answered when it is durable.

publishing.heard(session, calls)                          # of the native protocol
publishing.publish(session, records, when_durable)        # of any other front door
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import msgspec

from moorline.access.demands import Demands
from moorline.config.settings import Streams as Settings
from moorline.core.frames.frame import QOS0, RETAIN, TOMBSTONE, encode_headers
from moorline.core.topic import check_topic
from moorline.errors import BadTopic, CallFailed, Denied, NodeDiskFull, OverQuota, TooLarge
from moorline.journal.streams.publishers import NOBODY
from moorline.limits import TOPIC_HEADERS_BYTES_MAX
from moorline.net.clock import monotonic_ms
from moorline.net.group_commit import Caller
from moorline.net.session import Session
from moorline.net.session_rights import SessionAllowance, SessionRights
from moorline.topics.paths import check_reserved
from moorline.topics.producer import producer_number
from moorline.topics.stored_bytes import check_stored
from moorline.topics.streams import LocalStreams
from moorline.wire.message import Answer, Failed
from moorline.wire.topic import Publish, Published, Record

PUBLISHERS_FLAGS = RETAIN | QOS0 | TOMBSTONE
"""The flags of a frame that a publisher sets; the others say how it is stored."""


SINGLES_MIN = 4
"""Calls of a run from which on one pass over all of them is shorter."""


class Counts(msgspec.Struct):
    published: int = 0
    duplicates: int = 0
    refused: int = 0


class Publisher(Caller, Protocol):
    """Whose messages are stored: a session of whichever front door."""

    @property
    def rights(self) -> SessionRights: ...

    @property
    def allowance(self) -> SessionAllowance | None: ...


class Stored(NamedTuple):
    """What became of a call's messages: where the last of them is, and how many were there before."""

    shard: int
    offset: int
    messages: int
    duplicates: int


class Publishing:
    """Takes what is published, for one node."""

    def __init__(self, streams: LocalStreams, settings: Settings, demands: Demands) -> None:
        self.streams = streams
        self.counts = Counts()
        self._settings = settings
        self._demands = demands

    def heard(self, session: Session, calls: list[Publish]) -> Iterable[Answer]:
        """Calls of the native protocol."""
        refused: list[Answer] = []
        answer = self.streams.commits.answer
        for call in calls[self._store_singles(session, calls) :]:
            try:
                self._take_rate(session, call.records, session.turn_began_ms)
                shard, offset, count, duplicates = self._store(
                    session, call.records, call.producer, call.sequence
                )
                answer(session, Published(call.call, count, duplicates, shard, offset))
            except CallFailed as error:
                self._tell_refused(session, len(call.records), error)
                refused.append(Failed.of(call.call, error))
        self.streams.commits.changed()
        self.streams.commits.hold_if_behind(session)
        return refused

    def _store_singles(self, session: Session, calls: list[Publish]) -> int:
        """Stores the calls of one plain message each that the run begins with, in one pass; how many.

        Single messages are most of what crowds of publishers send, and each step for one of them counts.
        """
        if len(calls) < SINGLES_MIN or self.streams.is_disk_full:
            return 0
        bytes_max, known = self._settings.message_bytes_max, self.streams.store.known_topics
        records = []
        for call in calls:
            if call.producer or len(call.records) != 1:
                break
            record = call.records[0]
            if (
                record.key is not None
                or record.headers
                or record.ttl_s
                or record.flags
                or len(record.body) > bytes_max
                or record.topic not in known
            ):
                break
            records.append(record)
        if not records:
            return 0
        try:
            publisher = self._publisher(session)
        except OverQuota:
            return 0  # each of them is told
        allowance = session.allowance
        if allowance is not None and allowance.is_rate_bounded:
            size = sum([len(record.body) for record in records])
            if not allowance.take_run(len(records), size, session.turn_began_ms):
                return 0  # a part of them may fit
        places = self.streams.store.append_singles(records, publisher)
        self.counts.published += len(records)
        answers: list[Answer] = [
            Published(call.call, 1, 0, shard, offset)
            for call, (shard, offset) in zip(calls, places, strict=False)
        ]
        self.streams.commits.answer_all(session, answers)
        return len(records)

    def publish(
        self, publisher: Publisher, records: list[Record], when_durable: Callable[[], None]
    ) -> Stored:
        """Appends messages that came by another front door; calls back when they are durable.

            publishing.publish(session, [Record("orders/eu", b"…", headers=[("a", b"b")])], self._stored)

        The door asks before whether `publisher` may write to the topics, as the guard does for the native
        one (`rights`), and gives all that it has from one read at once: the callback is for all of them. All
        are stored or none: what this raises is a `CallFailed` with its code, and then no callback comes. Nor
        does one when the disk fails: the node ends. Callbacks come in the order of the calls, before readers
        are woken. While the disk does not keep up the publisher is held by `hold_reading`, and released by
        `release_reading`.
        """
        try:
            self._take_rate(publisher, records, monotonic_ms())
            stored = self._store(publisher, records)
        except CallFailed as error:
            self._tell_refused(publisher, len(records), error)
            raise
        self.streams.commits.when_durable(when_durable)
        self.streams.commits.hold_if_behind(publisher)
        return stored

    def _take_rate(self, publisher: Publisher, records: list[Record], now_ms: int) -> None:
        allowance = publisher.allowance
        if allowance is not None and allowance.is_rate_bounded:
            size = sum([len(record.body) for record in records])
            if not allowance.take_run(len(records), size, now_ms):
                allowance.take_published(len(records), size)

    def _tell_refused(self, publisher: Publisher, count: int, error: CallFailed) -> None:
        if isinstance(error, (Denied, OverQuota)):
            self._demands.tell(publisher, Publish.__name__, error)
        self.counts.refused += count

    def _store(
        self, session: Publisher, records: list[Record], producer_name: str = "", sequence: int = 0
    ) -> Stored:
        """All of a call's messages, or none: what can be refused is refused before the first."""
        if self.streams.is_disk_full:
            raise NodeDiskFull("the node's disk is nearly full: no messages are taken")
        publisher = self._publisher(session)
        if not producer_name and self._is_plain(records):
            shard, offset = self.streams.store.append_plain(records, publisher)
            self.counts.published += len(records)
            return Stored(shard, offset, len(records), 0)
        headers = self._checked(session, records)
        append = self.streams.store.append
        producer = producer_number(session.rights.principal, producer_name) if producer_name else 0
        shard, offset, duplicates = 0, -1, 0
        for place, record in enumerate(records):
            stored = append(
                record.topic,
                record.body,
                record.key,
                headers[place] if headers is not None else b"",
                record.ttl_s,
                record.flags,
                producer,
                sequence + place,
                publisher,
            )
            if stored[1] < 0:
                duplicates += 1
            else:
                shard, offset = stored
        stored_count = len(records) - duplicates
        self.counts.published += stored_count
        self.counts.duplicates += duplicates
        return Stored(shard, offset, stored_count, duplicates)

    def _publisher(self, session: Publisher) -> str:
        """Whose bytes they will be, if it may have more of them in the streams.

        What is stored is looked at, and not what comes: so a principal is over its bound by a commit at most,
        and nobody adds up a call's bytes for it.
        """
        allowance = session.allowance
        if allowance is None or session.rights.is_node:
            return NOBODY
        publisher = session.rights.principal
        check_stored(self.streams.store.stored_bytes, allowance, publisher)
        return publisher

    def _is_plain(self, records: list[Record]) -> bool:
        """Whether they have a known topic and a body and nothing else: nothing is left to be checked."""
        bytes_max, known = self._settings.message_bytes_max, self.streams.store.known_topics
        for record in records:
            if (
                record.key is not None
                or record.headers
                or record.ttl_s
                or record.flags
                or len(record.body) > bytes_max
                or record.topic not in known
            ):
                return False
        return True

    def _checked(self, session: Publisher, records: list[Record]) -> list[bytes] | None:
        """The encoded headers of all, or None if there are none."""
        bytes_max, known = self._settings.message_bytes_max, self.streams.store.known_topics
        headers: list[bytes] | None = None
        for place, record in enumerate(records):
            if len(record.body) > bytes_max:
                raise TooLarge(
                    f"a message of {len(record.body)} bytes; this node takes {bytes_max} "
                    "(streams.message_bytes_max)"
                )
            if record.flags & ~PUBLISHERS_FLAGS:
                raise BadTopic(f"flags {record.flags} are not a publisher's to set")
            if record.flags & TOMBSTONE and record.body:
                raise BadTopic(f"a tombstone of {record.topic!r} has a body: leave it out")
            if record.topic not in known:
                self._learn(session, record.topic)
            if record.headers:
                encoded = encode_headers(record.headers)
                if len(encoded) > TOPIC_HEADERS_BYTES_MAX:
                    raise TooLarge(
                        f"headers of {len(encoded)} bytes; at most {TOPIC_HEADERS_BYTES_MAX}"
                    )
                if headers is None:
                    headers = [b""] * len(records)
                headers[place] = encoded
        return headers

    def _learn(self, session: Publisher, topic: str) -> None:
        """One that only nodes publish to is never known, so that it is looked at each time it comes.

        Only here topics are counted: who publishes to what is known brings up no name, and pays nothing.
        """
        if not session.rights.is_node:
            check_reserved(topic)
        check_topic(topic)
        if session.allowance is not None:
            session.allowance.take_topics((topic,))
        self.streams.store.check_topic(topic)
