"""Room: journal/queues. A queue's folder made in one go, from messages that are known: for repair and
import."""

from base64 import urlsafe_b64encode

import xxhash

from moorline.core.queue.journal import QueueState
from moorline.core.queue.queue import Entry, Queue
from moorline.journal.disk import Disk, DiskFile
from moorline.journal.queues.folder import STATE_FILE, message_file
from moorline.journal.queues.record import encode, seed_of
from moorline.limits import MIB

WRITE_BYTES = MIB
"""Records that are collected for one write."""


class FolderBuilder:
    """Writes messages into a new folder, as a checkpoint would leave it, and syncs nothing.

    builder = FolderBuilder(disk, path, queue, file_messages_max)
    builder.add(entry)
    builder.finish()

    The queue's `flushed_lsn` and `can_write` go into its state; `finish` sets what its row needs. A queue
    without messages gets no folder.
    """

    def __init__(
        self, disk: Disk, path: str, queue: Queue, file_messages_max: int, node: str = ""
    ) -> None:
        self._disk = disk
        self._path = path
        self._node = node
        self._queue = queue
        self._seed = seed_of(queue.id)
        self._file_messages_max = file_messages_max
        self._names: list[str] = []
        self._counts: list[int] = []
        self._sizes: list[int] = []
        self._file: DiskFile | None = None
        self._records: list[bytes] = []
        self._waiting_bytes = 0

    def add(self, entry: Entry) -> None:
        # At most two files, as everywhere: the second one takes all the rest.
        if not self._counts or (
            len(self._counts) == 1 and self._counts[0] >= self._file_messages_max
        ):
            self._begin_file(entry)
        record = encode(entry, self._seed)
        self._records.append(record)
        self._waiting_bytes += len(record)
        self._counts[-1] += 1
        if self._waiting_bytes >= WRITE_BYTES:
            self._write()

    def finish(self) -> None:
        self._end_file()
        self._queue.stored = sum(self._counts)
        self._queue.weigh(sum(self._sizes))
        if not self._counts:
            return
        state = QueueState(
            read_file=self._names[0],
            read_msg=0,
            read_byte=0,
            write_file=self._names[-1],
            write_msg=self._counts[-1],
            read_count=self._counts[0],
            read_bytes=self._sizes[0],
            write_byte=self._sizes[-1],
            can_write=self._queue.can_write,
            lsn=self._queue.flushed_lsn,
        )
        assert not state.problem(), state.problem()
        file = self._disk.open(f"{self._path}/{STATE_FILE}", create=True)
        try:
            file.append(state.line(self._seed, self._node).encode())
        finally:
            file.close()

    def abandon(self) -> None:
        """Closes the file; whoever calls this removes the folder."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin_file(self, first: Entry) -> None:
        if self._names:
            self._end_file()
        else:
            assert not self._disk.exists(self._path), "a folder is built where there is none"
            self._disk.make_folders(self._path)
            self._queue.oldest_s = first.time_ms // 1_000
        seed = self._queue.id + first.lsn.to_bytes(8, "big")
        name = urlsafe_b64encode(xxhash.xxh3_128_digest(seed)[:12]).decode("ascii")
        self._file = self._disk.open(f"{self._path}/{message_file(name)}", create=True)
        self._names.append(name)
        self._counts.append(0)
        self._sizes.append(0)

    def _end_file(self) -> None:
        if self._file is not None:
            self._write()
            self._file.close()
            self._file = None

    def _write(self) -> None:
        if self._records:
            assert self._file is not None
            self._file.append(b"".join(self._records))
            self._sizes[-1] += self._waiting_bytes
            self._records.clear()
            self._waiting_bytes = 0
