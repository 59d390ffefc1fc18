"""Stores of streams one after another on the same disk: a start after a start."""

from moorline.core.frames.block import Block
from moorline.core.frames.frame import Stored, all_stored
from moorline.journal.disk import Disk
from moorline.journal.streams.dropped import Dropped
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.testing import HandClock, MemoryDisk

BYTES_MAX = 1 << 20


class Lives:
    """One store after another on the same disk, under one clock."""

    def __init__(self, disk: Disk, options: StreamOptions | None = None) -> None:
        self.disk = disk
        self.clock = HandClock()
        self.options = options or StreamOptions(shards=2)
        self.store = self._opened()

    def now_us(self) -> int:
        return self.clock.wall_ms() * 1_000

    def _opened(self) -> StreamStore:
        store = StreamStore(self.disk, "n1", self.options, self.now_us)
        store.open()
        return store

    def restart(self, options: StreamOptions | None = None) -> StreamStore:
        self.store.close()
        assert self.disk.open_handles == 0
        self.options = options or self.options
        self.store = self._opened()
        return self.store

    def put(self, topic: str, body: bytes = b"x", **more: int) -> tuple[int, int]:
        more = {"ttl_s": 0, "flags": 0} | more
        ttl_s, flags = more.pop("ttl_s"), more.pop("flags")
        producer, sequence = more.pop("producer", 0), more.pop("sequence", 0)
        assert not more, f"not of a message: {more}"
        return self.store.append(topic, body, None, b"", ttl_s, flags, producer, sequence)

    def commit(self) -> list[int]:
        batch = self.store.take_batch()
        assert batch is not None
        self.store.write(batch)
        self.store.committed(batch)
        return [part.shard.number for part in batch.parts]

    def seal(self) -> None:
        for shard, generation in self.store.upkeep.unsealed():
            self.store.upkeep.sealed(shard, generation, self.store.upkeep.seal(shard, generation)())

    def messages(self, shard: int, offset: int | None = None) -> list[Stored]:
        """All from there on; that nothing is missing is checked."""
        offset = self.store.first(shard) if offset is None else offset
        found: list[Stored] = []
        number = self.store.generation_of(shard, offset)
        while True:
            block = self.store.read(shard, number, offset, BYTES_MAX)
            if block is None:
                if self.store.extent(shard, number + 1) is None:
                    return found
                number += 1
                continue
            assert isinstance(block, Block)
            found += all_stored(block.data)
            offset = block.upto


def drop_expired(store: StreamStore, now_us: int) -> list[Dropped]:
    """What retention takes now, one after the other."""
    dropped = []
    while (drop := store.upkeep.next_drop(now_us)) is not None:
        drop.note()
        drop.take_effect()
        drop.remove()
        dropped.append(drop.gone)
    return dropped


def one_shard(**more: int) -> Lives:
    return Lives(MemoryDisk(), StreamOptions(shards=1, **more))  # type: ignore[arg-type]
