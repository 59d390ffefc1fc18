"""Room: journal/queues. A queue's folder: its path, its messages, and how effects change it.

    messages/ab/cd/ef/gh/ijklmnopqrstuvwxyz012345/
        messages.<random>.log   records, see record.py; one file, or two while the first is being read out
        queue.log               state lines, see core/queue/journal.py; the last one counts
        queue.<time>.log        earlier states, kept for those who look for what happened; the time is in
                                milliseconds since 1970, 14 digits
        messages.<name>.aside-<time>   records that nothing accounted for when the folder was recovered

Removals are not done at once: a file goes only after the state that no longer needs it is durable. What a
folder holds after a crash, or whatever else happened to it, is found out in folder_recovery.py.
"""

import errno
from collections.abc import Callable, Iterable, Iterator

import msgspec

from moorline.core.effects import Effect
from moorline.core.queue.journal import (
    AppendRecord,
    AppendState,
    CopyState,
    MakeFolder,
    QueueState,
    RemoveFile,
    RetireState,
)
from moorline.core.queue.queue import Entry
from moorline.ids import text_of
from moorline.journal.disk import Disk, DiskFile
from moorline.journal.handles import Handles
from moorline.journal.queues.record import HEADER_BYTES, DamagedRecord, decode, seed_of
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


class Foreign(Damaged):
    """A folder that another node has written; nothing in it is of this one's queue."""


def damage_of(error: OSError) -> Damaged:
    """The damage to one queue that an error of the system stands for; any other error is raised."""
    if error.errno not in _SOMETHING_ELSE:
        raise error
    name = str(error.filename or "a file").rpartition("/")[2]
    return Damaged(f"{name} cannot be used: {error.strerror}")


def path_of(queue_id: bytes, levels: int) -> str:
    """`messages/ab/cd/ef/gh/…` with that many levels of two characters."""
    text = text_of(queue_id)
    parts = [text[2 * level : 2 * level + 2] for level in range(levels)]
    return "/".join(["messages", *parts, text[2 * levels :]])


def message_file(name: str) -> str:
    return f"messages.{name}.log"


class QueueFolder:
    """One folder on one disk. Cheap to make; opens nothing by itself."""

    def __init__(
        self, disk: Disk, handles: Handles, path: str, queue_id: bytes, node: str = ""
    ) -> None:
        self.path = path
        self.node = node
        self.seed = seed_of(queue_id)
        self.disk = disk
        self._handles = handles

    def file(self, name: str, *, create: bool = False) -> DiskFile:
        return self._handles.get(f"{self.path}/{name}", create=create)

    def has(self, name: str) -> bool:
        return self.disk.exists(f"{self.path}/{name}")

    def remove(self, name: str) -> None:
        self._handles.forget(f"{self.path}/{name}")
        self.disk.remove(f"{self.path}/{name}")

    def rename(self, name: str, target: str) -> None:
        self._handles.forget(f"{self.path}/{name}")
        self.disk.rename(f"{self.path}/{name}", f"{self.path}/{target}")

    # --- reading ----------------------------------------------------------------------------------

    def entries(self, state: QueueState, skip: int) -> Iterator[tuple[Entry, int]]:
        """The waiting messages behind the first `skip`, each with the bytes of its record."""
        parts = [(state.read_file, state.read_byte, state.read_bytes)]
        if state.has_two_files:
            parts.append((state.write_file, 0, state.write_byte))
        for name, start, end in parts:
            for entry, size in self.records(name, start, end):
                if skip:
                    skip -= 1
                else:
                    yield entry, size

    def records(self, name: str, start: int, end: int) -> Iterator[tuple[Entry, int]]:
        """Those between two bytes of a message file, each with its size; anything else there is damage."""
        while start < end:
            try:
                file = self.file(message_file(name))
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
            return decode(data, offset, at, self.seed)
        except DamagedRecord as error:
            raise Damaged(f"{message_file(name)} {error}") from error

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
        retired = copied = False
        for effect in effects:
            match effect:
                case MakeFolder():
                    self.disk.make_folders(self.path)
                case AppendRecord(name, record_bytes):
                    data = next(next_record)
                    assert len(data) == record_bytes, "the machine counts what is written"
                    appended.setdefault(name, []).append(data)
                case AppendState(latest):
                    state = latest
                case RemoveFile(name):
                    later(Removal(self.path, message_file(name)))
                case CopyState():
                    copied = True
                case RetireState():
                    retired = True
                case _:
                    raise AssertionError(f"a folder knows no {effect}")
        for name, parts in appended.items():
            self.file(message_file(name), create=True).append(b"".join(parts))
        if state is not None:
            lines = self._add_line(state, stamp, lines)
            if copied and lines > 1:
                # A rotation: the states up to it are kept as a copy, and this one stays alone.
                self._back_up(stamp)
                self.write_state(state)
                lines = 1
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
        self.file(STATE_FILE, create=True).append(state.line(self.seed, self.node).encode())
        return lines + 1

    def write_state(self, state: QueueState) -> None:
        """Compaction: one line, whole or not at all."""
        self._handles.forget(f"{self.path}/{STATE_FILE}")
        self.disk.write_whole(
            f"{self.path}/{STATE_FILE}", state.line(self.seed, self.node).encode()
        )

    def _back_up(self, stamp: str) -> None:
        """Keeps a copy of the states so far, and drops the backups that are old enough."""
        if not self.has(STATE_FILE):
            return
        file = self.file(STATE_FILE)
        backup = f"queue.{stamp}.log"
        copy = self.disk.open(f"{self.path}/{backup}", create=True)
        if not copy.size():
            copy.append(file.read_at(0, file.size()))
        copy.close()
        names = [name for name in self.disk.list_folder(self.path) if is_backup(name)]
        for name in superseded(names, stamp):
            self.disk.remove(f"{self.path}/{name}")


class Removal(msgspec.Struct, frozen=True):
    """A file to be removed once what was written before is durable."""

    folder: str
    name: str


def superseded(names: Iterable[str], stamp: str) -> list[str]:
    """Backups to drop: neither newer than the days that are kept nor among the newest few."""
    newest_first = sorted(names, key=_stamp_of, reverse=True)
    oldest_kept = f"{int(stamp) - STATE_BACKUP_DAYS * 86_400_000:014}"
    return [name for name in newest_first[STATE_BACKUPS_KEPT:] if _stamp_of(name) < oldest_kept]


def is_backup(name: str) -> bool:
    return name.startswith("queue.") and name.endswith(".log") and name != STATE_FILE


def _stamp_of(name: str) -> str:
    return name.removeprefix("queue.").removesuffix(".log").removesuffix("-torn")


def _record_length(data: bytes) -> int:
    if len(data) < HEADER_BYTES:
        return 0
    return HEADER_BYTES + int.from_bytes(data[8:12], "big")
