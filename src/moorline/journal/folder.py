"""Room: journal. A queue's folder: its path, how it is read after anything, how effects change it.

    messages/ab/cd/ef/gh/ijklmnopqrstuvwxyz012345/
        messages.<random>.log   records, see record.py; one file, or two while the first is being read out
        queue.log               state lines, see core/queue_journal.py; the last one counts
        queue.<time>.log        earlier states, kept for those who look for what happened; the time is in
                                milliseconds since 1970, 14 digits

Removals are not done at once: a file goes only after the state that no longer needs it is durable.
"""

import errno
from collections.abc import Callable, Iterable, Iterator

import msgspec

from moorline.core.effects import Effect
from moorline.core.queue import Entry
from moorline.core.queue_journal import (
    AppendRecord,
    AppendState,
    MakeFolder,
    QueueState,
    RemoveFile,
    RetireState,
    parse_line,
)
from moorline.ids import text_of
from moorline.journal.disk import TEMPORARY_SUFFIX, Disk
from moorline.journal.handles import Handles
from moorline.journal.record import HEADER_BYTES, DamagedRecord, decode
from moorline.limits import KIB, STATE_BACKUP_DAYS, STATE_BACKUPS_KEPT, STATE_LINES_MAX

STATE_FILE = "queue.log"
READ_BYTES = 64 * KIB

_SOMETHING_ELSE = frozenset(
    {
        *(errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR),  # one kind in another's place
        *(errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.ESPIPE),  # links, sockets, devices, pipes
        *(errno.EACCES, errno.EPERM),
    }
)
"""What the system says where something stands that we have not put there, or may not touch any more. All
other errors are the disk's or the machine's, and no queue's own."""


class Damaged(Exception):
    """A folder that must be set aside; the text says why."""


def damage_of(error: OSError) -> Damaged:
    """The damage to one queue that an error of the system stands for; any other error is raised."""
    if error.errno not in _SOMETHING_ELSE:
        raise error
    name = str(error.filename or "a file").rpartition("/")[2]
    return Damaged(f"{name} cannot be used: {error.strerror}")


class Found(msgspec.Struct, frozen=True):
    """What a folder holds."""

    state: QueueState | None
    lost: int
    lines: int
    notes: list[str]


def path_of(queue_id: bytes, levels: int) -> str:
    """`messages/ab/cd/ef/gh/…` with that many levels of two characters."""
    text = text_of(queue_id)
    parts = [text[2 * level : 2 * level + 2] for level in range(levels)]
    return "/".join(["messages", *parts, text[2 * levels :]])


def message_file(name: str) -> str:
    return f"messages.{name}.log"


