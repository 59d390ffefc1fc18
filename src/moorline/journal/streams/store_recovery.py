"""Room: journal/streams. What a start of the store finds out before anybody is served, in this order.

1  what the log of small commits has is put into the segments it belongs to   (`log_recovery.py`)
2  each shard's folder is compared with its manifest                          (`inspection.py`)
3  and brought in order                                                       (`shard_recovery.py`)
4  the manifest says from now on what is there; what is gone is told once, and counted for ever
"""

from collections.abc import Iterable

from moorline.journal.disk import Disk
from moorline.journal.streams.batch import StreamOptions
from moorline.journal.streams.dropped import read_dropped
from moorline.journal.streams.inspection import Inspection, StreamProblem, inspect
from moorline.journal.streams.layout import folder_of
from moorline.journal.streams.log_recovery import apply_logs
from moorline.journal.streams.manifest import is_long, write_manifest
from moorline.journal.streams.publishers import StoredBytes
from moorline.journal.streams.shard import ShardLog, listed_of
from moorline.journal.streams.shard_recovery import Found, leave_file, mend_dropped, recover
from moorline.journal.streams.stream_log import FOLDER as LOG
from moorline.journal.streams.stream_log import StreamLog


class StoreRecovery:
    """`recover` is called once; the rest is what it found. `store` is how files name the store of theirs."""

    def __init__(
        self, disk: Disk, node: str, store: bytes, options: StreamOptions, stored_bytes: StoredBytes
    ) -> None:
        self.shards: dict[int, ShardLog] = {}
        self.problems: list[StreamProblem] = []
        """What is not as it was left."""
        self.found_gone: list[tuple[int, int]] = []
        """Ranges before all that is kept that are gone, and that no start before this one found gone."""
        self._disk = disk
        self._node = node
        self._store = store
        self._options = options
        self._stored_bytes = stored_bytes

    def recover(self, shards_before: int, log: StreamLog) -> dict[int, Found]:
        """What the folder of each shard holds, also of shards that are not in use any more."""
        numbers = {int(name) for name in self._disk.list_folder("") if name.isdecimal()}
        # Before anything else is looked at: what it has belongs to the segments.
        self._apply_logs(numbers, log)
        numbers |= set(range(self._options.shards))
        return {number: self._recover_shard(number, shards_before) for number in sorted(numbers)}

    def _apply_logs(self, shards: Iterable[int], log: StreamLog) -> None:
        dropped = {
            number: set(read_dropped(self._disk, folder_of(number), number, self._store).dropped)
            for number in shards
        }
        applied = apply_logs(self._disk, self._store, dropped)
        for path, (shard, generation), text in applied.problems:
            self.problems.append(StreamProblem("log", shard, generation, f"{path} {text}"))
        for path in applied.aside:
            leave_file(self._disk, LOG, path.rpartition("/")[2])
        log.open(applied.number)

    def _recover_shard(self, number: int, shards_before: int) -> Found:
        shard = self.shards[number] = ShardLog(
            self._disk, self._node, number, self._store, self._stored_bytes
        )
        if number < shards_before and not self._disk.exists(shard.folder):
            text = f"the folder of the shard, {shard.folder}, is gone"
            self.problems.append(StreamProblem("missing", number, 0, text))
        self._disk.make_folders(shard.folder)
        self._disk.sync_folder("")
        reading = read_dropped(self._disk, shard.folder, number, self._store)
        shard.dropped = reading.dropped
        inspection = inspect(
            self._disk,
            shard.folder,
            number,
            self._store,
            reading,
            is_synced=self._options.sync,
        )
        if reading.bad_lines:
            mend_dropped(self._disk, shard.folder, self._store, reading)
        found = recover(self._disk, shard.folder, number, shard.dropped, inspection)
        shard.opened(found.generations, found.producers, inspection.reached)
        shard.numbers_upto = inspection.numbers_upto
        if found.generations and shard.end < inspection.reached:
            shard.end_at(inspection.reached)
        self._know(shard, inspection)
        return found

    def _know(self, shard: ShardLog, found: Inspection) -> None:
        gone = shard.gone = [*found.manifest.lost, *found.gone]
        shard.lost_before += sum(upto - first for first, upto in gone)
        self.problems += found.problems
        self.found_gone += found.gone
        listed = found.manifest.listed
        kept = [listed_of(one, listed.get(one.number)) for one in shard.generations]
        is_as_listed = found.manifest.is_there and listed.keys() - shard.dropped.keys() == {
            one.generation for one in kept
        }
        if found.problems or not is_as_listed or is_long(found.manifest):
            write_manifest(self._disk, shard.folder, self._store, kept, gone)
