"""Room: journal/queues. Bringing a queue's folder in order after a crash, or whatever else happened to it.

    1  the last state line counts, if it is whole, the index agrees and the files are just as long as it says
    2  else all records are read, and a line counts that they bear out and that says what the index says
    3  else the state is made anew: of the records up to the index row's lsn the last so many wait as the row
       counts, since a queue is read in order; they are gathered in a new file
    4  without an index row every record waits that nothing shows to be acknowledged; some may come twice
    5  where a record that may wait cannot be read, the folder is `Damaged`

What is shorter than it should be is noted, and what is behind: the files win over the state. A record whose
check is right goes only if it is certain that it was acknowledged, is in the log still, or was copied; any
other is set aside as `messages.<name>.aside-<time>`, beside the files.
"""

from collections.abc import Sequence, Set

import msgspec

from moorline.core.queue.journal import NODE_CHARACTERS, QueueState
from moorline.core.queue.queue import Entry, Queue
from moorline.journal.queues.folder import (
    STATE_FILE,
    Damaged,
    Foreign,
    QueueFolder,
    damage_of,
    is_backup,
    message_file,
)
from moorline.journal.queues.folder_changes import FolderChanges
from moorline.journal.queues.folder_scan import (
    Record,
    Scan,
    StateLines,
    read_states,
    scanned,
)
from moorline.journal.queues.record import HEADER_BYTES, id_in

OLDER = "the files are older than the index"
"""How a note begins on files of an earlier time."""


class Known(msgspec.Struct, frozen=True):
    """What is known of a queue without its folder: from its row in the index, and from the log."""

    count: int | None
    """Messages in the files at `upto_lsn`; None if there is no row to be trusted."""
    upto_lsn: int
    logged: Set[int] = frozenset()
    """Ids of messages that the log still has."""
    acknowledged: int = 0
    """The highest id that the log shows to be acknowledged."""
    settled: int = 0
    """The highest id that was acknowledged when the row was written: none up to it waits in the files."""
    acknowledgements: int = 0
    """How many of the `count` have been acknowledged since, by the log."""


class Found(msgspec.Struct, frozen=True):
    """What a folder holds, now that it is in order."""

    state: QueueState | None
    lines: int
    notes: list[str]
    lsn: int = 0
    """The highest number that was seen in it."""
    doubled: int = 0
    """Messages that may have been acknowledged and will come again."""
    aside: int = 0
    """Records set aside."""
    missing: int = 0
    """Without an index row: messages that the last state counts and no file holds."""


def known_of(queue: Queue) -> Known:
    """What the row and the log say of a queue."""
    consumed = len(queue.consumed or ())
    logged = {entry.lsn for entry in queue.pending or ()}
    logged |= {sent for sent, _ in queue.popped or ()}
    return Known(
        queue.stored + consumed,
        queue.flushed_lsn,
        logged,
        queue.acknowledged_lsn,
        queue.settled_lsn,
        consumed,
    )


def bring_in_order(
    folder: QueueFolder, queue: Queue, stamp: str, spare: list[Entry]
) -> tuple[Found, int]:
    """Brings a queue's folder in order and the queue with it; also how many messages are lost.

    A negative number of lost messages is how many more the files hold than were counted. `stamp` names
    what is kept: 14 digits of milliseconds. `spare` are messages of the files that the log has too; those
    of the log that turn out to be in the files are added to it.
    """
    found = recovered(folder, known_of(queue), stamp, spare)
    state = found.state
    done = done_bytes = 0
    if state is not None:
        spare += [entry for entry in queue.pending or () if entry.lsn <= state.lsn]
    if state is not None and queue.acknowledged_lsn:
        for entry, record_size in folder.entries(state, 0):
            if entry.lsn > queue.acknowledged_lsn:
                break
            done += 1
            done_bytes += record_size
    if state is None:
        return found, queue.resolve(0, 0, 0, 0)
    return found, queue.resolve(state.lsn, state.size, state.waiting_bytes - done_bytes, done)


def recovered(folder: QueueFolder, known: Known, stamp: str, spare: Sequence[Entry] = ()) -> Found:
    """Brings a folder in order."""
    try:
        return _found(folder, known, stamp, spare)
    except OSError as error:
        raise damage_of(error) from error


def _found(folder: QueueFolder, known: Known, stamp: str, spare: Sequence[Entry]) -> Found:
    try:
        names = folder.disk.list_folder(folder.path)
    except FileNotFoundError:
        if known.count and _is_named(folder):
            raise Damaged("the folder is a link that leads nowhere") from None
        if not spare or not known.count:
            return Found(None, 0, [])
        folder.disk.make_folders(folder.path)
        names = []
    return _Recovery(folder, names, known, stamp, spare).run()


