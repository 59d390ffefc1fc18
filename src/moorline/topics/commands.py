"""Room: topics. Publishing, and what one node tells another of its streams."""

import asyncio
from collections.abc import Generator

from moorline.access.demands import Demands
from moorline.access.guard import Declarations, demand, heavy, needs, needs_each, nodes_only
from moorline.config.settings import Streams as Settings
from moorline.core.access.right import LIST, SUBSCRIBE, WRITE
from moorline.core.group.message import LeaderMessage
from moorline.core.stream import Extent
from moorline.core.topic import check_filter
from moorline.errors import TooLarge
from moorline.journal.streams.match_count import look_of_each
from moorline.journal.streams.retained import Entry
from moorline.limits import (
    STREAM_NEWS_MS,
    STREAMS_AT_ONCE_MAX,
    STREAMS_PER_PAGE_MAX,
)
from moorline.net.session import Session, each
from moorline.net.slices import in_slices
from moorline.net.turns import Turns
from moorline.topics.filtered_reads import lists_or_reads, paths_read
from moorline.topics.paths import (
    TOPICS,
    all_topics,
    topics_listed,
    topics_published,
)
from moorline.topics.publishing import Counts, Publishing
from moorline.topics.retained import RetainedPages
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
from moorline.wire.message import Answer
from moorline.wire.stream_file import DescribeShards, ShardsDescribed
from moorline.wire.topic import (
    DescribeStreams,
    ListTopics,
    Publish,
    StreamFacts,
    StreamsDescribed,
    TopicsListed,
)


class Link:
    """The home of Borrowers on another node: the session that its link is at this end."""

    is_elsewhere = True

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
        self._retained_pages = RetainedPages(streams.store.retained)
        self._demands = demands or Demands()
        self.publishing = Publishing(streams, settings, self._demands)
        """Where another front door gives its messages to: `publishing.publish`."""
        self._reads = StreamReads(streams, self._demands)
        self._turns = Turns()
        self.listed = TopicList(streams)
        self._watching: set[Session] = set()
        self._news: set[int] = set()
        self._news_due = False
        streams.moved.append(self._moved)
        streams.reshaped.append(self._reshaped)

    def declared(self) -> Declarations:
        turns = self._turns
        return {
            Publish: needs_each(WRITE, topics_published, self.publishing.heard, below=TOPICS),
            ListTopics: heavy(needs(LIST, topics_listed, turns.later(self.list_topics))),
            DescribeStreams: heavy(needs(LIST, all_topics, turns.spawned(self.describe_streams))),
            DescribeShards: heavy(lists_or_reads(turns.spawned(self._describe_shards))),
            WatchStreams: nodes_only(each(self._watch)),
            ReadStream: heavy(self._reads.declared(turns)),
            FindOffsets: heavy(lists_or_reads(turns.spawned(self._find_offsets))),
            FindRetained: nodes_only(turns.spawned(self._find_retained)),
        }

    @property
    def counts(self) -> Counts:
        return self.publishing.counts

    def judge_soon(self) -> None:
        """Behind a change of rights: reads that wait are answered, if they are not granted any more."""
        self._turns.spawn(in_slices(self._reads.judge_again()))

    def close(self) -> None:
        self._turns.close()

    # --- what is there ----------------------------------------------------------------------------

    async def list_topics(self, session: Session, call: ListTopics) -> Answer:
        check_filter(call.filter)
        rows = await self.listed.page(session, call.filter, call.after, call.count)
        return TopicsListed(call.call, rows)

    async def describe_streams(self, session: Session, call: DescribeStreams) -> Answer:
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

    async def _describe_shards(self, session: Session, call: DescribeShards) -> Answer:
        store = self.streams.store
        if call.counts:
            counted = await self._counted(call)
            # The disk took its time: the right is asked for once more.
            for path in paths_read(call):
                demand(session.rights, SUBSCRIBE, path)
            return ShardsDescribed(call.call, store.bounds(), [], counted=counted)
        found: list[Extent] = []
        for shard, offset in call.since:
            # One more than fits says that there are more.
            found += store.since(shard, offset, STREAMS_PER_PAGE_MAX + 1 - len(found))
        is_more = len(found) > STREAMS_PER_PAGE_MAX
        return ShardsDescribed(call.call, store.bounds(), found[:STREAMS_PER_PAGE_MAX], is_more)

    async def _counted(self, call: DescribeShards) -> list[tuple[int, int, int]]:
        """Without filters it is not known what is wanted: then nothing is counted."""
        for text in call.filters:
            check_filter(text)
        counts = dict(call.counts)
        since = [(shard, at) for shard, at in dict(call.since).items() if shard in counts]
        look = look_of_each(len(since))
        found = []
        for shard, at in since if call.filters else ():
            extents = self.streams.store.since(shard, at, look.streams)
            if extents:
                count = self.streams.store.count_matching
                upto, matches = await asyncio.to_thread(
                    count, shard, extents, at, call.filters, counts[shard], look.bytes_max
                )
                found.append((shard, upto, matches))
        return found

    async def retained(self, filter_text: str, principal: str) -> list[Entry]:
        """The retained messages that match, those that say "none any more" included."""
        return await in_slices(self._matching(filter_text), principal)

    def _matching(self, filter_text: str) -> Generator[None, None, list[Entry]]:
        found: list[Entry] = []
        for entry in self.streams.store.retained(filter_text):
            if entry is not None:
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
        frames, behind = await in_slices(self._retained_pages.page(call.filter, call.skip))
        return RetainedFound(call.call, b"".join(frames), behind)
