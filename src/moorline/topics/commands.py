"""Room: topics. Publishing, and what one node tells another of its streams."""

import asyncio
from collections.abc import Generator, Iterable

import msgspec

from moorline.access.demands import Demands
from moorline.access.guard import Declarations, heavy, needs, needs_each, nodes_only
from moorline.config.settings import Streams as Settings
from moorline.core.access.right import LIST, WRITE
from moorline.core.frames.frame import QOS0, RETAIN, TOMBSTONE, encode_headers
from moorline.core.group.message import LeaderMessage
from moorline.core.stream import Extent
from moorline.core.topic import check_filter, check_topic
from moorline.errors import BadTopic, CallFailed, Denied, NodeDiskFull, OverQuota, TooLarge
from moorline.journal.streams.publishers import NOBODY
from moorline.journal.streams.retained import Entry
from moorline.limits import (
    RETAINED_BYTES_MAX,
    STREAM_NEWS_MS,
    STREAMS_AT_ONCE_MAX,
    STREAMS_PER_PAGE_MAX,
    TOPIC_HEADERS_BYTES_MAX,
)
from moorline.net.session import Session, each
from moorline.net.slices import in_slices
from moorline.net.turns import Turns
from moorline.topics.filtered_reads import lists_or_reads
from moorline.topics.paths import (
    TOPICS,
    all_topics,
    check_reserved,
    topics_listed,
    topics_published,
)
from moorline.topics.producer import producer_number
from moorline.topics.stored_bytes import check_stored
from moorline.topics.stream_reads import StreamReads
from moorline.topics.streams import LocalStreams
from moorline.topics.topic_list import TopicList
from moorline.wire.group import (
    FindOffsets,
    FindRetained,
    ForBorrower,
    OffsetsFound,
    ReadStream,
    RetainedFound,
    StreamsChanged,
    StreamsSeen,
    WatchStreams,
)
from moorline.wire.message import Answer, Failed
from moorline.wire.stream_file import DescribeShards, ShardsDescribed
from moorline.wire.topic import (
    DescribeStreams,
    ListTopics,
    Publish,
    Published,
    Record,
    StreamFacts,
    StreamsDescribed,
    TopicsListed,
)

PUBLISHERS_FLAGS = RETAIN | QOS0 | TOMBSTONE
"""The flags of a frame that a publisher sets; the others say how it is stored."""


class Counts(msgspec.Struct):
    published: int = 0
    duplicates: int = 0
    refused: int = 0