def _is_named(folder: QueueFolder) -> bool:
    """Whether the folder above has the name, whatever is behind it."""
    above, _, name = folder.path.rpartition("/")
    return folder.disk.exists(above) and name in folder.disk.list_folder(above)


class _Recovery(FolderChanges):
    """One look at one folder, and what follows from it."""

    def __init__(
        self,
        folder: QueueFolder,
        names: list[str],
        known: Known,
        stamp: str,
        spare: Sequence[Entry],
    ) -> None:
        super().__init__(folder, names, known.logged, stamp)
        self._spare = spare
        self._known = known
        self._doubled = 0
        self._missing = 0

    def run(self) -> Found:
        self.remove_half_written()
        lines = StateLines(b"", [], [], is_ended=True)
        if STATE_FILE in self.names:
            lines = read_states(self.folder)
            other, node = lines.foreign_to(self.folder.node), self.folder.node[:NODE_CHARACTERS]
            if other:
                raise Foreign(
                    f"the folder was written by the node {other}…, and this one is {node}…"
                )
        states = [state for state in lines.states if state is not None]
        is_whole = bool(lines.states) and lines.states[-1] is not None
        if is_whole and lines.is_ended and self._is_in_order(states[-1]):
            return Found(states[-1], len(lines.states), [], states[-1].lsn)
        if not lines.text and not self.message_files and not self._known.count:
            if STATE_FILE in self.names:
                self._note_lines(lines)
                self.keep_and_remove_state(lines)
            return self._result(None, 0, 0)
        self._note_lines(lines)
        scan = scanned(self.folder, self.message_files)
        chosen = self._borne_out(states, scan, is_last_whole=is_whole)
        if chosen is not None:
            count = self.put_back(chosen, lines, is_whole and chosen == states[-1])
            self.cut(chosen, scan)
        else:
            self.bring_back(self._spare, scan)
            chosen, count = self._made_anew(lines, states, scan, is_last_whole=is_whole)
        if any(name not in _files_of(chosen) for name in self.message_files):
            self.dispose(chosen, scan, self._known.upto_lsn, [*states, *self._earlier_states()])
        highest = [state.lsn for state in states] + [one.lsn for one in scan.all_records()]
        return self._result(chosen, count, max(highest, default=0))

    def _result(self, state: QueueState | None, lines: int, lsn: int) -> Found:
        return Found(state, lines, self.notes, lsn, self._doubled, self.aside, self._missing)

    def _is_in_order(self, state: QueueState) -> bool:
        """As a checkpoint leaves it; nothing more is looked at."""
        known = self._known
        if self._spare:
            return False  # the log is about to be dropped: what it has is compared with the files
        if known.count is not None and (state.lsn > known.upto_lsn or state.size != known.count):
            return False
        wanted = {state.read_file: state.read_bytes, state.write_file: state.write_byte}
        if set(self.message_files) != set(wanted) or not all(
            self.folder.file(message_file(name)).size() == size for name, size in wanted.items()
        ):
            return False
        # Files of an earlier time may be as many and as long; the first message tells them apart.
        return not (known.settled and state.size) or self._first_id(state) > known.settled

    def _first_id(self, state: QueueState) -> int:
        """The id of the first message that waits by this state, as it stands there."""
        file = self.folder.file(message_file(state.read_file))
        return id_in(file.read_at(state.read_byte, HEADER_BYTES))

    def _note_lines(self, lines: StateLines) -> None:
        if STATE_FILE not in self.names:
            if self.message_files:
                self.notes.append(f"{STATE_FILE} is missing")
            return
        for problem in lines.problems:
            self.notes.append(f"a state in {STATE_FILE} cannot be: {problem}")
        if not lines.problems and (not lines.states or lines.states[-1] is None):
            self.notes.append(f"the last line of {STATE_FILE} is torn or missing")
        elif not lines.is_ended:
            self.notes.append(f"the last line of {STATE_FILE} has lost its newline")

    # --- a state that is there --------------------------------------------------------------------

    def _borne_out(
        self, states: list[QueueState], scan: Scan, *, is_last_whole: bool
    ) -> QueueState | None:
        """The newest state that the records bear out, if it accounts for all that the index does."""
        known, records = self._known, scan.all_records()
        for state in reversed(states):
            if known.count is None:
                beyond = [one for one in records if self.is_only_here(one, state.lsn)]
                if beyond or not scan.bears_out(state) or self._is_older(state, scan):
                    return None
                if not is_last_whole:
                    self._doubled = state.size
                return state
            if state.lsn <= known.upto_lsn:
                # Behind the row: it counts if nothing has changed between the two.
                since = any(state.lsn < one.lsn <= known.upto_lsn for one in records)
                if state.size != known.count or since or not scan.bears_out(state):
                    return None
                return None if self._is_older(state, scan) else state
            if scan.bears_out(state):
                return state
            # A power cut kept the line but not the records it counts; the log still has those.
            self.notes.append(f"a line of {STATE_FILE} ran ahead of its files")
        return None

    def _is_older(self, state: QueueState, scan: Scan) -> bool:
        """Whether something waits by this state that was acknowledged when the row was written."""
        return state.size > 0 and 0 < scan.first_id(state) <= self._known.settled

    # --- a state made anew ------------------------------------------------------------------------

    def _made_anew(
        self, lines: StateLines, states: list[QueueState], scan: Scan, *, is_last_whole: bool
    ) -> tuple[QueueState | None, int]:
        """The state that the records and the index make, put on disk; and how many lines it has."""
        waiting, lsn, done = self._waiting(states, scan)
        known = self._known
        if known.count is None:
            self._doubled = len(waiting)
            last = states[-1] if is_last_whole else None
            if last is not None and not known.logged and not self._is_older(last, scan):
                self._missing = max(0, last.size - len(waiting))
            lost = self._missing
        else:
            lost = known.count - known.acknowledgements - len(waiting)
        if is_last_whole and self._is_older(states[-1], scan):
            self.notes.append(f"{OLDER}: an earlier copy was put back, or the last states are gone")
        # A write that a crash cut short is of changes that the log still has.
        is_torn_write = bool(known.logged) and not lost
        first: Record | None
        if known.count is not None and waiting and not lost:
            first = waiting[0]  # all are there: what is bad before them was acknowledged
        else:
            first = max((one for one in scan.all_records() if one.lsn <= done), default=None)
        is_bad = scan.is_bad_behind(first, tails_too=not is_torn_write)
        if is_bad and (lost or not self._is_all_there(waiting, states, scan, is_last_whole)):
            raise Damaged(self._why_bad(scan))
        if lost:
            self.notes.append(f"message files are missing: {lost} messages are lost")
        state = None
        if waiting:
            state = self.gathered(waiting, lsn)
            self.notes.append(f"the state is made anew from the records: {len(waiting)} wait")
        self.keep_state(lines)
        if state is not None:
            self.folder.write_state(state)
        elif STATE_FILE in self.names:
            self.folder.remove(STATE_FILE)
        return state, 0 if state is None else 1

    def _is_all_there(
        self, waiting: list[Record], states: list[QueueState], scan: Scan, is_last_whole: bool
    ) -> bool:
        """Whether a state says where the waiting begin, and from there on so many are there as there
        should be: then what is bad is no message that is needed."""
        known = self._known
        if known.count is None or not is_last_whole:
            return False
        last = states[-1]
        if last.lsn <= known.upto_lsn and last.size != known.count:
            return False
        done = max(scan.acknowledged_by(last), known.acknowledged, known.settled)
        since = [one for one in scan.all_records() if done < one.lsn <= known.upto_lsn]
        return len(since) == len(waiting)

    def _waiting(self, states: list[QueueState], scan: Scan) -> tuple[list[Record], int, int]:
        """The records that wait, the lsn up to which they account for everything, and the highest id
        that was acknowledged for certain."""
        known, records = self._known, scan.all_records()
        done = max([0, *map(scan.acknowledged_by, [*states, *self._earlier_states()])])
        done = max(done, known.acknowledged, known.settled)
        if known.count is None:
            upto = max([one.lsn for one in records if self.is_only_here(one, 0)], default=0)
            return [one for one in records if done < one.lsn <= upto], upto, done
        found = [one for one in records if done < one.lsn <= known.upto_lsn]
        count = known.count - known.acknowledgements
        return found[max(0, len(found) - count) :], known.upto_lsn, done

    def _earlier_states(self) -> list[QueueState]:
        """Those in copies of `queue.log`: each was true when it was written."""
        copies = [read_states(self.folder, name) for name in self.names if is_backup(name)]
        return [state for lines in copies for state in lines.states if state is not None]

    def _why_bad(self, scan: Scan) -> str:
        name, bad_parts = next((name, bad) for name, bad in scan.bad.items() if bad)
        start, end = bad_parts[0]
        return f"{message_file(name)} at byte {start}: {end - start} bytes are no record"


def _files_of(state: QueueState | None) -> set[str]:
    return {state.read_file, state.write_file} if state else set()
