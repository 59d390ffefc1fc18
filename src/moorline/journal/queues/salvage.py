"""Room: journal/queues. What can still be read of damaged files: records, a state, a log with a gap.

Everything here prefers a message twice to a message lost.
"""

import msgspec

from moorline.core.queue.journal import QueueState
from moorline.core.queue.queue import Entry
from moorline.journal.disk import Disk
from moorline.journal.queues.files import PENDING_ASIDE
from moorline.journal.queues.folder import STATE_FILE, damage_of, is_backup
from moorline.journal.queues.folder_scan import LOG, MESSAGES, Scan, parse_states, records_in
from moorline.journal.queues.index import Index, newest_index
from moorline.journal.queues.log_losses import Loss, losses
from moorline.journal.queues.log_replay import LogReplay
from moorline.journal.queues.store import LOG as WAL
from moorline.journal.queues.store import Store
from moorline.journal.queues.wal import Change, WriteAheadLog


class CarefulStore(Store):
    """A store whose log may have lost changes in its middle."""

    def open_carefully(self, *, in_doubt: bool) -> list[range]:
        """The numbers of changes that the log lacks between others, and the index too."""
        replay = self.replay = CarefulReplay(self)
        replay.revives = in_doubt
        self.open()
        return replay.gaps


class CarefulReplay(LogReplay):
    """What stands behind a gap counts all the same: a message has its id, and an acknowledgement names the
    message up to which all is done with, so it can take no other one along. A message for a queue whose
    beginning was lost in the gap makes the queue anew, and it is nobody's.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.gaps: list[range] = []
        self._last = 0

    def take(self, change: Change) -> None:
        store = self._store
        # The log begins where the index ends, or before, and leaves nothing out.
        expected = self._last + 1 if self._last else min(change.lsn, store.next_lsn)
        self.revives = self.revives or change.lsn != expected
        self._last = change.lsn
        # What the index has is not lost with the log.
        missing = range(max(expected, store.index.lsn), change.lsn)
        if missing:
            self.gaps.append(missing)
        # An index may know of changes that the log has lost: their numbers are not given again.
        store.next_lsn = max(store.next_lsn, change.lsn)
        super().take(change)


NOTHING = Loss(0, 0)


class Cut(msgspec.Struct, frozen=True):
    """A stretch taken out of a log file; torn is the end that a crash leaves, without a loss."""

    file: str
    offset: int
    lost_bytes: int
    is_torn_end: bool
    loss: Loss


def mend_log(disk: Disk, keep_in: str) -> list[Cut]:
    """Takes what is bad out of the log; the damaged files are kept as they were in that folder."""
    disk.make_folders(WAL)
    cuts: list[Cut] = []
    surveys = WriteAheadLog(disk, WAL, sync=True).survey()
    index = newest_index(disk) if any(survey.bad for survey in surveys) else None
    lost = losses(surveys, index.lsn if isinstance(index, Index) else 0)
    for survey in surveys:
        if not survey.bad:
            continue
        cuts += [
            Cut(survey.path, at, end - at, survey.is_torn_end, lost.get((survey.path, at), NOTHING))
            for at, end in survey.bad
        ]
        data = read_all(disk, survey.path)
        if not survey.is_torn_end:
            disk.make_folders(keep_in)
            disk.write_whole(f"{keep_in}/{survey.path.rpartition('/')[2]}", data)
            # Or a power cut could keep the new log, and not the folder with the old one.
            disk.sync_all()
        whole = [data[start:end] for start, end in survey.whole]
        disk.write_whole(survey.path, b"".join([survey.head, *whole]))
    return cuts


def lost_index(disk: Disk) -> str:
    """Why there is no index to be trusted; empty if there is one, or never was a store here."""
    found = newest_index(disk)
    if found is not None:
        return "" if isinstance(found, Index) else str(found)
    is_new = not disk.list_folder(WAL) if disk.exists(WAL) else True
    has_messages = disk.exists("messages") and bool(disk.list_folder("messages"))
    return "the index is missing" if has_messages or not is_new else ""


class Salvaged(msgspec.Struct):
    """What is in a damaged queue's files: messages by their ids, and up to which they were acknowledged."""

    entries: dict[int, Entry]
    acknowledged: int = 0
    unread: list[float] = []
    """Where something stands that is no record: between the ids before and behind it."""
    last: QueueState | None = None
    """The last state, if its line is whole."""
    strange: int = 0
    """Records in message files that may be of another queue."""

    def waiting(self, count: int, upto_lsn: int) -> list[Entry]:
        """Those that are not acknowledged for certain; up to that lsn they are the last so many."""
        ids = sorted(lsn for lsn in self.entries if lsn > self.acknowledged)
        counted = [lsn for lsn in ids if lsn <= upto_lsn]
        skip = max(0, len(counted) - count)
        return [self.entries[lsn] for lsn in ids[skip:]]

    def lost(self, count: int, upto_lsn: int) -> int:
        """How many of the last so many messages up to that lsn cannot be read, as far as it can be told."""
        readable = [lsn for lsn in self.entries if self.acknowledged < lsn <= upto_lsn]
        if len(readable) <= count:
            return count - len(readable)
        # Acknowledged ones are among them, and may stand in for some that cannot be read.
        unread = [place for place in self.unread if self.acknowledged < place <= upto_lsn]
        last = sorted([*readable, *unread])[len(readable) + len(unread) - count :]
        return sum(place not in self.entries for place in last)


def entries_in(disk: Disk, folder: str, seed: int, node: str = "") -> Salvaged:
    """Every record of a queue in a folder and those below it, and what its states say of them.

    Not the message files beside a state that another node than that has written.
    """
    found = Salvaged({})
    state_path = f"{folder}/{STATE_FILE}"
    is_foreign = disk.exists(state_path) and bool(
        parse_states(_read_if_file(disk, state_path), seed).foreign_to(node)
    )
    scan = Scan(seed)
    states: list[QueueState] = []
    for name in disk.list_folder(folder):
        path = f"{folder}/{name}"
        if disk.is_folder(path):
            below = entries_in(disk, path, seed, node)
            found.entries.update(below.entries)
            found.unread += below.unread
            found.strange += below.strange
            found.last = _newer(found.last, below.last)
            found.acknowledged = max(found.acknowledged, below.acknowledged)
        elif name == PENDING_ASIDE or (name.startswith(MESSAGES) and not is_foreign):
            data = _read_if_file(disk, path)
            found.entries.update({entry.lsn: entry for _, entry in records_in(data, seed)})
            is_message_file = name.endswith(LOG) and name != PENDING_ASIDE
            of_scan = scan if is_message_file else Scan(seed)
            file = name.removeprefix(MESSAGES).removesuffix(LOG)
            of_scan.take_in(file, data)
            found.strange += of_scan.strange_records(file)
        elif name == STATE_FILE or is_backup(name):
            read = parse_states(_read_if_file(disk, path), seed)
            lines = [] if read.foreign_to(node) else read.states
            states += [state for state in lines if state is not None]
            if name == STATE_FILE and lines:
                found.last = _newer(found.last, lines[-1])
    # A queue is read in the order of ids: what is below one that was acknowledged was so too.
    found.acknowledged = max([found.acknowledged, *map(scan.acknowledged_by, states)])
    found.unread += scan.places_of_bad()
    return found


def _newer(one: QueueState | None, other: QueueState | None) -> QueueState | None:
    return max((one, other), key=lambda state: state.lsn if state else -1)


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
