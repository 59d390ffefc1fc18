"""Room: journal/queues. The index of all queues: one row each, sorted, in one file that is read at the start.

    file   magic    8 bytes  "MOORIDX3"
           check    u64      XXH3-64 over everything behind it
           lsn      u64      the next change's number when this was written
           owners   u32      bytes of the table of owners, a msgpack list of fingerprints
           rows     u64      how many rows
           table, then rows

    row    id 24 bytes · owner u32 · flags u8 · lsn u64 · size u32 · oldest u32 (s) · created u32 (s)
           settled u64 · bytes u64

Numbers of the head are big-endian, those of the rows little-endian, as numpy reads them fastest.
Rows are sorted by the first eight bytes of the id, so that a look-up is a binary search over eight
bytes a queue; a million queues take 73 MB in memory and load in a tenth of a second. A row says what
the queue's *files* hold: the log says what has changed since `lsn`. No message up
to the id `settled` waits in the files: with it they are known from files of an earlier time. Rows of
"MOORIDX2", the version before, have no `bytes`: they count as none until the queue's files are used.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from moorline.core.queue.queue import Queue
from moorline.errors import FolderUnusable
from moorline.ids import ID_BYTES
from moorline.journal.disk import TEMPORARY_SUFFIX, Disk, parent

INDEX = "index"
INDEX_BEFORE = "index.before"
"""The index of the checkpoint before, for a rebuild."""

INDEX_NEXT = "index.next"
"""A whole index about to become the one; a crash between two renames leaves only this."""

MAGIC = b"MOORIDX3"
WITHOUT_BYTES_MAGIC = b"MOORIDX2"
EARLIER_MAGIC = b"MOORIDX1"
HEAD = struct.Struct(">8sQ")
REST = struct.Struct(">QIQ")

_FIELDS: list[tuple[str, str]] = [
    ("id", f"V{ID_BYTES}"),
    ("owner", "<u4"),
    ("flags", "u1"),
    ("lsn", "<u8"),
    ("size", "<u4"),
    ("oldest_s", "<u4"),
    ("created_s", "<u4"),
    ("settled_lsn", "<u8"),
]
ROW_WITHOUT_BYTES = np.dtype(_FIELDS)
ROW = np.dtype([*_FIELDS, ("bytes", "<u8")])

BLOCKED, SUSPENDED, DAMAGED, FULL, CLOSED = 1, 2, 4, 8, 16


class IndexDamaged(Exception):
    """The file is not an index, or not a whole one."""


class Index:
    """The rows, in memory as on disk. Replaced whole by `folded`, never changed in place."""

    def __init__(self, rows: npt.NDArray[Any], owners: Sequence[bytes], lsn: int) -> None:
        self.rows = rows
        self.owners = list(owners)
        self.lsn = lsn
        self._prefixes = _prefixes(rows)

    def __len__(self) -> int:
        return len(self.rows)

    @staticmethod
    def empty() -> "Index":
        return Index(np.empty(0, ROW), [b""], 1)

    def find(self, queue_id: bytes) -> Queue | None:
        """The queue of that id as its row describes it."""
        place = self._place(queue_id)
        return None if place < 0 else queue_of(self.rows[place])

    def __contains__(self, queue_id: bytes) -> bool:
        return self._place(queue_id) >= 0

    def owned(self) -> Iterator[tuple[int, int, int]]:
        """(number of an owner, its queues, the bytes that wait in them), of all that have any."""
        if not len(self.rows):
            return
        numbers = self.rows["owner"].astype(np.int64)
        queues = np.bincount(numbers)
        # Not by weights: those are floats, which lose bytes above 2**53.
        sizes = np.zeros(len(queues), np.uint64)
        np.add.at(sizes, numbers, self.rows["bytes"])
        for number in np.flatnonzero(queues):
            yield int(number), int(queues[number]), int(sizes[number])

    def expirable(self, before_s: int) -> list[bytes]:
        """Ids of the queues whose files hold something older than that."""
        rows = self.rows
        old = (rows["size"] > 0) & (rows["oldest_s"] < before_s) & (rows["flags"] & DAMAGED == 0)
        return [row.tobytes() for row in rows["id"][old]]

    def with_messages(self, queue_ids: list[bytes]) -> list[bytes]:
        """Those of the ids that may hold something in their files; some too many, never too few."""
        if not queue_ids or not len(self.rows):
            return []
        ids = np.frombuffer(b"".join(queue_ids), np.uint8).reshape(-1, ID_BYTES)
        wanted = np.ascontiguousarray(ids[:, :8]).view(">u8").reshape(-1).astype(np.uint64)
        places = np.minimum(np.searchsorted(self._prefixes, wanted), len(self.rows) - 1)
        maybe = (self._prefixes[places] == wanted) & (self.rows["size"][places] > 0)
        return [queue_ids[place] for place in np.flatnonzero(maybe)]

    def lacking(self, queue_ids: list[bytes]) -> list[bytes]:
        """Those of the ids that no row begins like: they are not here."""
        if not queue_ids or not len(self.rows):
            return queue_ids
        ids = np.frombuffer(b"".join(queue_ids), np.uint8).reshape(-1, ID_BYTES)
        wanted = np.ascontiguousarray(ids[:, :8]).view(">u8").reshape(-1).astype(np.uint64)
        places = np.minimum(np.searchsorted(self._prefixes, wanted), len(self.rows) - 1)
        return [queue_ids[place] for place in np.flatnonzero(self._prefixes[places] != wanted)]

    def page(self, after: bytes, count: int) -> list[bytes]:
        """The ids behind that one, in the order of the index."""
        start = int(np.searchsorted(self._prefixes, _prefix(after), "left")) if after else 0
        found: list[bytes] = []
        while start < len(self.rows) and len(found) < count:
            queue_id = self.rows["id"][start].tobytes()
            if queue_id > after:
                found.append(queue_id)
            start += 1
        return found

    def folded(
        self, changed: Iterable[Queue], deleted: Iterable[bytes], owners: Sequence[bytes], lsn: int
    ) -> "Index":
        return self.with_rows(rows_of(list(changed)), deleted, owners, lsn)

    def with_rows(
        self, fresh: npt.NDArray[Any], deleted: Iterable[bytes], owners: Sequence[bytes], lsn: int
    ) -> "Index":
        """A new index with these rows in place of their old ones, and without those deleted."""
        keep = np.ones(len(self.rows), bool)
        keep[self._places(fresh)] = False
        gone = _rows_with(deleted)
        keep[self._places(gone)] = False
        fresh = _without(fresh, gone)
        # Not np.concatenate: it may change the byte order, and these bytes are the file's.
        kept = int(keep.sum())
        rows = np.empty(kept + len(fresh), ROW)
        rows[:kept] = self.rows[keep]
        rows[kept:] = fresh
        return Index(_sorted(rows), owners, lsn)

    def _places(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Where those of these rows stand that are here already."""
        if not len(self.rows) or not len(rows):
            return np.empty(0, np.int64)
        wanted = _prefixes(rows)
        places = np.minimum(np.searchsorted(self._prefixes, wanted), len(self.rows) - 1)
        is_here = self._prefixes[places] == wanted
        # Mostly the first row that begins alike is the one. All at once: a loop over 100,000 takes a while.
        is_same = is_here & (_words(self.rows)[places] == _words(rows)).all(axis=1)
        others = np.flatnonzero(is_here & ~is_same)
        found = [self._place(rows["id"][place].tobytes()) for place in others]
        rest = [place for place in found if place >= 0]
        return np.concatenate([places[is_same], np.array(rest, np.int64)])

    def _place(self, queue_id: bytes) -> int:
        key = _prefix(queue_id)
        place = int(np.searchsorted(self._prefixes, key))
        while place < len(self.rows) and int(self._prefixes[place]) == int(key):
            if self.rows["id"][place].tobytes() == queue_id:
                return place
            place += 1
        return -1

    # --- the file ---------------------------------------------------------------------------------

    def save(self, disk: Disk, path: str) -> None:
        """Replaces the file; a crash leaves the old one or the new one."""
        table = msgspec.msgpack.encode(self.owners)
        rest = REST.pack(self.lsn, len(table), len(self.rows)) + table
        body = self.rows.view(np.uint8).data if len(self.rows) else memoryview(b"")
        checker = xxhash.xxh3_64(rest)
        checker.update(body)
        fresh = path + TEMPORARY_SUFFIX
        if disk.exists(fresh):
            disk.remove(fresh)
        file = disk.open(fresh, create=True)
        try:
            file.append(HEAD.pack(MAGIC, checker.intdigest()) + rest)
            file.append(body)
            file.sync()
        finally:
            file.close()
        disk.rename(fresh, path)
        disk.sync_folder(parent(path))

    @staticmethod
    def load(disk: Disk, path: str) -> "Index":
        """`FileNotFoundError` if there is none, `IndexDamaged` if it cannot be trusted."""
        file = disk.open(path, create=False)
        try:
            data = file.read_at(0, file.size())
        finally:
            file.close()
        if len(data) < HEAD.size + REST.size:
            raise IndexDamaged(f"{path} is too short")
        magic, check = HEAD.unpack_from(data)
        if magic == EARLIER_MAGIC:
            # Not damage: to rebuild it would set every queue aside, whose records have other checks.
            raise FolderUnusable(
                f"{path} and the queues are of an earlier version of Moorline: export them with that "
                "version, and import the file here"
            )
        if magic not in (MAGIC, WITHOUT_BYTES_MAGIC) or check != xxhash.xxh3_64_intdigest(
            memoryview(data)[HEAD.size :]
        ):
            raise IndexDamaged(f"the check of {path} is wrong")
        lsn, table_bytes, count = REST.unpack_from(data, HEAD.size)
        start = HEAD.size + REST.size
        owners = msgspec.msgpack.decode(data[start : start + table_bytes], type=list[bytes])
        form = ROW if magic == MAGIC else ROW_WITHOUT_BYTES
        rows = np.frombuffer(data, form, count, start + table_bytes)
        return Index(rows if magic == MAGIC else _with_bytes(rows), owners, lsn)


