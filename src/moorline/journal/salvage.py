"""Room: journal. What can still be read of damaged files: records, a state, a log with a gap.

Everything here prefers a message twice to a message lost.
"""

import contextlib
import re
from collections.abc import Iterator

import msgspec

from moorline.core.queue import Entry
from moorline.core.queue_journal import parse_line
from moorline.errors import LogDamaged
from moorline.journal.disk import Disk
from moorline.journal.files import PENDING_ASIDE
from moorline.journal.folder import STATE_FILE, damage_of, message_file
from moorline.journal.index import Index, IndexDamaged
from moorline.journal.overlay import OverlayDisk
from moorline.journal.record import HEADER_BYTES, DamagedRecord, decode
from moorline.journal.store import INDEX, INDEX_NEXT, Store
from moorline.journal.wal import Change, Kind, WriteAheadLog

WAL = "wal"

# A record begins with eight bytes of check; its length is below 16 MiB and its kind is 0 or 1.
_MAYBE_RECORD = re.compile(rb"(?=.{8}\x00.{3}[\x00\x01])", re.DOTALL)


class CarefulStore(Store):
    """A store whose log may have lost changes in its middle.

    An acknowledgement behind a gap may be that of a message that was lost in it, and would take another
    one along. So from the first gap on one counts only if its message is known to be there.
    """

    in_doubt = False
    _last = 0

    def open_carefully(self, *, in_doubt: bool) -> None:
        self.in_doubt = in_doubt
        self.open()

    def _replay(self, change: Change) -> None:
        # The log begins where the index ends, or before, and leaves nothing out.
        expected = self._last + 1 if self._last else min(change.lsn, self.next_lsn)
        self.in_doubt = self.in_doubt or change.lsn != expected
        self._last = change.lsn
        next_lsn = max(self.next_lsn, change.lsn + 1)
        if self.in_doubt and change.kind in (Kind.ACKNOWLEDGE, Kind.EXPIRE):
            self.replayed += 1
            if change.kind == Kind.ACKNOWLEDGE:
                self._acknowledge_known(change)
        else:
            super()._replay(change)
        # An index may know of changes that the log has lost: their numbers are not given again.
        self.next_lsn = next_lsn

    def _acknowledge_known(self, change: Change) -> None:
        queue = self.find(change.queue)
        if queue is None or change.lsn <= queue.flushed_lsn or queue.damaged:
            return
        if not any(entry.lsn == change.number for entry in queue.pending or ()):
            return
        if queue.popped is None:
            queue.popped = []
        # First in, first out: whatever stood before it is gone too.
        while queue.stored or (queue.pending and queue.pending[0].lsn <= change.number):
            queue.pop(change.lsn)
        self.dirty[queue.id] = queue


class Cut(msgspec.Struct, frozen=True):
    """A log file that was cut, and where; torn is the end that a crash leaves, without a loss."""

    file: str
    offset: int
    lost_bytes: int
    is_torn_end: bool


def cut_log(disk: Disk, keep_in: str) -> list[Cut]:
    """Cuts the log where it is damaged; what was cut off damaged files is kept in that folder."""
    disk.make_folders(WAL)
    names = [f"{WAL}/{name}" for name in disk.list_folder(WAL) if name.endswith(".wal")]
    before = {name: _size(disk, name) for name in names}
    copy = OverlayDisk(disk)
    is_damaged = False
    try:
        _drain(WriteAheadLog(copy, WAL, sync=False).replay())
    except LogDamaged:
        is_damaged = True
        copy = OverlayDisk(disk)
        _drain(WriteAheadLog(copy, WAL, sync=False).replay(repair=True))
    cuts = [
        Cut(name, size, before[name] - size, not is_damaged)
        for name in names
        if (size := _size(copy, name)) < before[name]
    ]
    for cut in cuts if is_damaged else []:
        disk.make_folders(keep_in)
        tail = read_all(disk, cut.file)[cut.offset :]
        disk.write_whole(f"{keep_in}/{cut.file.rpartition('/')[2]}-from-{cut.offset}", tail)
    if cuts:
        _drain(WriteAheadLog(disk, WAL, sync=True).replay(repair=True))
    return cuts


def lost_index(disk: Disk) -> str:
    """Why there is no index to be trusted; empty if there is one, or never was a store here."""
    for name in (INDEX, INDEX_NEXT):
        try:
            Index.load(disk, name)
            return ""
        except FileNotFoundError:
            continue
        except IndexDamaged as error:
            return str(error)
    is_new = not disk.list_folder(WAL) if disk.exists(WAL) else True
    has_messages = disk.exists("messages") and bool(disk.list_folder("messages"))
    return "the index is missing" if has_messages or not is_new else ""


def records_in(data: bytes) -> Iterator[tuple[int, Entry]]:
    """Every record whose check is right, with its offset, whatever stands between them."""
    start = 0
    while start < len(data):
        entry = _record_at(data, start)
        if entry is None:
            found = _next_record(data, start + 1)
            if found is None:
                return
            start, entry = found
        yield start, entry
        start += HEADER_BYTES + len(entry.body)


def entries_in(disk: Disk, folder: str) -> dict[int, Entry]:
    """The messages in a damaged queue's files, by id: all that were not acknowledged for certain."""
    entries: dict[int, Entry] = {}
    done = 0
    read_file, read_byte = _read_position(disk, folder)
    for name in disk.list_folder(folder):
        path = f"{folder}/{name}"
        if disk.is_folder(path):
            entries.update(entries_in(disk, path))
        elif name == PENDING_ASIDE or (name.startswith("messages.") and name.endswith(".log")):
            for offset, entry in records_in(_read_if_file(disk, path)):
                if name == read_file and offset < read_byte:
                    done = max(done, entry.lsn)
                else:
                    entries[entry.lsn] = entry
    # A queue is read in the order of ids: what is below one that was acknowledged was so too.
    return {lsn: entry for lsn, entry in entries.items() if lsn > done}


def read_all(disk: Disk, path: str) -> bytes:
    file = disk.open(path, create=False)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def _read_if_file(disk: Disk, path: str) -> bytes:
    """What a file holds; nothing, where something else stands in its place."""
    try:
        return read_all(disk, path)
    except PermissionError:
        raise  # it may be whole, and whoever runs this can be given the right to read it
    except OSError as error:
        damage_of(error)
        return b""


def _read_position(disk: Disk, folder: str) -> tuple[str, int]:
    """Up to where the last whole state had read; a state that cannot be says nothing."""
    path = f"{folder}/{STATE_FILE}"
    if not disk.exists(path):
        return "", 0
    lines = _read_if_file(disk, path).decode("utf-8", "replace").splitlines(keepends=True)
    states = [state for line in lines if (state := parse_line(line)) is not None]
    if not states or states[-1].problem():
        return "", 0
    return message_file(states[-1].read_file), states[-1].read_byte


def _record_at(data: bytes, start: int) -> Entry | None:
    with contextlib.suppress(DamagedRecord):
        return decode(data, start, start)
    return None


def _next_record(data: bytes, start: int) -> tuple[int, Entry] | None:
    for match in _MAYBE_RECORD.finditer(data, start):
        entry = _record_at(data, match.start())
        if entry is not None:
            return match.start(), entry
    return None


def _size(disk: Disk, path: str) -> int:
    file = disk.open(path, create=False)
    try:
        return file.size()
    finally:
        file.close()


def _drain(changes: Iterator[Change]) -> None:
    for _ in changes:
        pass
