"""Room: journal. Bringing a queue's folder in order after a crash, or whatever else happened to it.

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

from moorline.core.queue import QUOTA_MARKER, Entry, Queue
from moorline.core.queue_journal import QueueState
from moorline.journal.disk import TEMPORARY_SUFFIX
from moorline.journal.folder import (
    STATE_FILE,
    Damaged,
    QueueFolder,
    damage_of,
    is_backup,
    message_file,
)
from moorline.journal.folder_scan import (
    Record,
    Scan,
    StateLines,
    message_names,
    read_states,
    scanned,
)
from moorline.journal.record import encode

ASIDE = ".aside-"
"""In the name of a file with records that nothing accounts for; whoever has read it may remove it."""

COPY_BYTES = 1 << 20


class Known(msgspec.Struct, frozen=True):
    """What is known of a queue without its folder: from its row in the index, and from the log."""

    count: int | None
    """Messages in the files at `upto_lsn`; None if there is no row to be trusted."""
    upto_lsn: int
    logged: Set[int] = frozenset()
    """Ids of messages that the log still has."""
    acknowledged: int = 0
    """The highest id that the log shows to be acknowledged."""
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
        queue.stored + consumed, queue.flushed_lsn, logged, queue.acknowledged_lsn, consumed
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
    done = 0
    if state is not None:
        spare += [entry for entry in queue.pending or () if entry.lsn <= state.lsn]
    if state is not None and queue.acknowledged_lsn:
        for entry, _ in folder.entries(state, 0):
            if entry.lsn > queue.acknowledged_lsn:
                break
            done += 1
    return found, queue.resolve(state.lsn if state else 0, state.size if state else 0, done)


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


class _Recovery:
    """One look at one folder, which had these names at its beginning."""

    def __init__(
        self,
        folder: QueueFolder,
        names: list[str],
        known: Known,
        stamp: str,
        spare: Sequence[Entry],
    ) -> None:
        self._spare = spare
        self._folder = folder
        self._names = names
        self._message_files = message_names(names)
        self._known = known
        self._stamp = stamp
        self._notes: list[str] = []
        self._aside = 0
        self._doubled = 0
        self._missing = 0

    def run(self) -> Found:
        self._remove_half_written()
        lines = StateLines(b"", [], [], is_ended=True)
        if STATE_FILE in self._names:
            lines = read_states(self._folder)
        states = [state for state in lines.states if state is not None]
        is_whole = bool(lines.states) and lines.states[-1] is not None
        if is_whole and lines.is_ended and self._is_in_order(states[-1]):
            return Found(states[-1], len(lines.states), [], states[-1].lsn)
        if not lines.text and not self._message_files and not self._known.count:
            if STATE_FILE in self._names:
                self._note_lines(lines)
                self._keep_and_remove_state(lines)
            return self._result(None, 0, 0)
        self._note_lines(lines)
        scan = scanned(self._folder, self._message_files)
        chosen = self._borne_out(states, scan, is_last_whole=is_whole)
        if chosen is not None:
            count = self._put_back(chosen, lines, is_whole and chosen == states[-1])
            self._cut(chosen, scan)
        else:
            self._bring_back(scan)
            chosen, count = self._made_anew(lines, states, scan, is_last_whole=is_whole)
        self._dispose(chosen, scan, self._message_files)
        highest = [state.lsn for state in states] + [one.lsn for one in scan.all_records()]
        return self._result(chosen, count, max(highest, default=0))

    def _result(self, state: QueueState | None, lines: int, lsn: int) -> Found:
        return Found(state, lines, self._notes, lsn, self._doubled, self._aside, self._missing)

    def _is_in_order(self, state: QueueState) -> bool:
        """As a checkpoint leaves it; nothing more is looked at."""
        known = self._known
        if self._spare:
            return False  # the log is about to be dropped: what it has is compared with the files
        if known.count is not None and (state.lsn > known.upto_lsn or state.size != known.count):
            return False
        wanted = {state.read_file: state.read_bytes, state.write_file: state.write_byte}
        return set(self._message_files) == set(wanted) and all(
            self._folder.file(message_file(name)).size() == size for name, size in wanted.items()
        )

    def _note_lines(self, lines: StateLines) -> None:
        if STATE_FILE not in self._names:
            if self._message_files:
                self._notes.append(f"{STATE_FILE} is missing")
            return
        for problem in lines.problems:
            self._notes.append(f"a state in {STATE_FILE} cannot be: {problem}")
        if not lines.problems and (not lines.states or lines.states[-1] is None):
            self._notes.append(f"the last line of {STATE_FILE} is torn or missing")
        elif not lines.is_ended:
            self._notes.append(f"the last line of {STATE_FILE} has lost its newline")

    # --- a state that is there --------------------------------------------------------------------

    def _borne_out(
        self, states: list[QueueState], scan: Scan, *, is_last_whole: bool
    ) -> QueueState | None:
        """The newest state that the records bear out, if it accounts for all that the index does."""
        known, records = self._known, scan.all_records()
        for state in reversed(states):
            if known.count is None:
                beyond = [one for one in records if self._is_only_here(one, state.lsn)]
                if beyond or not scan.bears_out(state):
                    return None
                if not is_last_whole:
                    self._doubled = state.size
                return state
            if state.lsn <= known.upto_lsn:
                # Behind the row: it counts if nothing has changed between the two.
                since = any(state.lsn < one.lsn <= known.upto_lsn for one in records)
                if state.size != known.count or since or not scan.bears_out(state):
                    return None
                return state
            if scan.bears_out(state):
                return state
            # A power cut kept the line but not the records it counts; the log still has those.
            self._notes.append(f"a line of {STATE_FILE} ran ahead of its files")
        return None

    def _is_only_here(self, record: Record, lsn: int) -> bool:
        return record.lsn > lsn and record.lsn not in self._known.logged

    def _put_back(self, state: QueueState, lines: StateLines, is_the_last: bool) -> int:
        """The state is the last line, and another one may follow it; returns how many there are."""
        if is_the_last and lines.is_ended:
            return len(lines.states)
        self._keep_state(lines)
        self._folder.write_state(state)
        return 1

    def _cut(self, state: QueueState, scan: Scan) -> None:
        """Message files end where their state says; what is cut off is accounted for, or set aside."""
        for name, size in {
            state.read_file: state.read_bytes,
            state.write_file: state.write_byte,
        }.items():
            if scan.sizes.get(name, 0) <= size:
                continue
            longer = scan.sizes[name] - size
            self._notes.append(f"{message_file(name)} was {longer} bytes longer than its state")
            file = self._folder.file(message_file(name))
            beyond = [one for one in scan.records[name] if one.offset >= size]
            unknown = [one for one in beyond if self._is_only_here(one, state.lsn)]
            if unknown:
                data = file.read_at(size, longer)
                self._folder.disk.write_whole(self._aside_path(name), data)
                self._set_aside(name, len(unknown))
            file.truncate(size)
            # Or a power cut could bring the old bytes back under a state that counts new ones.
            file.sync()

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
            if last is not None and not known.logged:
                self._missing = max(0, last.size - len(waiting))
            lost = self._missing
        else:
            lost = known.count - known.acknowledgements - len(waiting)
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
            self._notes.append(f"message files are missing: {lost} messages are lost")
        state = None
        if waiting:
            state = self._gathered(waiting, lsn)
            self._notes.append(f"the state is made anew from the records: {len(waiting)} wait")
        self._keep_state(lines)
        if state is not None:
            self._folder.write_state(state)
        elif STATE_FILE in self._names:
            self._folder.remove(STATE_FILE)
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
        done = max(scan.acknowledged_by(last), known.acknowledged)
        since = [one for one in scan.all_records() if done < one.lsn <= known.upto_lsn]
        return len(since) == len(waiting)

    def _bring_back(self, scan: Scan) -> None:
        """Writes what the files lack and the log still has into a file of its own, one more to be read."""
        there = {one.lsn for one in scan.all_records()}
        lacking = [entry for entry in self._spare if entry.lsn not in there]
        if not lacking:
            return
        name = self._fresh_name("log")
        data = b"".join(map(encode, lacking))
        self._folder.file(message_file(name), create=True).append(data)
        self._message_files.append(name)
        scan.take_in(name, data)
        self._notes.append(f"{len(lacking)} messages are taken from the log")

    def _waiting(self, states: list[QueueState], scan: Scan) -> tuple[list[Record], int, int]:
        """The records that wait, the lsn up to which they account for everything, and the highest id
        that was acknowledged for certain."""
        known, records = self._known, scan.all_records()
        done = max([0, *map(scan.acknowledged_by, [*states, *self._earlier_states()])])
        done = max(done, known.acknowledged)
        if known.count is None:
            upto = max([one.lsn for one in records if self._is_only_here(one, 0)], default=0)
            return [one for one in records if done < one.lsn <= upto], upto, done
        found = [one for one in records if done < one.lsn <= known.upto_lsn]
        count = known.count - known.acknowledgements
        return found[max(0, len(found) - count) :], known.upto_lsn, done

    def _earlier_states(self) -> list[QueueState]:
        """Those in copies of `queue.log`: each was true when it was written."""
        copies = [read_states(self._folder, name) for name in self._names if is_backup(name)]
        return [state for lines in copies for state in lines.states if state is not None]

    def _why_bad(self, scan: Scan) -> str:
        name, stretches = next((name, bad) for name, bad in scan.bad.items() if bad)
        start, end = stretches[0]
        return f"{message_file(name)} at byte {start}: {end - start} bytes are no record"

    def _gathered(self, waiting: list[Record], lsn: int) -> QueueState:
        """Copies the waiting records into a file of their own; returns the state for it."""
        name = self._fresh_name("gathered")
        self._folder.file(message_file(name), create=True)
        for start, end, source in _runs(waiting):
            for offset in range(start, end, COPY_BYTES):
                file = self._folder.file(message_file(source))
                data = file.read_at(offset, min(COPY_BYTES, end - offset))
                # Asked for each time: to have one file open may have closed the other.
                self._folder.file(message_file(name)).append(data)
        self._folder.file(message_file(name)).sync()
        self._folder.disk.sync_folder(self._folder.path)
        size, count = sum(one.size for one in waiting), len(waiting)
        return QueueState(
            read_file=name,
            read_msg=0,
            read_byte=0,
            write_file=name,
            write_msg=count,
            read_count=count,
            read_bytes=size,
            write_byte=size,
            can_write=all(one.kind != QUOTA_MARKER for one in waiting),
            lsn=lsn,
        )

    def _fresh_name(self, kind: str) -> str:
        name = f"{kind}-{self._stamp}"
        while name in self._message_files:
            name += "x"
        return name

    # --- what is left over ------------------------------------------------------------------------

    def _dispose(self, state: QueueState | None, scan: Scan, names: list[str]) -> None:
        """Removes the message files that no state names; sets aside what nothing accounts for."""
        needed = {state.read_file, state.write_file} if state else set()
        lsn = state.lsn if state else self._known.upto_lsn
        for name in names:
            if name in needed:
                continue
            unknown = [one for one in scan.records[name] if self._is_only_here(one, lsn)]
            if not unknown:
                self._notes.append(f"collected the orphan {message_file(name)}")
                self._folder.remove(message_file(name))
                continue
            self._folder.rename(message_file(name), self._aside_path(name).rpartition("/")[2])
            self._set_aside(name, len(unknown))

    def _set_aside(self, name: str, count: int) -> None:
        self._aside += count
        self._notes.append(f"{count} records that nothing accounts for: {self._aside_name(name)}")

    def _aside_name(self, name: str) -> str:
        return f"messages.{name}{ASIDE}{self._stamp}"

    def _aside_path(self, name: str) -> str:
        return f"{self._folder.path}/{self._aside_name(name)}"

    def _keep_state(self, lines: StateLines) -> None:
        """A copy of a state file that is about to be replaced, for whoever looks for what happened."""
        if STATE_FILE in self._names:
            kept = f"{self._folder.path}/queue.{self._stamp}-torn.log"
            self._folder.disk.write_whole(kept, lines.text)

    def _keep_and_remove_state(self, lines: StateLines) -> None:
        self._keep_state(lines)
        self._folder.remove(STATE_FILE)

    def _remove_half_written(self) -> None:
        for name in self._names:
            if name.endswith(TEMPORARY_SUFFIX) and self._folder.has(name):
                self._folder.remove(name)


def _runs(records: list[Record]) -> list[tuple[int, int, str]]:
    """The records as stretches of files, as few as possible: start, end, file."""
    runs: list[tuple[int, int, str]] = []
    for one in records:
        if runs and runs[-1][2] == one.file and runs[-1][1] == one.offset:
            runs[-1] = (runs[-1][0], one.end, one.file)
        else:
            runs.append((one.offset, one.end, one.file))
    return runs