def newest_index(disk: Disk) -> Index | IndexDamaged | None:
    """The one that counts, or why it does not; None if there is none."""
    for name in (INDEX, INDEX_NEXT):
        try:
            return Index.load(disk, name)
        except FileNotFoundError:
            continue
        except IndexDamaged as error:
            return error
    return None


def queue_of(row: Any) -> Queue:
    queue = Queue(row["id"].tobytes(), int(row["owner"]), int(row["created_s"]))
    flags = int(row["flags"])
    queue.blocked = bool(flags & BLOCKED)
    queue.suspended = bool(flags & SUSPENDED)
    queue.damaged = bool(flags & DAMAGED)
    queue.can_write = not flags & FULL
    queue.closed = bool(flags & CLOSED)
    queue.flushed_lsn = queue.touched_lsn = int(row["lsn"])
    queue.stored = int(row["size"])
    queue.bytes = int(row["bytes"])
    queue.oldest_s = int(row["oldest_s"])
    queue.settled_lsn = int(row["settled_lsn"])
    return queue


def rows_of(queues: list[Queue]) -> npt.NDArray[Any]:
    rows = np.empty(len(queues), ROW)
    if queues:
        ids = b"".join(queue.id for queue in queues)
        rows["id"] = np.frombuffer(ids, f"V{ID_BYTES}")
        rows["owner"] = [queue.owner for queue in queues]
        rows["flags"] = [_flags(queue) for queue in queues]
        rows["lsn"] = [queue.flushed_lsn for queue in queues]
        # What the files hold: messages acknowledged since the flush are still in them.
        rows["size"] = [queue.stored + len(queue.consumed or ()) for queue in queues]
        rows["oldest_s"] = [queue.oldest_s for queue in queues]
        rows["created_s"] = [queue.created_s for queue in queues]
        rows["settled_lsn"] = [queue.settled_lsn for queue in queues]
        rows["bytes"] = [queue.bytes for queue in queues]
    return rows


