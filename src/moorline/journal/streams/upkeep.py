"""Room: journal/streams. The upkeep of a node's streams: what is too old begins anew, what has ended is
sealed, and what retention gives up is dropped.
"""

from collections.abc import Callable, Mapping

import msgspec

from moorline.journal.disk import Disk
from moorline.journal.streams.batch import StreamOptions
from moorline.journal.streams.drop import StreamDrop
from moorline.journal.streams.dropped import AGE, BYTES
from moorline.journal.streams.generation import SEGMENT, Generation
from moorline.journal.streams.inspection import StreamProblem
from moorline.journal.streams.roll import is_too_old
from moorline.journal.streams.seal import Seal
from moorline.journal.streams.sealing import make_seal, summary_of
from moorline.journal.streams.shard import ShardLog
from moorline.journal.streams.shard_recovery import producers_before
from moorline.journal.streams.stream_log import StreamLog
from moorline.limits import FAR_FUTURE_US


class ShardUpkeep:
    """Works on the shards of a store, on the loop; what `seal` returns and what a drop does on the disk are
    for a thread."""

    def __init__(
        self,
        disk: Disk,
        options: StreamOptions,
        shards: Mapping[int, ShardLog],
        log: StreamLog | None = None,
    ) -> None:
        self._log = log
        self._disk = disk
        self._options = options
        self._shards = shards

    def keep(self, retention_s: int, retention_bytes: int) -> None:
        """From the next look on; what is dropped by then does not come back."""
        self._options = msgspec.structs.replace(
            self._options, retention_s=retention_s, retention_bytes=retention_bytes
        )

    def roll(self, now_us: int) -> list[int]:
        """The shards whose newest generation is too old: the next batch begins new ones."""
        found = self._too_old(now_us)
        for shard in found:
            shard.wants_roll = True
        return [shard.number for shard in found]

    def _too_old(self, now_us: int) -> list[ShardLog]:
        age_s = self._options.generation_s
        return [
            shard
            for shard in self._shards.values()
            if self._is_in_use(shard)
            and not shard.wants_roll
            and is_too_old(shard.generations[-1], now_us, age_s)
        ]

    def _is_in_use(self, shard: ShardLog) -> bool:
        """Shards beyond the number that is set now are read, and not written any more."""
        return shard.number < self._options.shards

    # --- files that vanish ------------------------------------------------------------------------

    def look_at_files(self) -> list[StreamProblem]:
        """In a thread, from time to time: files of ours that vanished while we run, each told once."""
        found = []
        for shard in self._shards.values():
            # Made before the names are read: what is begun meanwhile is not missed.
            known = [one for one in shard.generations if not one.is_gone]
            names = self._names(shard.folder)
            for generation in known:
                name = f"{generation.number:08}{SEGMENT}"
                if name in names or generation not in shard.generations:
                    continue
                count = generation.vanished()
                if generation is shard.newest and self._is_in_use(shard):
                    # What comes now goes to a file that has a name.
                    shard.wants_roll = True
                text = f"{shard.folder}/{name} vanished while the node runs"
                found.append(StreamProblem("missing", shard.number, generation.number, text, count))
        path = self._log.look() if self._log is not None else ""
        if path:
            text = f"{path} vanished while the node runs: what it had is synced in the segments"
            found.append(StreamProblem("log", 0, 0, text))
        return found

    def _names(self, folder: str) -> set[str]:
        try:
            return set(self._disk.list_folder(folder))
        except FileNotFoundError:
            return set()

    # --- seals ------------------------------------------------------------------------------------

    def unsealed(self) -> list[tuple[int, int]]:
        """(shard, generation) of those that grow no more and have no seal; of a shard the oldest first."""
        return [
            (shard.number, generation.number)
            for shard in self._shards.values()
            for generation in shard.generations
            if generation.has_ended and generation.summary is None and not generation.is_gone
        ]

    def seal(self, shard: int, generation: int) -> Callable[[], Seal]:
        """The work of sealing, for a thread; give its result to `sealed`. One of a shard at a time."""
        line = self._shards[shard]
        found = line.find(generation)
        assert found is not None
        assert found.has_ended
        before = [one for one in line.generations if one.number <= generation]
        assert all(one.summary is not None for one in before[:-1]), "the older one first"
        return lambda: make_seal(self._disk, found, producers_before(self._disk, before))

    def sealed(self, shard: int, generation: int, seal: Seal) -> None:
        found = self._shards[shard].find(generation)
        assert found is not None
        if found.is_gone:
            return
        found.summary = summary_of(found, seal)
        found.know_times(seal.first_time_us, seal.last_time_us)
        # From now on the files say it.
        found.index, found.topics = None, {}

    # --- retention --------------------------------------------------------------------------------

    def next_drop(self, now_us: int) -> StreamDrop | None:
        """Retention: the sealed generation that goes first, by age or by the bytes of all, if any does."""
        found = self._next_expired(now_us)
        return StreamDrop(self._disk, *found) if found is not None else None

    def _next_expired(self, now_us: int) -> tuple[ShardLog, Generation, str] | None:
        # Never the newest of a shard that is written; one that is out of use may go as a whole.
        oldest = [
            (shard, shard.generations[0])
            for shard in self._shards.values()
            if len(shard.generations) > self._is_in_use(shard)
            and shard.generations[0].summary is not None
        ]
        if not oldest:
            return None
        shard, generation = min(oldest, key=lambda one: _last_time_us(*one))
        before_us = now_us - self._options.retention_s * 1_000_000
        if self._options.retention_s and _last_time_us(shard, generation) < before_us:
            return shard, generation, AGE
        if self._options.retention_bytes and self.kept_bytes() > self._options.retention_bytes:
            return shard, generation, BYTES
        return None

    def kept_bytes(self) -> int:
        """Of all segments."""
        return sum(one.size_bytes for shard in self._shards.values() for one in shard.generations)


def _last_time_us(shard: ShardLog, generation: Generation) -> int:
    """Of the last message; of a generation that cannot be read, when the next one begins."""
    if generation.is_readable:
        return generation.last_time_us
    following = [one.first_time_us for one in shard.generations if one.number > generation.number]
    return following[0] if following else FAR_FUTURE_US
