"""Room: journal/queues. The files of queues while they are in use: read, changed, closed, or set aside.

A queue's folder is read when something in it is needed, and kept open while there is room. Whatever is wrong
with it is found here; a folder that cannot be trusted is moved to the quarantine with all that is in it.
"""

import base64
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Generator

import msgspec

from moorline.core.effects import Effect
from moorline.core.queue.journal import Clean, MakeFolder, QueueJournal, empty_state
from moorline.core.queue.queue import Entry, Queue
from moorline.ids import NO_HOME, text_of
from moorline.journal.disk import Disk
from moorline.journal.handles import Handles
from moorline.journal.queues.folder import (
    STATE_FILE,
    Damaged,
    QueueFolder,
    Removal,
    damage_of,
    path_of,
)
from moorline.journal.queues.folder_recovery import Found, bring_in_order
from moorline.journal.queues.record import encode, seed_of
from moorline.journal.queues.removals import Removals
from moorline.limits import (
    CACHE_BYTES_PER_QUEUE,
    LOOK_BYTES_MAX,
    LOOK_BYTES_PER_TURN,
    OPEN_FILES_MAX,
    OPEN_QUEUES_MAX,
)

log = logging.getLogger("moorline.journal")

PENDING_ASIDE = "pending.log"
ACKNOWLEDGED_ASIDE = "queue.acknowledged.log"
WHY_ASIDE = "why.txt"
FOUND_INSTEAD = "found-instead"
"""In a queue's quarantine: what stood where its folder should be."""


class StoreOptions(msgspec.Struct, frozen=True):
    """What an operator may set about the store; see `config.settings.Queues`."""

    sync: bool = True
    queue_messages_max: int = 128
    file_messages_max: int = 256
    levels: int = 4
    open_files_max: int = OPEN_FILES_MAX
    open_queues_max: int = OPEN_QUEUES_MAX
    node: str = ""
    """The id of the node whose queues these are; empty if nobody can tell."""
    home: bytes = NO_HOME
    """The number of the home that they are of: what the ids of new ones end with."""


class Reader:
    """What is known of a queue's files while they are in use."""

    __slots__ = ("folder", "journal", "lines")

    def __init__(self, folder: QueueFolder, journal: QueueJournal, lines: int) -> None:
        self.folder = folder
        self.journal = journal
        self.lines = lines