def _with_bytes(old: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Rows of the version before."""
    rows = np.zeros(len(old), ROW)
    for name in ROW_WITHOUT_BYTES.names or ():
        rows[name] = old[name]
    return rows


def _flags(queue: Queue) -> int:
    return (
        BLOCKED * queue.blocked
        + SUSPENDED * queue.suspended
        + DAMAGED * queue.damaged
        + FULL * (not queue.can_write)
        + CLOSED * queue.closed
    )


def _prefix(queue_id: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(queue_id[:8], "big"))


def _prefixes(rows: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """The first eight bytes of every id as native numbers, which a binary search wants."""
    if not len(rows):
        return np.empty(0, np.uint64)
    ids = np.ascontiguousarray(rows["id"]).view(np.uint8).reshape(len(rows), ID_BYTES)
    return np.ascontiguousarray(ids[:, :8]).view(">u8").reshape(-1).astype(np.uint64)


def _words(rows: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """The ids as rows of numbers, to be compared at once."""
    return np.ascontiguousarray(rows["id"]).view(np.uint64).reshape(len(rows), -1)


def _rows_with(ids: Iterable[bytes]) -> npt.NDArray[Any]:
    """Rows that have these ids, and nothing else."""
    wanted = list(ids)
    rows = np.zeros(len(wanted), ROW)
    if wanted:
        rows["id"] = np.frombuffer(b"".join(wanted), f"V{ID_BYTES}")
    return rows


def _without(rows: npt.NDArray[Any], gone: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The rows but for those that are gone."""
    if not len(rows) or not len(gone):
        return rows
    maybe = np.flatnonzero(np.isin(_prefixes(rows), _prefixes(gone)))
    ids = {one.tobytes() for one in gone["id"]}
    keep = np.ones(len(rows), bool)
    keep[[place for place in maybe if rows["id"][place].tobytes() in ids]] = False
    return rows[keep]


def _sorted(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not len(rows):
        return rows
    ids = np.ascontiguousarray(rows["id"]).view(">u8").reshape(len(rows), -1)
    return rows[np.lexsort(ids.T[::-1])]
