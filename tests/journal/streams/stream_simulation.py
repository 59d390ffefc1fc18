"""A seeded simulation of the streams on a disk that crashes: shared by the tests.

The model is a list of messages for each shard. A crash may come at any operation of the disk. Afterwards a
shard must hold what was committed, and perhaps a beginning of its part of the batch that was on its way.
"""

import random
from typing import NamedTuple

import xxhash
from tests.journal.streams.lives import drop_expired

from moorline.core.frames.block import Block
from moorline.core.frames.frame import (
    HEAD,
    KEYED,
    PRODUCER,
    QOS0,
    RETAIN,
    Stored,
    all_stored,
    frame_of,
)
from moorline.journal.begun_syncs import Done
from moorline.journal.disk import DiskFile
from moorline.journal.streams.publishers import StoredBytes
from moorline.journal.streams.store import StreamOptions, StreamStore, moved_producer
from moorline.testing import Crashed, MemoryDisk
from moorline.testing.memory_disk import Lose
from moorline.wire.packed_rows import packed, unpacked
from moorline.wire.topic import Record

TOPICS = ["a", "a/b", "orders/eu", "orders/us", "x/" + "y" * 40]
PRODUCERS = 3
PACKER = 77
"""The producer of packed rows."""


class ModelShard(NamedTuple):
    """A shard as it should be: what is committed, what is under way, and the last sequences."""

    stored: list[Stored]
    batch: list[Stored]
    producers: dict[int, int]


class LaterSyncs:
    """Syncs that are begun, and done when the simulation says so: a crash may come before."""

    def __init__(self) -> None:
        self._begun: list[tuple[DiskFile, Done]] = []

    def begin(self, file: DiskFile, done: Done) -> None:
        self._begun.append((file, done))

    def finish(self) -> None:
        begun, self._begun = self._begun, []
        for file, done in begun:
            file.sync()
            done(None)