class QueueFolder:
    """One folder on one disk. Cheap to make; opens nothing by itself."""

    def __init__(self, disk: Disk, handles: Handles, path: str) -> None:
        self.path = path
        self._disk = disk
        self._handles = handles
        self._stamp = ""

    # --- reading ----------------------------------------------------------------------------------

    def load(self, expected: int, upto_lsn: int, stamp: str) -> Found:
        """Reads the folder after whatever happened; `expected` messages should be waiting in it.

        They are changes up to `upto_lsn`; `stamp` names the backup of a bad state, if one is kept.
        """
        self._stamp = stamp
        try:
            return self._load(expected, upto_lsn)
        except OSError as error:
            raise damage_of(error) from error

    def _load(self, expected: int, upto_lsn: int) -> Found:
        try:
            names = self._disk.list_folder(self.path)
        except FileNotFoundError:
            if expected and self._is_named():
                raise Damaged("the folder is a link that leads nowhere") from None
            return Found(None, 0, 0, [])
        notes: list[str] = []
        state, lines = self._read_state(names, upto_lsn, notes)
        if state is None and expected:
            state = self._salvaged(names, expected, upto_lsn, notes)
        lost = 0
        if state is not None:
            state, lost = self._with_files_there(state, names, notes)
        if state is not None:
            self._fit(state.write_file, state.write_byte, notes)
            if state.has_two_files:
                self._fit(state.read_file, state.read_bytes, notes)
        self._collect(state, names, notes)
        return Found(state, lost, lines, notes)

    def _is_named(self) -> bool:
        """Whether the folder above has the name, whatever is behind it."""
        above, _, name = self.path.rpartition("/")
        return self._disk.exists(above) and name in self._disk.list_folder(above)

    def entries(self, state: QueueState, skip: int) -> Iterator[tuple[Entry, int]]:
        """The waiting messages behind the first `skip`, each with the bytes of its record."""
        parts = [(state.read_file, state.read_byte, state.read_bytes)]
        if state.has_two_files:
            parts.append((state.write_file, 0, state.write_byte))
        for name, start, end in parts:
            for entry, size in self._records(name, start, end):
                if skip:
                    skip -= 1
                else:
                    yield entry, size

    def _records(self, name: str, start: int, end: int) -> Iterator[tuple[Entry, int]]:
        path = f"{self.path}/{message_file(name)}"
        while start < end:
            try:
                file = self._handles.get(path, create=False)
                data = file.read_at(start, min(READ_BYTES, end - start))
            except FileNotFoundError as error:
                raise Damaged(f"{message_file(name)} is gone") from error
            except OSError as error:
                raise damage_of(error) from error
            offset = 0
            while True:
                entry = self._decoded(data, offset, start + offset, name)
                if entry is None:
                    break
                size = HEADER_BYTES + len(entry.body)
                offset += size
                yield entry, size
            if not offset:
                # A record larger than what is read at once, or none at all.
                wanted = _record_length(data)
                if wanted <= len(data) or start + wanted > end:
                    raise Damaged(f"{message_file(name)} at byte {start}: a record is cut off")
                data = file.read_at(start, wanted)
                entry = self._decoded(data, 0, start, name)
                if entry is None:
                    raise Damaged(f"{message_file(name)} at byte {start}: a record is cut off")
                offset = wanted
                yield entry, wanted
            start += offset

    def _decoded(self, data: bytes, offset: int, at: int, name: str) -> Entry | None:
        try:
            return decode(data, offset, at)
        except DamagedRecord as error:
            raise Damaged(f"{message_file(name)} {error}") from error

    def _read_state(
        self, names: list[str], upto_lsn: int, notes: list[str]
    ) -> tuple[QueueState | None, int]:
        """The newest state that counts, and how many lines `queue.log` has now."""
        if STATE_FILE not in names:
            return None, 0
        file = self._handles.get(f"{self.path}/{STATE_FILE}", create=False)
        text = file.read_at(0, file.size()).decode("utf-8", "replace")
        lines = text.splitlines(keepends=True)
        states = [parse_line(line) if line.endswith("\n") else None for line in lines]
        if len(states) > 1 and states[-1] is None and states[-2] is None:
            raise Damaged(f"two bad lines at the end of {STATE_FILE}")
        if not states or states[-1] is None:
            notes.append(f"the last line of {STATE_FILE} is torn or missing")
        whole = [state for state in states if state is not None]
        while whole and whole[-1].lsn > upto_lsn and not self._fits(whole[-1], names):
            # A power cut kept the line but not the records it counts; the log still has those.
            notes.append(f"a line of {STATE_FILE} ran ahead of its files")
            whole.pop()
        if whole:
            problem = whole[-1].problem()
            if problem:
                raise Damaged(f"the state in {STATE_FILE} cannot be: {problem}")
        if not notes:
            return whole[-1], len(lines)
        self._keep_bad_state(text)
        if not whole:
            self._remove(STATE_FILE)
            return None, 0
        self.write_state(whole[-1])
        return whole[-1], 1

    def _fits(self, state: QueueState, names: list[str]) -> bool:
        wanted = {state.read_file: state.read_bytes, state.write_file: state.write_byte}
        for name, size in wanted.items():
            path = f"{self.path}/{message_file(name)}"
            if message_file(name) not in names:
                return False
            if self._handles.get(path, create=False).size() < size:
                return False
        return True

    def _keep_bad_state(self, text: str) -> None:
        self._handles.forget(f"{self.path}/{STATE_FILE}")
        self._disk.write_whole(f"{self.path}/queue.{self._stamp}-torn.log", text.encode())

    def _salvaged(
        self, names: list[str], expected: int, upto_lsn: int, notes: list[str]
    ) -> QueueState | None:
        """The last `expected` messages of the files that are there, when no state survived."""
        found: list[tuple[int, str, list[int]]] = []
        last = 0
        for name in _message_files(names):
            size = self._handles.get(f"{self.path}/{message_file(name)}", create=False).size()
            sizes, first = [], 0
            try:
                for entry, record_bytes in self._records(name, 0, size):
                    if entry.lsn > upto_lsn:
                        break  # the log still has it
                    first, last = first or entry.lsn, max(last, entry.lsn)
                    sizes.append(record_bytes)
            except Damaged as error:
                notes.append(str(error))
            if sizes:
                found.append((first, name, sizes))
        if not found:
            return None
        notes.append("the state was lost: the last messages of the files are taken")
        found.sort()
        (_, read, sizes), (_, write, write_sizes) = (
            found[-2] if len(found) > 1 else found[-1],
            found[-1],
        )
        skip = len(sizes) + (len(write_sizes) if read != write else 0) - expected
        skip = max(0, skip)
        if read != write and skip >= len(sizes):
            # The first of them was read to its end.
            skip, read, sizes = skip - len(sizes), write, write_sizes
        skip = min(skip, len(sizes))
        return QueueState(
            read_file=read,
            read_msg=skip,
            read_byte=sum(sizes[:skip]),
            write_file=write,
            write_msg=len(write_sizes),
            read_count=len(sizes),
            read_bytes=sum(sizes),
            write_byte=sum(write_sizes),
            can_write=True,
            # Sends up to the last one are here; of acknowledgements it is not known.
            lsn=last,
        )

    def _with_files_there(
        self, state: QueueState, names: list[str], notes: list[str]
    ) -> tuple[QueueState | None, int]:
        """The state for the files that are left, and how many messages went with the others."""
        there = set(_message_files(names))
        read_there, write_there = state.read_file in there, state.write_file in there
        if read_there and write_there:
            return state, 0
        if not state.size:
            return None, 0
        if not read_there and not write_there:
            notes.append(f"the message files are missing: {state.size} messages are lost")
            return None, state.size
        if write_there:
            lost = state.read_count - state.read_msg
            notes.append(f"the read file is missing: {lost} messages are lost")
            return msgspec.structs.replace(
                state,
                read_file=state.write_file,
                read_msg=0,
                read_byte=0,
                read_count=state.write_msg,
                read_bytes=state.write_byte,
            ), lost
        notes.append(f"the write file is missing: {state.write_msg} messages are lost")
        return msgspec.structs.replace(
            state,
            write_file=state.read_file,
            write_msg=state.read_count,
            write_byte=state.read_bytes,
        ), state.write_msg

    def _fit(self, name: str, size: int, notes: list[str]) -> None:
        """Cuts a message file to what its state says; shorter than that is damage."""
        file = self._handles.get(f"{self.path}/{message_file(name)}", create=False)
        found = file.size()
        if found > size:
            notes.append(f"{message_file(name)} was {found - size} bytes longer than its state")
            file.truncate(size)
            # Or a power cut could bring the old bytes back under a state that counts new ones.
            file.sync()
        elif found < size:
            raise Damaged(f"{message_file(name)} has {found} bytes, its state says {size}")

    def _collect(self, state: QueueState | None, names: list[str], notes: list[str]) -> None:
        """Removes message files that no state names, and what a crash left half written."""
        needed = {state.read_file, state.write_file} if state else set()
        for name in set(_message_files(names)) - needed:
            notes.append(f"collected the orphan {message_file(name)}")
            self._remove(message_file(name))
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX) and self._disk.exists(f"{self.path}/{name}"):
                self._remove(name)

    # --- changing ---------------------------------------------------------------------------------

    def perform(
        self,
        effects: Iterable[Effect],
        records: Iterable[bytes],
        stamp: str,
        lines: int,
        later: Callable[["Removal"], None],
    ) -> int:
        """Does what the machine said, in as few writes as possible; `records` are what it appends.

        Returns how many lines queue.log has now. A record and the state that counts it are two
        writes: whoever is killed between them finds the file longer than its state, and cuts it.
        """
        appended: dict[str, list[bytes]] = {}
        next_record = iter(records)
        state: QueueState | None = None
        retired = False
        for effect in effects:
            match effect:
                case MakeFolder():
                    self._disk.make_folders(self.path)
                case AppendRecord(name, record_bytes):
                    data = next(next_record)
                    assert len(data) == record_bytes, "the machine counts what is written"
                    appended.setdefault(name, []).append(data)
                case AppendState(latest):
                    state = latest
                case RemoveFile(name):
                    later(Removal(self.path, message_file(name)))
                case RetireState():
                    retired = True
                case _:
                    raise AssertionError(f"a folder knows no {effect}")
        for name, parts in appended.items():
            path = f"{self.path}/{message_file(name)}"
            self._handles.get(path, create=True).append(b"".join(parts))
        if state is not None:
            lines = self._add_line(state, stamp, lines)
        if retired:
            self._back_up(stamp)
            later(Removal(self.path, STATE_FILE))
            lines = 0
        return lines

    def _add_line(self, state: QueueState, stamp: str, lines: int) -> int:
        if lines >= STATE_LINES_MAX:
            self._back_up(stamp)
            self.write_state(state)
            return 1
        self._handles.get(f"{self.path}/{STATE_FILE}", create=True).append(state.line().encode())
        return lines + 1

    def write_state(self, state: QueueState) -> None:
        """Compaction: one line, whole or not at all."""
        self._handles.forget(f"{self.path}/{STATE_FILE}")
        self._disk.write_whole(f"{self.path}/{STATE_FILE}", state.line().encode())

    def _back_up(self, stamp: str) -> None:
        """Keeps a copy of the states so far, and drops the backups that are old enough."""
        path = f"{self.path}/{STATE_FILE}"
        if not self._disk.exists(path):
            return
        file = self._handles.get(path, create=False)
        backup = f"queue.{stamp}.log"
        copy = self._disk.open(f"{self.path}/{backup}", create=True)
        if not copy.size():
            copy.append(file.read_at(0, file.size()))
        copy.close()
        names = [name for name in self._disk.list_folder(self.path) if _is_backup(name)]
        for name in superseded(names, stamp):
            self._disk.remove(f"{self.path}/{name}")

    def _remove(self, name: str) -> None:
        self._handles.forget(f"{self.path}/{name}")
        self._disk.remove(f"{self.path}/{name}")


class Removal(msgspec.Struct, frozen=True):
    """A file to be removed once what was written before is durable."""

    folder: str
    name: str


def superseded(names: Iterable[str], stamp: str) -> list[str]:
    """Backups to drop: neither newer than the days that are kept nor among the newest few."""
    newest_first = sorted(names, key=_stamp_of, reverse=True)
    oldest_kept = f"{int(stamp) - STATE_BACKUP_DAYS * 86_400_000:014}"
    return [name for name in newest_first[STATE_BACKUPS_KEPT:] if _stamp_of(name) < oldest_kept]


def _is_backup(name: str) -> bool:
    return name.startswith("queue.") and name.endswith(".log") and name != STATE_FILE


def _stamp_of(name: str) -> str:
    return name.removeprefix("queue.").removesuffix(".log").removesuffix("-torn")


def _message_files(names: Iterable[str]) -> list[str]:
    return [
        name.removeprefix("messages.").removesuffix(".log")
        for name in names
        if name.startswith("messages.") and name.endswith(".log")
    ]


def _record_length(data: bytes) -> int:
    if len(data) < HEADER_BYTES:
        return 0
    return HEADER_BYTES + int.from_bytes(data[8:12], "big")