class QueueFiles:
    """The folders of all queues of a store, few of them open at a time."""

    def __init__(
        self,
        disk: Disk,
        options: StoreOptions,
        wall_ms: Callable[[], int],
        draw: Callable[[int], bytes],
        changed: Callable[[Queue], None],
    ) -> None:
        self.handles = Handles(disk, options.open_files_max)
        self.removals = Removals(disk)
        self.claim: Callable[[Queue], None] = lambda _: None
        """Called before a queue's files are touched: a flush in another thread must be done with them."""
        self.spare: dict[bytes, list[Entry]] = {}
        """By queue: messages of its files that the log has too, until the next checkpoint."""
        self.lost_messages = 0
        self.quarantined = 0
        self.doubled_messages = 0
        self.records_aside = 0
        self._disk = disk
        self._options = options
        self._wall_ms = wall_ms
        self._draw = draw
        self._changed = changed
        self._readers: OrderedDict[Queue, Reader] = OrderedDict()
        """Of the queues whose files are in use, the one used last at the end."""

    def reader(self, queue: Queue) -> Reader | None:
        """The queue's files, opened if they are not; None if the queue was set aside."""
        self.claim(queue)
        known = self._readers.get(queue)
        if known is not None:
            self._readers.move_to_end(queue)
            return known
        if queue.damaged:
            return None
        path = path_of(queue.id, self._options.levels)
        self.removals.perform(path)
        if self._was_set_aside(queue, path):
            self.give_up(queue, is_all_in_the_log=True)
            return None
        folder = QueueFolder(self._disk, self.handles, path, queue.id, self._options.node)
        spare = self.spare.get(queue.id, [])
        try:
            found, lost = bring_in_order(folder, queue, self.stamp(), spare)
        except Damaged as error:
            self.quarantine(queue, str(error))
            return None
        if spare:
            # Of most there are none: an empty list for each of very many would be forgotten in one turn.
            self.spare[queue.id] = spare
        self.tell(queue, found, lost)
        state = found.state
        journal = QueueJournal(
            text_of(queue.id), state, file_messages_max=self._options.file_messages_max
        )
        self._readers[queue] = reader = Reader(folder, journal, found.lines)
        if state is not None and not state.size:
            try:
                self.perform(reader, journal.handle(Clean(), self._wall_ms()), [])
            except Damaged as error:
                self.quarantine(queue, str(error))
                return None
        if len(self._readers) > self._options.open_queues_max:
            idle, of_idle = self._readers.popitem(last=False)
            self.handles.forget_folder(of_idle.folder.path)
            idle.cache = None
        return reader

    def _was_set_aside(self, queue: Queue, path: str) -> bool:
        """Whether a crash came before the index could learn that the queue was set aside."""
        return (
            bool(queue.stored or queue.consumed)
            and not self._disk.exists(path)
            and self._disk.exists(f"quarantine/{text_of(queue.id)}")
        )

    def spare_of(self, queue: Queue) -> list[Entry]:
        """The messages of its files that the log has too, to be added to."""
        return self.spare.setdefault(queue.id, [])

    def tell(self, queue: Queue, found: Found, lost: int) -> None:
        """Logs and counts what was found out of order."""
        name = text_of(queue.id)
        for note in found.notes:
            log.warning(note, extra={"queue": name})
        self.records_aside += found.aside
        if found.doubled:
            self.doubled_messages += found.doubled
            log.warning("messages may come twice", extra={"queue": name, "count": found.doubled})
        if lost > 0:
            self.lost_messages += lost
            log.error("messages lost", extra={"queue": name, "count": lost})
        if lost:
            # The row is wrong: the next checkpoint writes what is there.
            self._changed(queue)

    def read_ahead(self, queue: Queue, place: int) -> None:
        """Brings the stored message of that place into the queue's cache, and some behind it."""
        reader = self.reader(queue)
        if reader is None or not queue.stored or reader.journal.stored is None:
            return
        if queue.cache is None:
            queue.cache = deque()
        skip = len(queue.consumed or ()) + len(queue.cache)
        size = 0
        try:
            for entry, size_of_record in reader.folder.entries(reader.journal.stored, skip):
                queue.cache.append(entry)
                size += size_of_record
                if size >= CACHE_BYTES_PER_QUEUE and len(queue.cache) > place:
                    break
        except Damaged as error:
            self.quarantine(queue, str(error))

    def unreadable(self, queue: Queue) -> Generator[None, None, int]:
        """How many messages of a queue cannot be delivered as it is; reads what is stored, up to a bound.

        With one record that cannot be read it is all of them, until the queue is repaired. It pauses after
        every slice. Files that were changed in a pause are read from their beginning, within the same bound.
        """
        left = LOOK_BYTES_MAX
        while left > 0:
            has_files = bool(queue.stored or queue.consumed)
            reader = self.reader(queue) if has_files and not queue.damaged else None
            if reader is None or reader.journal.stored is None:
                break
            state, pause_at = reader.journal.stored, left - LOOK_BYTES_PER_TURN
            try:
                for _, size in reader.folder.entries(state, len(queue.consumed or ())):
                    left -= size
                    if left <= 0:
                        return 0
                    if left <= pause_at:
                        yield
                        pause_at = left - LOOK_BYTES_PER_TURN
                        if (
                            self._readers.get(queue) is not reader
                            or reader.journal.stored is not state
                        ):
                            break
                else:
                    return 0
            except Damaged:
                return queue.size
        return queue.size if queue.damaged else 0

    def perform(self, reader: Reader, effects: list[Effect], records: list[bytes]) -> None:
        """Does to a queue's folder what its journal said; removals wait for the next sync."""
        try:
            if any(isinstance(effect, MakeFolder) for effect in effects):
                # A state that was retired and not yet removed makes way for the new one.
                self.handles.forget(f"{reader.folder.path}/{STATE_FILE}")
                self.removals.perform_now(Removal(reader.folder.path, STATE_FILE))
            superseded: list[Removal] = []
            reader.lines = reader.folder.perform(
                effects, records, self.stamp(), reader.lines, superseded.append
            )
        except OSError as error:
            raise damage_of(error) from error
        # Not before the state is written that does not need them: a full disk may have been in its way.
        for removal in superseded:
            self.removals.add(removal)

    def quarantine(self, queue: Queue, why: str) -> None:
        """Sets a damaged queue aside with its files; it answers nothing until it is repaired."""
        log.error("queue set aside", extra={"queue": text_of(queue.id), "why": why})
        path = path_of(queue.id, self._options.levels)
        self.handles.forget_folder(path)
        # Nothing is removed from what a repair will read.
        self.removals.forget(path)
        aside = f"quarantine/{text_of(queue.id)}"
        self._disk.make_folders("quarantine")
        # Or a power cut could keep the move, but not the folder that it went to.
        self._disk.sync_folder("")
        try:
            self._move_aside(path, aside)
        except OSError as error:
            log.warning("a damaged queue stays in its place", extra={"why": str(damage_of(error))})
        self._disk.make_folders(aside)
        self.give_up(queue)
        self._disk.write_whole(f"{aside}/{WHY_ASIDE}", why.encode() + b"\n")
        self._disk.sync_folder("quarantine")
        self.quarantined += 1

    def _move_aside(self, path: str, aside: str) -> None:
        """Moves what stands in a queue's place; what cannot be moved is found there by a repair."""
        if not self._disk.is_folder(path):
            self._disk.make_folders(aside)
            # No `exists` before: it follows a link, and there may be nothing behind it.
            with contextlib.suppress(FileNotFoundError):
                self._disk.rename(path, f"{aside}/{FOUND_INSTEAD}-{self.stamp()}")
            return
        if self._disk.exists(aside):
            # An earlier one is kept too: it may hold what was promised.
            self._disk.rename(aside, f"{aside}.{self.stamp()}")
        self._disk.rename(path, aside)
        if not self._disk.is_folder(aside):
            # A link that leads to its folder from there, and from here to nothing.
            self._disk.rename(aside, path)

    def discard(self, queue_id: bytes) -> None:
        """Removes the files of a queue that is deleted, also those that are set aside."""
        path = path_of(queue_id, self._options.levels)
        for place in (path, f"quarantine/{text_of(queue_id)}"):
            if self._disk.exists(place):
                self.handles.forget_folder(place)
                try:
                    remove_whatever(self._disk, place)
                except OSError as error:
                    # The queue is gone all the same; a check finds what is left of it.
                    log.warning(
                        "files of a deleted queue stay", extra={"why": str(damage_of(error))}
                    )

    def give_up(self, queue: Queue, *, is_all_in_the_log: bool = False) -> None:
        """All that a damaged queue has is in its quarantine; its row counts it, acknowledged or not.

        What an earlier time put there stays, unless the log has all of that: then some of it may never
        have been committed, and its numbers belong to others now.
        """
        aside = f"quarantine/{text_of(queue.id)}"
        pending, acknowledged = f"{aside}/{PENDING_ASIDE}", f"{aside}/{ACKNOWLEDGED_ASIDE}"
        if is_all_in_the_log:
            for path in (pending, acknowledged):
                if self._disk.exists(path):
                    self._disk.remove(path)
        promised = [*self.spare.get(queue.id, ()), *(queue.pending or ())]
        if promised or queue.acknowledged_lsn:
            self._disk.make_folders(aside)
        if promised:
            # To their senders, and soon gone from the log.
            records = b"".join(encode(entry, seed_of(queue.id)) for entry in promised)
            self._disk.write_whole(pending, self._content(pending) + records)
        if queue.acknowledged_lsn:
            # As a state in which nothing waits up to there: what is done with stays so.
            state = empty_state("none", queue.acknowledged_lsn)
            self._disk.write_whole(acknowledged, state.line(seed_of(queue.id)).encode())
        queue.settle(queue.touched_lsn, queue.size)
        queue.pending = None
        queue.damaged = True
        self._readers.pop(queue, None)
        queue.cache = None
        self._changed(queue)

    def _content(self, path: str) -> bytes:
        if not self._disk.exists(path):
            return b""
        file = self._disk.open(path, create=False)
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def hand_over(self, queue: Queue) -> Reader | None:
        """What is known of a queue's files goes to whoever flushes them; nothing of them stays open here."""
        reader = self._readers.pop(queue, None)
        if reader is not None:
            self.handles.forget_folder(reader.folder.path)
        return reader

    def let_go(self, queue: Queue) -> None:
        """A flush was cut short: what is known of the queue's files may be wrong, and they are read again."""
        self._readers.pop(queue, None)
        self.handles.forget_folder(path_of(queue.id, self._options.levels))

    def take_in(self, queue: Queue, reader: Reader | None) -> None:
        """What is known of a queue's files comes back from another: they need not be read again."""
        if reader is None or queue.damaged or len(self._readers) >= self._options.open_queues_max:
            # Nothing is cached but for those that are in use: that is the bound of it.
            queue.cache = None
            return
        path = reader.folder.path
        folder = QueueFolder(self._disk, self.handles, path, queue.id, self._options.node)
        self._readers[queue] = Reader(folder, reader.journal, reader.lines)

    def take_counts(self, other: "QueueFiles") -> None:
        """What another has counted is counted here, and there no longer."""
        self.lost_messages += other.lost_messages
        self.quarantined += other.quarantined
        self.doubled_messages += other.doubled_messages
        self.records_aside += other.records_aside
        other.lost_messages = other.quarantined = other.doubled_messages = other.records_aside = 0

    def close_queue(self, queue: Queue) -> None:
        """Closes a queue's files; the next use reads them again."""
        self.claim(queue)
        reader = self._readers.pop(queue, None)
        if reader is not None:
            self.handles.forget_folder(reader.folder.path)
        queue.cache = None

    def fresh_name(self) -> str:
        """A name for a message file that no other has."""
        return base64.urlsafe_b64encode(self._draw(12)).decode("ascii")

    def stamp(self) -> str:
        """The time, as it is written into the names of what is kept."""
        return f"{self._wall_ms():014}"


def remove_whatever(disk: Disk, path: str) -> None:
    """Removes what stands at a path: a folder with all that is in it, a file, or a link."""
    if disk.is_folder(path):
        try:
            disk.remove_folder(path)
            return
        except OSError as error:
            if error.errno is not None:
                raise
            # Python's own refusal: a link to a folder goes as a file does.
    disk.remove(path)
