"""Room: journal/queues. What a recovery does to a queue's folder: states put back, files cut, gathered,
set aside.

No record whose check is right goes, unless it was acknowledged, is in the log or was copied; any other is set
aside under a name. Which state counts, and which records wait, is decided in folder_recovery.py.
"""

from collections.abc import Iterable, Sequence, Set

from moorline.core.queue.journal import QueueState
from moorline.core.queue.queue import QUOTA_MARKER, Entry
from moorline.journal.disk import TEMPORARY_SUFFIX
from moorline.journal.queues.folder import STATE_FILE, QueueFolder, message_file
from moorline.journal.queues.folder_scan import Record, Scan, StateLines, message_names
from moorline.journal.queues.record import encode

ASIDE = ".aside-"
"""In the name of a file with records that nothing accounts for; whoever has read it may remove it."""

COPY_BYTES = 1 << 20

_GATHERED, _FROM_LOG = "gathered-", "log-"
_OF_RECOVERY = (_GATHERED, _FROM_LOG)
"""How the names of message files begin that a recovery has written: all in them is a copy."""


class FolderChanges:
    """One folder, which had these names at the beginning; `notes` tell what was done to it."""

    def __init__(self, folder: QueueFolder, names: list[str], logged: Set[int], stamp: str) -> None:
        self.folder = folder
        self.names = names
        self.message_files = message_names(names)
        self.notes: list[str] = []
        self.aside = 0
        self._logged = logged
        self._stamp = stamp
        self._copied: set[int] = set()
        self._sources: set[str] = set()

    def is_only_here(self, record: Record, lsn: int) -> bool:
        """Whether nothing up to that lsn accounts for a record, nor the log."""
        return record.lsn > lsn and record.lsn not in self._logged

    def put_back(self, state: QueueState, lines: StateLines, is_the_last: bool) -> int:
        """The state is the last line, and another one may follow it; returns how many there are."""
        if is_the_last and lines.is_ended:
            return len(lines.states)
        self.keep_state(lines)
        self.folder.write_state(state)
        return 1

    def cut(self, state: QueueState, scan: Scan) -> None:
        """Message files end where their state says; what is cut off is accounted for, or set aside."""
        for name, size in {
            state.read_file: state.read_bytes,
            state.write_file: state.write_byte,
        }.items():
            if scan.sizes.get(name, 0) <= size:
                continue
            longer = scan.sizes[name] - size
            self.notes.append(f"{message_file(name)} was {longer} bytes longer than its state")
            file = self.folder.file(message_file(name))
            beyond = [one for one in scan.records[name] if one.offset >= size]
            inside = {one.lsn for one in scan.records[name] if one.offset < size}
            unknown = [
                one for one in beyond if one.lsn not in inside and one.lsn not in self._logged
            ]
            count = len(unknown) + scan.strange_records(name, size)
            if count:
                data = file.read_at(size, longer)
                self.folder.disk.write_whole(self._aside_path(name), data)
                self._set_aside(name, count)
            file.truncate(size)
            # Or a power cut could bring the old bytes back under a state that counts new ones.
            file.sync()

    def bring_back(self, spare: Sequence[Entry], scan: Scan) -> None:
        """Writes what the files lack and the log still has into a file of its own, one more to be read."""
        there = {one.lsn for one in scan.all_records()}
        lacking = [entry for entry in spare if entry.lsn not in there]
        if not lacking:
            return
        name = self._fresh_name(_FROM_LOG)
        data = b"".join(encode(entry, self.folder.seed) for entry in lacking)
        self.folder.file(message_file(name), create=True).append(data)
        self.message_files.append(name)
        scan.take_in(name, data)
        self.notes.append(f"{len(lacking)} messages are taken from the log")

    def gathered(self, waiting: list[Record], lsn: int) -> QueueState:
        """Copies the waiting records into a file of their own; returns the state for it."""
        name = self._fresh_name(_GATHERED)
        self.folder.file(message_file(name), create=True)
        for start, end, source in _runs(waiting):
            for offset in range(start, end, COPY_BYTES):
                file = self.folder.file(message_file(source))
                data = file.read_at(offset, min(COPY_BYTES, end - offset))
                # Asked for each time: to have one file open may have closed the other.
                self.folder.file(message_file(name)).append(data)
        self.folder.file(message_file(name)).sync()
        self.folder.disk.sync_folder(self.folder.path)
        self._copied, self._sources = {one.lsn for one in waiting}, {one.file for one in waiting}
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
        name = kind + self._stamp
        while name in self.message_files:
            name += "x"
        return name

    # --- what is left over ------------------------------------------------------------------------

    def dispose(
        self, state: QueueState | None, scan: Scan, known_lsn: int, states: Iterable[QueueState]
    ) -> None:
        """Removes the message files that no state needs; sets aside what nothing accounts for.

        What is not above the state was acknowledged, if the file is one of this queue's: named by one
        of the `states`, or with something in it that waits.
        """
        needed = {state.read_file, state.write_file} if state else set()
        lsn = state.lsn if state else known_lsn
        ours = {name for one in states for name in (one.read_file, one.write_file)}
        for name in self.message_files:
            if name in needed:
                continue
            is_ours = name in ours | self._sources or name.startswith(_OF_RECOVERY)
            unknown = [
                one
                for one in scan.records[name]
                if self.is_only_here(one, lsn if is_ours or one.lsn in self._copied else 0)
            ]
            # Whole ones of another queue are none here, and must not go because they came here.
            is_strange = not is_ours or not scan.records[name]
            count = len(unknown) + (scan.strange_records(name) if is_strange else 0)
            if not count:
                self.notes.append(f"collected the orphan {message_file(name)}")
                self.folder.remove(message_file(name))
                continue
            self.folder.rename(message_file(name), self._aside_name(name))
            self._set_aside(name, count)

    def _set_aside(self, name: str, count: int) -> None:
        self.aside += count
        self.notes.append(f"{count} records that nothing accounts for: {self._aside_name(name)}")

    def _aside_name(self, name: str) -> str:
        return f"messages.{name}{ASIDE}{self._stamp}"

    def _aside_path(self, name: str) -> str:
        return f"{self.folder.path}/{self._aside_name(name)}"

    def keep_state(self, lines: StateLines) -> None:
        """A copy of a state file that is about to be replaced, for whoever looks for what happened."""
        if STATE_FILE in self.names:
            kept = f"{self.folder.path}/queue.{self._stamp}-torn.log"
            self.folder.disk.write_whole(kept, lines.text)

    def keep_and_remove_state(self, lines: StateLines) -> None:
        self.keep_state(lines)
        self.folder.remove(STATE_FILE)

    def remove_half_written(self) -> None:
        for name in self.names:
            if name.endswith(TEMPORARY_SUFFIX) and self.folder.has(name):
                self.folder.remove(name)


def _runs(records: list[Record]) -> list[tuple[int, int, str]]:
    """The records as stretches of files, as few as possible: start, end, file."""
    runs: list[tuple[int, int, str]] = []
    for one in records:
        if runs and runs[-1][2] == one.file and runs[-1][1] == one.offset:
            runs[-1] = (runs[-1][0], one.end, one.file)
        else:
            runs.append((one.offset, one.end, one.file))
    return runs