class StreamSimulation:
    """One life of a store after another."""

    def __init__(self, seed: int, *, sync: bool = True, power: bool = True) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.now_us = 1_700_000_000_000_000
        self.disk = MemoryDisk()
        self.sync = sync
        self.lose: list[Lose] = ["all", "some", "none"] if power else ["none"]
        self.may_lose_committed = power and not sync
        self.shards: dict[int, ModelShard] = {}
        self.retained: dict[str, Stored] = {}
        self.sequences = dict.fromkeys(range(1, PRODUCERS + 1), 0)
        self.packed = 0
        self.crashes = self.dropped = self.duplicates = 0
        self.syncs = LaterSyncs()
        self.logged = 0
        self.store = self._opened()
        self._make_lines()

    def run(self, steps: int) -> None:
        for step in range(steps):
            if self.chance.random() < 0.06 and self.disk.crash_at is None:
                self.disk.crash_at = self.disk.steps + self.chance.randrange(30)
            try:
                self._step()
            except Crashed:
                self._recover()
            except AssertionError as error:
                raise AssertionError(f"seed {self.seed}, step {step}: {error}") from error
        self.disk.crash_at = None
        self._commit()
        self._check_all()
        self.store.close()
        assert self.sync or not self.logged
        assert self.disk.open_handles == 0

    # --- one step ---------------------------------------------------------------------------------

    def _step(self) -> None:
        self.now_us += self.chance.choice([0, 1, 1_000, 3_000_000, -500])
        roll = self.chance.random()
        if roll < 0.50:
            self._append()
        elif roll < 0.55:
            self._append_packed()
        elif roll < 0.80:
            self._commit()
        elif roll < 0.85:
            self.store.upkeep.roll(self.now_us)
        elif roll < 0.92:
            self._seal()
        elif roll < 0.95:
            self._drop()
        elif roll < 0.96:
            self._restart()
        elif roll < 0.98:
            self.store.log.work(may_prepare=True)
        else:
            self._read_some()

    def _append(self) -> None:
        topic, chance = self.chance.choice(TOPICS), self.chance
        key = chance.choice([None, None, b"", b"k1", b"key two"])
        flags = chance.choice([0, 0, RETAIN, QOS0, RETAIN | QOS0])
        headers = chance.choice([b"", b"\x91\x92\xa1a\xc4\x01b"])
        body = chance.randbytes(chance.choice([0, 1, 30, 300]))
        producer = chance.choice([0, 0, *self.sequences])
        sequence = 0
        if producer:
            # Some are tried again, from far back or just now.
            sequence = max(0, self.sequences[producer] - chance.choice([-1, -1, -1, 0, 1, 4]))
            self.sequences[producer] = max(sequence, self.sequences[producer])
        ttl_s = chance.choice([0, 60])
        shard, offset = self.store.append(
            topic, body, key, headers, ttl_s, flags, producer, sequence, publisher=topic
        )
        model = self.shards[shard]
        if producer and sequence <= model.producers.get(producer, -1):
            assert offset == -1, "a message was stored twice"
            self.duplicates += 1
            return
        expected = model.stored[-1].offset + 1 if model.stored else self.store.end(shard)
        assert offset == expected + len(model.batch), f"offset {offset} of shard {shard}"
        if producer:
            flags |= PRODUCER
            model.producers[producer] = sequence
        if key is not None:
            flags |= KEYED
        model.batch.append(
            Stored(offset, 0, ttl_s, flags, topic, key, headers, producer, sequence, body)
        )

    def _append_packed(self) -> None:
        """Rows of a staged write, some of them tried again, sorted by as many shards or by more."""
        chance, producer = self.chance, PACKER
        records = [
            Record(
                chance.choice(TOPICS),
                chance.randbytes(chance.choice([0, 1, 30, 300])),
                chance.choice([None, b"", b"k1", b"key two"]),
                chance.choice([None, [("a", b"b")]]),
                chance.choice([0, 60]),
                chance.choice([0, 0, RETAIN]),
            )
            for _ in range(chance.randrange(1, 40))
        ]
        shards = self.store.shards + chance.choice([0, 0, 3])
        rows = unpacked(packed(records, shards).encoded())
        rows.check()
        stored_as = (
            producer if shards == self.store.shards else moved_producer(producer, self.store.shards)
        )
        sequence = max(0, self.packed - chance.choice([0, 0, 0, 1, 10, 50]))
        self.packed = max(self.packed, sequence + rows.count)
        skip = chance.choice([0, 0, 0, min(3, rows.count)])
        stored = self.store.append_packed(rows, skip, producer, sequence, "packer")
        for place, one in enumerate(all_stored(bytes(rows.frames))):
            route = one.topic.encode() if one.key is None else one.key
            shard = xxhash.xxh3_64_intdigest(route) % self.store.shards
            model = self.shards[shard]
            number = sequence + place
            if place < skip or number <= model.producers.get(stored_as, -1):
                self.duplicates += place >= skip
                continue
            stored -= 1
            model.producers[stored_as] = number
            offset = model.stored[-1].offset + 1 if model.stored else self.store.end(shard)
            model.batch.append(
                one._replace(offset=offset + len(model.batch), producer=stored_as, sequence=number)
            )
        assert stored == 0, "as many were stored as are new"

    def _commit(self) -> None:
        before = {shard: self.store.end(shard) for shard in self.shards}
        told: list[BaseException | None] = []
        batch = self.store.take_batch()
        if batch is None:
            assert not any(model.batch for model in self.shards.values())
            return
        if self.chance.random() < 0.5 and self.store.begin(batch, told.append):
            assert told == [], "nothing is durable yet"
            self.syncs.finish()
            assert told == [None]
            self.logged += 1
        else:
            self.store.write(batch)
        assert before == {shard: self.store.end(shard) for shard in self.shards}, "seen too early"
        self.store.committed(batch)
        for shard, model in self.shards.items():
            if model.batch:
                assert shard in [part.shard.number for part in batch.parts]
                self._read_new(shard)

    def _read_new(self, shard: int) -> None:
        """What was just committed is there as it was given; from now on its time is known too."""
        model = self.shards[shard]
        found = self._read(shard, model.batch[0].offset)
        assert [one._replace(time_us=0) for one in found] == model.batch
        self._learn(shard, found)

    def _learn(self, shard: int, found: list[Stored]) -> None:
        model = self.shards[shard]
        for one in found:
            last_us = model.stored[-1].time_us if model.stored else 0
            assert one.time_us >= last_us, "time went back"
            model.stored.append(one)
            known = self.retained.get(one.topic)
            if one.flags & RETAIN and (known is None or _age(known) < _age(one)):
                self.retained[one.topic] = one
        model.batch.clear()

    def _seal(self) -> None:
        for shard, generation in self.store.upkeep.unsealed()[:1]:
            work = self.store.upkeep.seal(shard, generation)
            if self.chance.random() < 0.3:
                return
            seal = work()
            if self.chance.random() < 0.5:
                self._commit()
            self.store.upkeep.sealed(shard, generation, seal)

    def _drop(self) -> None:
        for gone in drop_expired(self.store, self.now_us):
            model = self.shards[gone.shard]
            assert gone.count == gone.upto - gone.first
            # A shard that is out of use may have ended with an empty one.
            assert not gone.count or model.stored[0].offset == gone.first
            del model.stored[: gone.count]
            self.dropped += 1

    def _restart(self) -> None:
        """A stop in order, as a node does it."""
        self._commit()
        self.store.leave()
        self.store.close()
        self.store = self._opened()
        self._make_lines()
        for shard, model in self.shards.items():
            # Of a shard that was given up as a whole nothing is remembered.
            model.producers.clear()
            model.producers.update(self._sequences_of(shard))

    def _read_some(self) -> None:
        shard = self.chance.choice(sorted(self.shards))
        model = self.shards[shard]
        assert self.store.first(shard) == (
            model.stored[0].offset if model.stored else self.store.end(shard)
        )
        if not model.stored:
            return
        if self.chance.random() < 0.5:
            # As if the readers were slower than the cache.
            self.store._shards[shard].tail.clear()
        place = self.chance.randrange(len(model.stored))
        wanted = model.stored[place]
        assert self._read(shard, wanted.offset) == model.stored[place:]
        at = self.store.offset_at(shard, wanted.time_us)
        assert at == next(one.offset for one in model.stored if one.time_us >= wanted.time_us)

    # --- reading it all ---------------------------------------------------------------------------

    def _read(self, shard: int, offset: int) -> list[Stored]:
        found: list[Stored] = []
        number = self.store.generation_of(shard, offset)
        bytes_max = self.chance.choice([1, 200, 1_000, 100_000])
        while True:
            block = self.store.read(shard, number, offset, bytes_max)
            if block is None:
                extent = self.store.extent(shard, number)
                # A shard that is out of use may be given up as a whole.
                assert offset == (extent.end if extent else self.store.end(shard))
                if (
                    extent is None
                    or not extent.sealed
                    or self.store.extent(shard, number + 1) is None
                ):
                    return found
                number += 1
                continue
            assert isinstance(block, Block), f"{block} in shard {shard}"
            messages = list(all_stored(block.data))
            assert [one.offset for one in messages] == list(range(offset, block.upto))
            assert [block.names[number] for number in block.topics] == [
                one.topic for one in messages
            ]
            found += messages
            offset = block.upto

    def _check_all(self) -> None:
        assert self.store.lost_messages == 0
        for shard, model in self.shards.items():
            first = self.store.first(shard)
            assert self._read(shard, first) == model.stored, f"shard {shard}"
        if not self.may_lose_committed:
            self._check_retained()

        self._check_stored_bytes()

    def _check_stored_bytes(self) -> None:
        """The sums of all publishers are those of the generations, and of none more than it holds."""
        summed = StoredBytes()
        for shard in self.store._shards.values():
            for generation in shard.generations:
                summed.add(generation.publishers)
                counted = sum(generation.publishers.values())
                assert counted <= generation.size_bytes, f"{generation.path}: {counted} bytes"
        assert self.store.stored_bytes == summed, "bytes of publishers"

    def _check_retained(self) -> None:
        found = {}
        for entry in self.store.retained("#"):
            if entry is not None:
                found[entry.topic] = next(iter(all_stored(entry.frame)))
        assert found == self.retained, "retained messages"

    # --- crashes ----------------------------------------------------------------------------------

    def _opened(self) -> StreamStore:
        options = StreamOptions(
            sync=self.sync,
            shards=self.chance.choice([2, 2, 2, 1, 3]),
            generation_bytes_max=self.chance.choice([300, 2_000, 100_000]),
            generation_s=5,
            retention_s=self.chance.choice([0, 20]),
            retention_bytes=self.chance.choice([0, 5_000]),
        )
        self.syncs = LaterSyncs()
        store = StreamStore(
            self.disk,
            "n1",
            options,
            lambda: self.now_us,
            self.chance.randbytes,
            begun_syncs=self.syncs,
        )
        store.open()
        # Whatever a crash left: nothing is missed that is not missing.
        assert not store.problems, store.problems
        assert not store.upkeep.look_at_files()
        return store

    def _make_lines(self) -> None:
        for extent in self.store.extents():
            self.shards.setdefault(extent.stream.shard_number, ModelShard([], [], {}))

    def _recover(self) -> None:
        while True:
            self.crashes += 1
            self.disk.crash(self.chance, self.chance.choice(self.lose))
            if self.chance.random() < 0.3:
                self.disk.crash_at = self.disk.steps + self.chance.randrange(40)
            try:
                self.store = self._opened()
                self.disk.crash_at = None
                break
            except Crashed:
                continue
        self._make_lines()
        try:
            for shard in self.shards:
                self._take_what_is_there(shard)
            self._check_all()
        except AssertionError as error:
            raise AssertionError(f"seed {self.seed}, crash {self.crashes}: {error}") from error

    def _take_what_is_there(self, shard: int) -> None:
        model, first = self.shards[shard], self.store.first(shard)
        if model.stored and first > model.stored[0].offset:
            # A drop that the crash interrupted: it was noted, so it is done.
            del model.stored[: first - model.stored[0].offset]
        assert not model.stored or first == model.stored[0].offset, "what was given up is back"
        found = self._read(shard, first)
        if self.may_lose_committed and len(found) < len(model.stored):
            del model.stored[len(found) :]
        assert found[: len(model.stored)] == model.stored, f"committed messages of shard {shard}"
        more = found[len(model.stored) :]
        assert [one._replace(time_us=0) for one in more] == model.batch[: len(more)]
        self._learn(shard, more)
        model.producers.clear()
        model.producers.update(self._sequences_of(shard))

    def _sequences_of(self, shard: int) -> dict[int, int]:
        """What the store remembers must be what it has stored; what was dropped may be in it too."""
        remembered = self.store._shards[shard].producers.stored
        for one in self.shards[shard].stored:
            if one.flags & PRODUCER:
                assert remembered.get(one.producer, -1) >= one.sequence, "a producer is forgotten"
        return dict(remembered)


def _age(one: Stored) -> tuple[int, int, bytes]:
    """What decides which of two retained messages of a topic counts."""
    return one.time_us, one.offset, frame_of(one, 0)[HEAD.size :]
