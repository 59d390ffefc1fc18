"""Room: journal/streams. The streams of a node: every shard with its generations, and the retained messages.

    store = StreamStore(FileDisk(data / "streams"), "n1", StreamOptions(), now_us)
    store.open()
    shard, offset = store.append("orders/eu", body, None, b"", 0, 0)
    batch = store.take_batch()         # on the loop
    store.write(batch)                 # in a thread: now it is durable
    store.committed(batch)             # on the loop: now readers see it
    store.read(shard, store.generation_of(shard, offset), offset, 65_536)

One batch is on its way at a time. Design and files: docs/design/streams.md.
"""

import secrets
import struct
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import Executor

import numpy as np

from moorline.core.access.row import RESERVED
from moorline.core.frames.frame import CONTENT, HEAD, KEYED, PRODUCER, PRODUCER_PART, RETAIN
from moorline.core.topic import check_topic
from moorline.journal.begun_syncs import BegunSyncs
from moorline.journal.disk import Disk, DiskFile
from moorline.journal.reserved_whole import ReservedWhole
from moorline.journal.streams.batch import PlainRecord, StreamBatch, StreamOptions
from moorline.journal.streams.deleted import PATH as DELETED
from moorline.journal.streams.deleted import DeletedUpto
from moorline.journal.streams.inspection import StreamProblem
from moorline.journal.streams.layout import NO_OWNER, read_layout, write_layout
from moorline.journal.streams.packed_append import NumberedRows
from moorline.journal.streams.producers import UNNUMBERED
from moorline.journal.streams.publishers import NOBODY, StoredBytes
from moorline.journal.streams.retained import Entry, Retained
from moorline.journal.streams.segment import STORE_BYTES
from moorline.journal.streams.shard import ShardLog
from moorline.journal.streams.shard_recovery import leave_file
from moorline.journal.streams.store_recovery import StoreRecovery
from moorline.journal.streams.stream_log import StreamLog
from moorline.journal.streams.upkeep import ShardUpkeep
from moorline.journal.streams.view import StreamView
from moorline.limits import (
    STREAM_LOGGED_BYTES_MAX,
    STREAM_SKIP_MARGIN,
    TOPICS_CACHED_BYTES_MAX,
    TOPICS_CACHED_MAX,
)
from moorline.wire.packed_rows import PackedRows
from moorline.wire.shard_choice import hash_of, shard_of

__all__ = ["PlainRecord", "StreamBatch", "StreamOptions", "StreamStore"]

_content = CONTENT.pack
_producer_part = PRODUCER_PART.pack
_hash = hash_of
_HEAD_BYTES = HEAD.size
_BEGINNING = struct.Struct("<QQ")
_beginning = _BEGINNING.pack


def moved_producer(producer: int, shards: int) -> int:
    """Under which rows are stored that were packed for another number of shards."""
    return _hash(b"%d/%d" % (producer, shards))


