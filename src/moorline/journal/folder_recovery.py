"""Room: journal. Finding out what a queue's folder holds after a crash, or whatever else happened to it.

The last state line counts, if it is whole and its files bear it out; else the one before it; and without any,
the messages of the files themselves. Files are then cut to their state, and those that no state names go.
What was found out of order is noted in words. A folder that nothing sure can be said of is `Damaged`.
"""

import msgspec

from moorline.core.queue_journal import QueueState, parse_line
from moorline.journal.disk import TEMPORARY_SUFFIX
from moorline.journal.folder import STATE_FILE, Damaged, QueueFolder, damage_of, message_file


class Found(msgspec.Struct, frozen=True):
    """What a folder holds."""

    state: QueueState | None
    lost: int
    lines: int
    notes: list[str]


def recovered(folder: QueueFolder, expected: int, upto_lsn: int, stamp: str) -> Found:
    """Brings a folder in order; `expected` messages should be waiting in it.

    They are changes up to `upto_lsn`; `stamp` names the backup of a bad state, if one is kept.
    """
    try:
        return _found(folder, expected, upto_lsn, stamp)
    except OSError as error:
        raise damage_of(error) from error


def _found(folder: QueueFolder, expected: int, upto_lsn: int, stamp: str) -> Found:
    try:
        names = folder.disk.list_folder(folder.path)
    except FileNotFoundError:
        if expected and _is_named(folder):
            raise Damaged("the folder is a link that leads nowhere") from None
        return Found(None, 0, 0, [])
    return _Recovery(folder, names, upto_lsn, stamp).run(expected)


def _is_named(folder: QueueFolder) -> bool:
    """Whether the folder above has the name, whatever is behind it."""
    above, _, name = folder.path.rpartition("/")
    return folder.disk.exists(above) and name in folder.disk.list_folder(above)


class _Recovery:
    """One look at one folder, which had these names at its beginning."""

    def __init__(self, folder: QueueFolder, names: list[str], upto_lsn: int, stamp: str) -> None:
        self._folder = folder
        self._names = names
        self._message_files = [
            name.removeprefix("messages.").removesuffix(".log")
            for name in names
            if name.startswith("messages.") and name.endswith(".log")
        ]
        self._upto_lsn = upto_lsn
        self._stamp = stamp
        self._notes: list[str] = []

    def run(self, expected: int) -> Found:
        state, lines = self._read_state()
        if state is None and expected:
            state = self._salvaged(expected)
        lost = 0
        if state is not None:
            state, lost = self._with_files_there(state)
        if state is not None:
            self._fit(state.write_file, state.write_byte)
            if state.has_two_files:
                self._fit(state.read_file, state.read_bytes)
        self._collect(state)
        return Found(state, lost, lines, self._notes)

    # --- the state --------------------------------------------------------------------------------

    def _read_state(self) -> tuple[QueueState | None, int]:
        """The newest state that counts, and how many lines `queue.log` has now."""
        if STATE_FILE not in self._names:
            return None, 0
        file = self._folder.file(STATE_FILE)
        text = file.read_at(0, file.size()).decode("utf-8", "replace")
        lines = text.splitlines(keepends=True)
        states = [parse_line(line) if line.endswith("\n") else None for line in lines]
        if len(states) > 1 and states[-1] is None and states[-2] is None:
            raise Damaged(f"two bad lines at the end of {STATE_FILE}")
        if not states or states[-1] is None:
            self._notes.append(f"the last line of {STATE_FILE} is torn or missing")
        whole = [state for state in states if state is not None]
        while whole and whole[-1].lsn > self._upto_lsn and not self._bears_out(whole[-1]):
            # A power cut kept the line but not the records it counts; the log still has those.
            self._notes.append(f"a line of {STATE_FILE} ran ahead of its files")
            whole.pop()
        if whole:
            problem = whole[-1].problem()
            if problem:
                raise Damaged(f"the state in {STATE_FILE} cannot be: {problem}")
        if not self._notes:
            return whole[-1], len(lines)
        kept = f"{self._folder.path}/queue.{self._stamp}-torn.log"
        self._folder.disk.write_whole(kept, text.encode())
        if not whole:
            self._folder.remove(STATE_FILE)
            return None, 0
        self._folder.write_state(whole[-1])
        return whole[-1], 1

    def _bears_out(self, state: QueueState) -> bool:
        """Whether the files hold all that the state counts."""
        wanted = {state.read_file: state.read_bytes, state.write_file: state.write_byte}
        return all(
            name in self._message_files and self._folder.file(message_file(name)).size() >= size
            for name, size in wanted.items()
        )

    def _salvaged(self, expected: int) -> QueueState | None:
        """The last `expected` messages of the files that are there, when no state survived."""
        found: list[tuple[int, str, list[int]]] = []
        last = 0
        for name in self._message_files:
            size = self._folder.file(message_file(name)).size()
            sizes, first = [], 0
            try:
                for entry, record_bytes in self._folder.records(name, 0, size):
                    if entry.lsn > self._upto_lsn:
                        break  # the log still has it
                    first, last = first or entry.lsn, max(last, entry.lsn)
                    sizes.append(record_bytes)
            except Damaged as error:
                self._notes.append(str(error))
            if sizes:
                found.append((first, name, sizes))
        if not found:
            return None
        self._notes.append("the state was lost: the last messages of the files are taken")
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

    # --- its files --------------------------------------------------------------------------------

    def _with_files_there(self, state: QueueState) -> tuple[QueueState | None, int]:
        """The state for the files that are left, and how many messages went with the others."""
        read_there = state.read_file in self._message_files
        write_there = state.write_file in self._message_files
        if read_there and write_there:
            return state, 0
        if not state.size:
            return None, 0
        if not read_there and not write_there:
            self._notes.append(f"the message files are missing: {state.size} messages are lost")
            return None, state.size
        if write_there:
            lost = state.read_count - state.read_msg
            self._notes.append(f"the read file is missing: {lost} messages are lost")
            return msgspec.structs.replace(
                state,
                read_file=state.write_file,
                read_msg=0,
                read_byte=0,
                read_count=state.write_msg,
                read_bytes=state.write_byte,
            ), lost
        self._notes.append(f"the write file is missing: {state.write_msg} messages are lost")
        return msgspec.structs.replace(
            state,
            write_file=state.read_file,
            write_msg=state.read_count,
            write_byte=state.read_bytes,
        ), state.write_msg

    def _fit(self, name: str, size: int) -> None:
        """Cuts a message file to what its state says; shorter than that is damage."""
        file = self._folder.file(message_file(name))
        found = file.size()
        if found > size:
            longer = found - size
            self._notes.append(f"{message_file(name)} was {longer} bytes longer than its state")
            file.truncate(size)
            # Or a power cut could bring the old bytes back under a state that counts new ones.
            file.sync()
        elif found < size:
            raise Damaged(f"{message_file(name)} has {found} bytes, its state says {size}")

    def _collect(self, state: QueueState | None) -> None:
        """Removes message files that no state names, and what a crash left half written."""
        needed = {state.read_file, state.write_file} if state else set()
        for name in self._message_files:
            if name not in needed:
                self._notes.append(f"collected the orphan {message_file(name)}")
                self._folder.remove(message_file(name))
        for name in self._names:
            if name.endswith(TEMPORARY_SUFFIX) and self._folder.has(name):
                self._folder.remove(name)