class Link:
    """The home of Borrowers on another node: the session that its link is at this end."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def from_leader(self, message: LeaderMessage) -> None:
        if self._session.is_open:
            self._session.send(ForBorrower(message))


class TopicBroker:
    """Takes what is published."""

    def __init__(
        self, streams: LocalStreams, settings: Settings, demands: Demands | None = None
    ) -> None:
        self.streams = streams
        self.counts = Counts()
        self._settings = settings
        self._demands = demands or Demands()
        self._reads = StreamReads(streams, self._demands)
        self._turns = Turns()
        self._listed = TopicList(streams)
        self._watching: set[Session] = set()
        self._news: set[int] = set()
        self._news_due = False
        streams.moved.append(self._moved)
        streams.reshaped.append(self._reshaped)

    def declared(self) -> Declarations:
        turns = self._turns
        return {
            Publish: needs_each(WRITE, topics_published, self._publish, below=TOPICS),
            ListTopics: heavy(needs(LIST, topics_listed, turns.later(self._list_topics))),
            DescribeStreams: heavy(needs(LIST, all_topics, turns.spawned(self._describe))),
            DescribeShards: heavy(lists_or_reads(each(self._describe_shards))),
            WatchStreams: nodes_only(each(self._watch)),
            ReadStream: heavy(self._reads.declared(turns)),
            FindOffsets: heavy(lists_or_reads(turns.spawned(self._find_offsets))),
            FindRetained: nodes_only(turns.spawned(self._find_retained)),
        }

    def judge_soon(self) -> None:
        """Behind a change of rights: reads that wait are answered, if they are not granted any more."""
        self._turns.spawn(in_slices(self._reads.judge_again()))

    def close(self) -> None:
        self._turns.close()

    # --- publishing -------------------------------------------------------------------------------

    def _publish(self, session: Session, calls: list[Publish]) -> Iterable[Answer]:
        refused: list[Answer] = []
        allowance = session.allowance
        is_bounded = allowance is not None and allowance.is_rate_bounded
        for call in calls:
            try:
                if is_bounded:
                    _take_published(session, call)
                self._store(session, call)
            except CallFailed as error:
                if isinstance(error, (Denied, OverQuota)):
                    self._demands.tell(session, Publish.__name__, error)
                self.counts.refused += len(call.records)
                refused.append(Failed.of(call.call, error))
        self.streams.commits.changed()
        self.streams.commits.hold_if_behind(session)
        return refused

    def _store(self, session: Session, call: Publish) -> None:
        """All of a call's messages, or none: what can be refused is refused before the first."""
        if self.streams.is_disk_full:
            raise NodeDiskFull("the node's disk is nearly full: no messages are taken")
        publisher = self._publisher(session)
        if not call.producer and self._is_plain(call.records):
            shard, offset = self.streams.store.append_plain(call.records, publisher)
            self.counts.published += len(call.records)
            self.streams.commits.answer(
                session, Published(call.call, len(call.records), 0, shard, offset)
            )
            return
        headers = self._checked(session, call.records)
        append = self.streams.store.append
        producer = producer_number(session.rights.principal, call.producer) if call.producer else 0
        sequence = call.sequence
        shard, offset, duplicates = 0, -1, 0
        if not producer and headers is None:
            for record in call.records:
                shard, offset = append(
                    record.topic,
                    record.body,
                    record.key,
                    b"",
                    record.ttl_s,
                    record.flags,
                    publisher=publisher,
                )
        else:
            for place, record in enumerate(call.records):
                extra = headers[place] if headers is not None else b""
                stored = append(
                    record.topic,
                    record.body,
                    record.key,
                    extra,
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
        stored_count = len(call.records) - duplicates
        self.counts.published += stored_count
        self.counts.duplicates += duplicates
        self.streams.commits.answer(
            session, Published(call.call, stored_count, duplicates, shard, offset)
        )

    def _publisher(self, session: Session) -> str:
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

    def _checked(self, session: Session, records: list[Record]) -> list[bytes] | None:
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

    def _learn(self, session: Session, topic: str) -> None:
        """One that only nodes publish to is never known, so that it is looked at each time it comes.

        Only here topics are counted: who publishes to what is known brings up no name, and pays nothing.
        """
        if not session.rights.is_node:
            check_reserved(topic)
        check_topic(topic)
        if session.allowance is not None:
            session.allowance.take_topics((topic,))
        self.streams.store.check_topic(topic)

    # --- what is there ----------------------------------------------------------------------------

    async def _list_topics(self, session: Session, call: ListTopics) -> Answer:
        check_filter(call.filter)
        rows = await self._listed.page(session, call.filter, call.after, call.count)
        return TopicsListed(call.call, rows)

    async def _describe(self, session: Session, call: DescribeStreams) -> Answer:
        facts = await in_slices(self._facts(self._page(call)), session.rights.principal)
        dropped, lost = self.streams.dropped_messages, self.streams.store.lost_messages
        return StreamsDescribed(call.call, facts, dropped, lost)

    def _page(self, call: DescribeStreams | WatchStreams) -> list[Extent]:
        there_are = self.streams.store.stream_count
        if not call.count and there_are > STREAMS_AT_ONCE_MAX:
            raise TooLarge(
                f"the answer does not fit a frame: there are {there_are} streams, ask for pages of at most "
                f"{STREAMS_PER_PAGE_MAX}"
            )
        return self.streams.store.page(call.after, call.count)

    def _facts(self, extents: list[Extent]) -> Generator[None, None, list[StreamFacts]]:
        store = self.streams.store
        facts = []
        for extent in extents:
            stream = extent.stream
            size, first_us, last_us, digest = store.measures(stream.shard_number, stream.generation)
            facts.append(
                StreamFacts(
                    stream.home,
                    stream.shard_number,
                    stream.generation,
                    extent.first,
                    extent.end,
                    extent.sealed,
                    size,
                    first_us,
                    last_us,
                    bytes(digest) if digest is not None else b"",
                )
            )
            yield
        return facts

    def _describe_shards(self, session: Session, call: DescribeShards) -> ShardsDescribed:  # noqa: ARG002
        store = self.streams.store
        found: list[Extent] = []
        for shard, offset in call.since:
            # One more than fits says that there are more.
            found += store.since(shard, offset, STREAMS_PER_PAGE_MAX + 1 - len(found))
        is_more = len(found) > STREAMS_PER_PAGE_MAX
        return ShardsDescribed(call.call, store.bounds(), found[:STREAMS_PER_PAGE_MAX], is_more)

    async def retained(self, filter_text: str, principal: str) -> list[Entry]:
        """The retained messages that match, those that say "none any more" included."""
        return await in_slices(self._matching(filter_text, None), principal)

    def _matching(
        self, filter_text: str, bytes_max: int | None
    ) -> Generator[None, None, list[Entry]]:
        """All of them, or the first ones that have so many bytes together."""
        found: list[Entry] = []
        size = 0
        for entry in self.streams.store.retained(filter_text):
            if entry is not None:
                size += len(entry.frame)
                if bytes_max is not None and size > bytes_max:
                    break
                found.append(entry)
            yield
        return found

    # --- for other nodes --------------------------------------------------------------------------

    def _watch(self, session: Session, call: WatchStreams) -> StreamsSeen:
        if session not in self._watching:
            self._watching.add(session)
            session.at_end(lambda: self._watching.discard(session))
        return StreamsSeen(call.call, self._page(call))

    def _moved(self, shards: list[int]) -> None:
        """Ends move all the time: other nodes hear of them together, and a moment later."""
        if not self._watching:
            return
        self._news.update(shards)
        if not self._news_due:
            self._news_due = True
            asyncio.get_running_loop().call_later(STREAM_NEWS_MS / 1_000, self._tell)

    def _reshaped(self, shards: list[int]) -> None:
        """A new generation is told at once: a group need not wait for it."""
        self._news.update(shards)
        self._tell()

    def _tell(self) -> None:
        self._news_due = False
        news, self._news = self._news, set()
        if not news or not self._watching:
            return
        extents = self.streams.store.extents(news)
        firsts = range(0, len(extents), STREAMS_PER_PAGE_MAX)
        pages = [extents[first : first + STREAMS_PER_PAGE_MAX] for first in firsts]
        changes = [StreamsChanged(page, place < len(pages)) for place, page in enumerate(pages, 1)]
        for session in self._watching:
            session.send_all(changes)

    async def _find_offsets(self, session: Session, call: FindOffsets) -> Answer:  # noqa: ARG002
        found = await self.streams.offsets_at(call.time_us)
        return OffsetsFound(call.call, list(found.items()))

    async def _find_retained(self, session: Session, call: FindRetained) -> Answer:  # noqa: ARG002
        check_filter(call.filter)
        found = await in_slices(self._matching(call.filter, RETAINED_BYTES_MAX))
        return RetainedFound(call.call, b"".join(entry.frame for entry in found))


def _take_published(session: Session, call: Publish) -> None:
    assert session.allowance is not None
    size = sum([len(record.body) for record in call.records])
    session.allowance.take_published(len(call.records), size)