class StreamStore(StreamView):
    """The loop owns it. In threads: `write`, what `upkeep.seal` returns, the disk's part of a drop, and reads
    that are not cached. `upkeep` rolls, seals and drops."""

    def __init__(
        self,
        disk: Disk,
        node: str,
        options: StreamOptions,
        now_us: Callable[[], int],
        draw: Callable[[int], bytes] = secrets.token_bytes,
        syncs: Executor | None = None,
        expiry_us: Callable[[], int] | None = None,
        owner: bytes = NO_OWNER,
        begun_syncs: BegunSyncs | None = None,
    ) -> None:
        """`syncs` does the syncs of a commit side by side, `begun_syncs` that of a small one by itself; both
        are the caller's. `expiry_us` is the time by which things grow old; that of messages, if it
        is not given. `owner` is the id of the node: files that were made under another one are not taken."""
        assert options.shards > 0
        self._syncs = syncs
        super().__init__(disk)
        self._node = node
        self._owner, self._store = owner, owner[:STORE_BYTES]
        self.problems: list[StreamProblem] = []
        """What the start found not to be as it was left."""
        self.found_gone: list[tuple[int, int]] = []
        """Ranges before all that is kept that the start found gone, and no start before it."""
        self._options = options
        self._now_us = now_us
        self._expiry_us = expiry_us or now_us
        self._draw = draw
        self.log = StreamLog(disk, self._store, draw)
        """Of small commits; whoever commits has its `work` done."""
        self.upkeep = ShardUpkeep(disk, options, self._shards, self.log)
        self._in_use: list[ShardLog] = []
        self.stored_bytes = StoredBytes()
        self._topics: dict[str, tuple[bytes, int, ShardLog, bytes]] = {}
        self.known_topics: Container[str] = self._topics
        """Topics that were checked before."""
        self._topics_bytes = 0
        self._retained = Retained(disk, draw)
        self._retain: list[bytes] = []
        self._begun_syncs = begun_syncs
        self._on_its_way: StreamBatch | None = None
        self.shards_before = 0
        """Shards that were in use at the last start; 0 if there was none."""
        self.batch_bytes = 0
        """Bytes that wait in the batch under way."""

    # --- start and stop ---------------------------------------------------------------------------

    def open(self) -> None:
        """Recovery: afterwards every shard in use has a generation that grows; the upkeep seals others."""
        self.shards_before = read_layout(self._disk)
        recovery = StoreRecovery(
            self._disk, self._node, self._store, self._options, self.stored_bytes
        )
        found = recovery.recover(self.shards_before, self.log)
        self.problems, self.found_gone = recovery.problems, recovery.found_gone
        self._shards.update(recovery.shards)
        self._in_use = [self._shards[number] for number in range(self._options.shards)]
        missed = [content for one in found.values() for content in one.retained]
        self._retained.open(missed, self._expiry_us())
        # Only now: the next start would not look at what a seal or a snapshot speaks of.
        for number, shard in self._shards.items():
            if number < self._options.shards:
                self._begin(shard, has_snapshot=found[number].has_snapshot)
            elif shard.generations:
                shard.end_newest()
        self._open_deleted()

    def _open_deleted(self) -> None:
        wrong = self.deleted.open()
        if wrong:
            # Its topics are read again: whoever deleted them is to hear of it.
            leave_file(self._disk, "", DELETED)
            text = f"{DELETED}: {wrong}; topics that were deleted are read again until they are deleted anew"
            self.problems.append(StreamProblem("deleted", 0, 0, text))
        self._write_layout(has_deleted=bool(self.deleted))
        for number, shard in enumerate(self._in_use):
            upto = self.deleted.upto(number)
            if shard.end < upto:
                # A power cut took its end: what gets these offsets now would pass for deleted.
                self.skip_to(number, upto + STREAM_SKIP_MARGIN)

    def _write_layout(self, *, has_deleted: bool) -> None:
        shards = self._options.shards
        write_layout(self._disk, self._node, shards, self._owner, has_deleted=has_deleted)

    def _begin(self, shard: ShardLog, *, has_snapshot: bool) -> None:
        newest = shard.newest
        if newest is None or newest.has_ended:
            newest = shard.next_generation(self._now_us(), self._draw)
            shard.create(newest)
            shard.generations.append(newest)
            has_snapshot = False
        if not has_snapshot:
            snapshot = shard.snapshot_of(newest, newest.end, newest.size_bytes)
            shard.write_snapshot(newest, snapshot)

    def skip_to(self, shard: int, offset: int) -> None:
        """After a start: the shard had come further than what is left of it, so it goes on from there.

        An offset that was given once is never given again: whoever is beyond it would take a new message
        for one that is done.
        """
        line = self._shards[shard]
        assert line.end < offset, "a shard never goes back"
        line.skip_to(offset, self._now_us(), self._draw)

    def leap_to(self, shard: int, offset: int) -> None:
        """As `skip_to`, in a folder that was restored: nobody knows how far the one before it came."""
        line = self._shards[shard]
        assert line.end < offset, "a shard never goes back"
        line.leap_to(offset, self._now_us(), self._draw)

    def leave(self) -> None:
        """At an orderly stop, when all is committed: says how far each shard came."""
        for shard in self._in_use:
            shard.leave()
        self.log.end()

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()
        self.log.close()
        self._retained.close()

    # --- topics that go ---------------------------------------------------------------------------

    def reaches_of(self, topic: str) -> list[DeletedUpto]:
        """How far a topic is deleted if all is that it has now. While no commit is under way: what is counted
        is what readers see."""
        reaches = []
        for number, shard in self._shards.items():
            if shard.generations and shard.end > shard.first:
                newest = shard.generations[-1]
                count = newest.topics.get(topic, 0) if newest.summary is None else 0
                reaches.append(DeletedUpto(number, shard.end, newest.number, count))
        return reaches

    def with_deleted(self, topic: str, reaches: list[DeletedUpto]) -> dict[str, list[DeletedUpto]]:
        """What is deleted then, but for what retention took meanwhile."""
        return self.deleted.with_topic(topic, reaches, self._firsts())

    def deleted_size(self, topic: str) -> int:
        """Of the list behind the deletion of a topic that is about to begin, at most."""
        return self.deleted.size_with(topic, self._shards, self._firsts())

    def reserve_deleted(self, size: int) -> ReservedWhole:
        """In a thread. All that the deletion wants of the disk: behind it none fails for want of room."""
        reserved = self.deleted.reserved(size)
        try:
            # Before the list is there: an older program must not pass it over.
            self._write_layout(has_deleted=True)
        except BaseException:
            reserved.drop()
            raise
        return reserved

    def _firsts(self) -> dict[int, int]:
        return {number: shard.first for number, shard in self._shards.items()}

    # --- a message --------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        body: bytes,
        key: bytes | None,
        headers: bytes,
        ttl_s: int,
        flags: int,
        producer: int = 0,
        sequence: int = 0,
        publisher: str = NOBODY,
    ) -> tuple[int, int]:
        """(shard, offset) of the message in the batch under way; -1 for the offset of a duplicate.

        `flags` are RETAIN, QOS0 and TOMBSTONE only. The sizes of key and headers are checked by the caller. A
        duplicate may be of a message that is not durable yet: answer it with the batch under way.
        """
        known = self._topics.get(topic)
        if known is None:
            known = self._learn(topic)
        name, name_bytes, shard, _ = known
        if key is None:
            middle, key_bytes = headers, 0
        else:
            middle, key_bytes = key + headers, len(key)
            flags |= KEYED
            # As `shard_of`, without a call.
            shard = self._in_use[_hash(key) % len(self._in_use)]
        if producer:
            if sequence != UNNUMBERED and shard.producers.is_duplicate(producer, sequence):
                return shard.number, -1
            flags |= PRODUCER
            middle += _producer_part(producer, sequence)
        time_us = self._now_us()
        if time_us < shard.time_us:
            time_us = shard.time_us
        offset = shard.next_offset
        content = (
            _content(offset, time_us, ttl_s, name_bytes, key_bytes, len(headers), flags)
            + name
            + middle
            + body
        )
        # From here on nothing fails.
        if publisher != shard.publisher:
            shard.mark(publisher)
        shard.contents.append(content)
        shard.names.append(topic)
        shard.time_us = time_us
        shard.next_offset = offset + 1
        self.batch_bytes += len(content) + _HEAD_BYTES
        if flags:
            if producer and sequence != UNNUMBERED:
                shard.producers.note(producer, sequence)
            if flags & RETAIN:
                self._retain.append(content)
        return shard.number, offset

    def append_plain(
        self, records: Iterable[PlainRecord], publisher: str = NOBODY
    ) -> tuple[int, int]:
        """Messages with a known topic and a body and nothing else; where the last of them is."""
        now_us, topics, size, count = self._now_us(), self._topics, 0, 0
        shard, offset = self._in_use[0], -1
        for record in records:
            topic = record.topic
            _, _, shard, plain = topics[topic]
            if now_us > shard.time_us:
                shard.time_us = now_us
            if publisher != shard.publisher:
                shard.mark(publisher)
            offset = shard.next_offset
            content = _beginning(offset, shard.time_us) + plain + record.body
            shard.contents.append(content)
            shard.names.append(topic)
            shard.next_offset = offset + 1
            size += len(content)
            count += 1
        self.batch_bytes += size + count * _HEAD_BYTES
        return shard.number, offset

    def append_singles(
        self, records: Iterable[PlainRecord], publisher: str = NOBODY
    ) -> list[tuple[int, int]]:
        """As `append_plain`; where each of them is."""
        now_us, topics, size = self._now_us(), self._topics, 0
        places: list[tuple[int, int]] = []
        found = places.append
        for record in records:
            topic = record.topic
            _, _, shard, plain = topics[topic]
            if now_us > shard.time_us:
                shard.time_us = now_us
            if publisher != shard.publisher:
                shard.mark(publisher)
            offset = shard.next_offset
            content = _beginning(offset, shard.time_us) + plain + record.body
            shard.contents.append(content)
            shard.names.append(topic)
            shard.next_offset = offset + 1
            size += len(content)
            found((shard.number, offset))
        self.batch_bytes += size + len(places) * _HEAD_BYTES
        return places

    def append_unnumbered(
        self,
        messages: Iterable[tuple[str, bytes, int]],
        producer: int,
        publisher: str = NOBODY,
    ) -> None:
        """As `append`, of (topic, body, flags) with a known topic and nothing else, of one producer who does
        not number them."""
        now_us, topics, size, count = self._now_us(), self._topics, 0, 0
        part = _producer_part(producer, UNNUMBERED)
        middles: dict[tuple[str, int], tuple[ShardLog, bytes]] = {}
        for topic, body, flags in messages:
            known = middles.get((topic, flags))
            if known is None:
                name, name_bytes, shard, _ = topics[topic]
                head = _content(0, 0, 0, name_bytes, 0, 0, flags | PRODUCER)
                known = middles[topic, flags] = shard, head[_BEGINNING.size :] + name + part
                if now_us > shard.time_us:
                    shard.time_us = now_us
                if publisher != shard.publisher:
                    shard.mark(publisher)
            shard, middle = known
            offset = shard.next_offset
            content = _beginning(offset, shard.time_us) + middle + body
            shard.contents.append(content)
            shard.names.append(topic)
            shard.next_offset = offset + 1
            size += len(content)
            count += 1
        self.batch_bytes += size + count * _HEAD_BYTES

    def append_packed(
        self, rows: PackedRows, skip: int, producer: int, sequence: int, publisher: str = NOBODY
    ) -> int:
        """Rows that `check` has passed, as one producer's, numbered from `sequence` on; how many are stored.

        The first `skip` are passed over, and duplicates. The flags of rows are trusted.
        """
        order = np.arange(rows.count)
        if rows.shards != len(self._in_use):
            # Packed for another number of shards. Nothing of them is stored yet, unless the layout was lost:
            # then a shard would, under the same name, take a row for one that it has.
            rows, order = rows.sorted_by(len(self._in_use))
            producer = moved_producer(producer, len(self._in_use))
        numbered = NumberedRows(rows, order, producer, sequence)
        stored = numbered.append_to(self._in_use, skip, self._now_us(), publisher)
        self._retain += stored.retain
        self.batch_bytes += stored.size_bytes
        return stored.rows

    @property
    def shards(self) -> int:
        """How many shards take messages."""
        return self._options.shards

    @property
    def shards_in_use(self) -> int:
        """Those that messages go to; of a number before this one there may be more."""
        return len(self._in_use)

    def producer_last(self, producer: int) -> int:
        """The highest sequence of a producer in any shard; -1 if none remembers it."""
        return max(shard.producers.last(producer) for shard in self._shards.values())

    def producer_lasts(self, producer: int) -> dict[int, int]:
        """The last sequence of a producer in each shard that remembers one; also of the batch under way."""
        lasts = {number: shard.producers.last(producer) for number, shard in self._shards.items()}
        return {number: last for number, last in lasts.items() if last >= 0}

    def shard_of_topic(self, topic: str) -> int:
        """Where its messages without a key go."""
        return self._in_use[shard_of(topic.encode(), len(self._in_use))].number

    def check_topic(self, topic: str) -> None:
        """Refuses a topic that `append` would refuse; one that is known costs a look."""
        if topic not in self._topics:
            self._learn(topic)

    def _learn(self, topic: str) -> tuple[bytes, int, ShardLog, bytes]:
        check_topic(topic)
        name = topic.encode()
        shard = self._in_use[shard_of(name, len(self._in_use))]
        # What stands between the time and the body of a message that has nothing else.
        plain = _content(0, 0, 0, len(name), 0, 0, 0)[_BEGINNING.size :] + name
        known = (name, len(name), shard, plain)
        if topic.partition("/")[0] in RESERVED:
            # It stays unknown: who publishes to a known topic is not looked at, and only nodes may to this.
            return known
        self._topics_bytes += len(name)
        if len(self._topics) >= TOPICS_CACHED_MAX or self._topics_bytes > TOPICS_CACHED_BYTES_MAX:
            self._topics.clear()
            self._topics_bytes = len(name)
        self._topics[topic] = known
        return known

    # --- a commit ---------------------------------------------------------------------------------

    def take_batch(self) -> StreamBatch | None:
        """What is to be written now; a fresh batch begins. None if there is nothing."""
        assert self._on_its_way is None, "one batch is on its way at a time"
        now_us, bytes_max = self._now_us(), self._options.generation_bytes_max
        parts = []
        for shard in self._in_use:
            if shard.has_batch:
                part = shard.take(now_us, bytes_max, self._draw)
                if part is not None:
                    parts.append(part)
        if not parts:
            return None
        retained = self._retained.take(self._retain, now_us) if self._retain else None
        batch = StreamBatch(
            parts, retained, sum([part.block.upto - part.block.first for part in parts])
        )
        self._retain, self.batch_bytes = [], 0
        self._on_its_way = batch
        return batch

    def write(self, batch: StreamBatch) -> None:
        """In a thread. After an error nothing may be promised any more: the node ends."""
        is_synced = self._options.sync
        is_logged = self._fits_log(batch)
        if is_logged:
            self.log.write(batch.parts).sync()
        for part in batch.parts:
            part.shard.write(part)
        if is_synced and not is_logged:
            self._sync([part.generation.file for part in batch.parts])
        if batch.retained is not None:
            self._retained.write(batch.retained, is_synced=is_synced)
        # Last: a start relies on what a snapshot covers, the retained messages included.
        for part in batch.parts:
            if part.snapshot is not None:
                part.shard.write_snapshot(part.generation, part.snapshot)

    def begin(self, batch: StreamBatch, done: Callable[[BaseException | None], None]) -> bool:
        """Writes it here and calls back when it is durable, with the error if it is not; False if that is
        for a thread, and nothing is done yet."""
        syncs = self._begun_syncs
        if syncs is None or batch.retained is not None or not self._fits_log(batch):
            return False
        syncs.begin(self.log.write(batch.parts), done)
        # While the disk is at work: nobody is told of it before it is in the log.
        for part in batch.parts:
            part.shard.write(part)
        return True

    def _fits_log(self, batch: StreamBatch) -> bool:
        """Whether one sync makes it durable. What a snapshot or a seal speaks of is synced where it is."""
        if not self._options.sync:
            return False
        size_bytes = 0
        for part in batch.parts:
            if part.ended is not None or part.snapshot is not None:
                return False
            size_bytes += len(part.block.data)
        return size_bytes <= STREAM_LOGGED_BYTES_MAX and self.log.has_room(
            size_bytes, len(batch.parts)
        )

    def _sync(self, files: list[DiskFile | None]) -> None:
        """The file system joins syncs that are asked for together; one behind the other it cannot."""
        others = []
        for file in files[1:]:
            assert file is not None
            if self._syncs is None:
                file.sync()
            else:
                others.append(self._syncs.submit(file.sync))
        if files:
            assert files[0] is not None
            files[0].sync()
        for other in others:
            other.result()

    @property
    def is_synced(self) -> bool:
        """Whether a commit survives a power cut."""
        return self._options.sync

    def is_quick(self, batch: StreamBatch) -> bool:
        """Whether to write it is less work than to hand it to a thread."""
        return not self._options.sync and batch.is_small

    def committed(self, batch: StreamBatch) -> None:
        """Readers see it from now on."""
        assert batch is self._on_its_way, "this batch was not taken, or is committed already"
        self._on_its_way = None
        for part in batch.parts:
            part.shard.committed(part)
        if batch.retained is not None:
            self._retained.committed(batch.retained)

    @property
    def retained_bytes(self) -> int:
        """Of all retained messages, as they are in memory."""
        return self._retained.live_bytes

    @property
    def retained_count(self) -> int:
        return self._retained.count

    def retained(self, filter_text: str) -> Iterator[Entry | None]:
        """The retained messages that match, step by step, with None where a step found none. One without a
        body says that there is none any more."""
        return self._retained.walk(filter_text)
