"""Room: journal/streams. Retention gives up one generation, in three steps.

    drop.note()           in a thread: `dropped.log` says so, synced
    drop.take_effect()    on the loop: nobody finds the generation any more
    drop.remove()         in a thread: its files go

First the note, then the files: a start finishes what it finds noted.
"""

from moorline.journal.disk import Disk
from moorline.journal.streams.dropped import Dropped, log_dropped
from moorline.journal.streams.generation import Generation
from moorline.journal.streams.shard import ShardLog


class StreamDrop:
    """Of the oldest generation of a shard; one at a time."""

    def __init__(self, disk: Disk, shard: ShardLog, generation: Generation, reason: str) -> None:
        assert generation is shard.generations[0]
        assert generation.summary is not None
        self._disk = disk
        self._shard = shard
        self._generation = generation
        self.gone = Dropped(
            shard.number,
            generation.number,
            generation.first,
            generation.end,
            generation.summary.count,
            generation.size_bytes,
            reason,
            generation.head.seed,
        )

    def note(self) -> None:
        log_dropped(self._disk, self._shard.folder, self._shard.store, self.gone)

    def take_effect(self) -> None:
        shard, generation = self._shard, self._generation
        assert generation is shard.generations[0]
        shard.lost_before += generation.lost
        shard.stored_bytes.give_back(generation.publishers)
        shard.dropped[generation.number] = self.gone
        shard.generations = shard.generations[1:]

    def remove(self) -> None:
        self._generation.remove()
