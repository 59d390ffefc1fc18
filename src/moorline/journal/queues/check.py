"""Room: journal/queues. Looks at every file of a store, and puts right what is wrong.

There is one procedure, `mend`. A check runs it on a copy in memory (`OverlayDisk`) and reports what it
found; a repair runs it on the disk. So a check says what a repair would do, and both are what a node
itself would do at its start and at the first use of a queue, and a little more:

    0  how deep the folders lie                      taken from the tree, if layout.json says another thing
    1  names that have no place in the tree          set aside
    2  the log                                       what is damaged is taken out
    3  the index                                     rebuilt if it is lost
       the manifest, compared with log and index     written anew if it is lost
    4  every queue: state, files, each record        repaired as a load does, or set aside
    5  folders that no row of the index names        set aside; removed if no message is in them
    6  queues that are set aside                     what can be read of them is put into a new folder
    7  a checkpoint
"""

from collections.abc import Callable, Iterator

from moorline.core.queue.queue import QUOTA_MARKER, Entry, Queue
from moorline.errors import FolderUnusable
from moorline.ids import text_of
from moorline.journal.disk import Disk, parent
from moorline.journal.handles import Handles
from moorline.journal.overlay import OverlayDisk
from moorline.journal.queues import checkpoint
from moorline.journal.queues.build import FolderBuilder
from moorline.journal.queues.files import WHY_ASIDE, StoreOptions
from moorline.journal.queues.folder import Damaged, Foreign, QueueFolder, damage_of, path_of
from moorline.journal.queues.folder_recovery import OLDER, Found, bring_in_order
from moorline.journal.queues.index import INDEX
from moorline.journal.queues.layout import check_layout, mend_layout, queue_of_folder
from moorline.journal.queues.log_report import tell_cuts, tell_gaps, tell_revived
from moorline.journal.queues.manifest import MANIFEST, check_owner, found_manifest, write_manifest
from moorline.journal.queues.offline import options_of, raise_lsn
from moorline.journal.queues.put_away import KEPT, QUARANTINE, kept_folder, make_durable, put_away
from moorline.journal.queues.rebuild import rebuilt_index
from moorline.journal.queues.record import seed_of
from moorline.journal.queues.report import Problem, Report
from moorline.journal.queues.salvage import (
    CarefulStore,
    Cut,
    entries_in,
    lost_index,
    mend_log,
    read_all,
)
from moorline.journal.queues.tree import REPAIRED, kept, tree

BUILDING = ".good"
OPEN_FILES = 8


Visited = Callable[[int, int], None]
"""Hears how many queues have been visited, and of how many."""


def check(
    disk: Disk, options: StoreOptions, wall_ms: Callable[[], int], visited: Visited
) -> Report:
    """What is wrong, and how many messages a repair would save. Changes nothing on disk."""
    report = _mended(OverlayDisk(disk), disk, options, wall_ms, visited)
    manifest, _ = found_manifest(disk)
    if manifest is not None and options.node not in ("", manifest.node):
        # The rest was looked at as what it is: the queues of that node.
        text = (
            f"all of the {report.queues} queues are those of the node with the id {manifest.node}, and this "
            f"one is {options.node}: it does not start, and a repair refuses to change them"
        )
        report.problems.insert(0, Problem("foreign", text))
    return report


def repair(
    disk: Disk, options: StoreOptions, wall_ms: Callable[[], int], visited: Visited
) -> Report:
    """Puts right what is wrong; returns what that was. May be killed and called again."""
    if options.node:
        check_owner(disk, options.node)
    return _mended(disk, disk, options, wall_ms, visited)


def _mended(
    disk: Disk,
    real: Disk,
    options: StoreOptions,
    wall_ms: Callable[[], int],
    visited: Visited,
) -> Report:
    why = mend_layout(disk, options.levels)
    found = options_of(disk, options)
    report = Mending(disk, found, wall_ms, visited).mend()
    if why:
        report.problems.insert(0, Problem("layout", why))
    report.kept = kept(real, found.levels)
    return report


class Mending:
    """One run over a store."""

    def __init__(
        self, disk: Disk, options: StoreOptions, wall_ms: Callable[[], int], visited: Visited
    ) -> None:
        self.report = Report()
        self._disk = disk
        self._options = options
        self._wall_ms = wall_ms
        self._visited = visited
        self._stamp = f"{wall_ms():014}"
        self._handles = Handles(disk, OPEN_FILES)
        self._store = CarefulStore(disk, options, wall_ms)
        self._lsn = 0
        self._has_no_log = False
        self._aside: list[tuple[Queue, str, str]] = []

    def mend(self) -> Report:
        try:
            return self._mend()
        except PermissionError as error:
            # What may not be read may be whole: it is no damage, and not to be given up.
            raise FolderUnusable(
                f"{error.filename}: this user may not read or change it. Give it the right to, or run "
                "this as the user of the node, and check again."
            ) from error

    def _mend(self) -> Report:
        store, report = self._store, self.report
        check_layout(self._disk, self._options.levels)
        self._set_strays_aside()
        self._has_no_log = store.log.is_new
        cuts = self._mend_log()
        is_rebuilt = self._mend_index()
        in_doubt = is_rebuilt or any(not cut.is_torn_end for cut in cuts)
        gaps = store.open_carefully(in_doubt=in_doubt)
        tell_gaps(report, gaps, cuts)
        revived = dict.fromkeys(store.replay.revived)
        tell_revived(report, [one for one in revived if self._is_known(one)])
        reached, is_to_be_written = self._compare_manifest(is_rebuilt=is_rebuilt)
        try:
            total = len(store)
            for queue in self._queues():
                report.queues += 1
                self._look_at(queue)
                self._visited(report.queues, total)
            self._remove_orphans()
            self._salvage_all()
            raise_lsn(store, max(self._lsn + 1, reached))
            checkpoint.run(store, self._wall_ms)
            if is_to_be_written:
                write_manifest(self._disk, self._options.node, store.next_lsn)
        finally:
            self._handles.close()
            store.close()
        return report

    # --- the whole store --------------------------------------------------------------------------

    def _set_strays_aside(self) -> None:
        for place, (path, queue_id) in enumerate([*tree(self._disk, self._options.levels)]):
            if queue_id is not None:
                continue
            self.report.found("stray", f"{path} has no place in the tree of queues")
            folder = kept_folder(self._disk, self._stamp)
            try:
                self._disk.rename(path, f"{folder}/{place}-{path.rpartition('/')[2]}")
            except PermissionError:
                raise
            except OSError as error:
                # A copy in memory has no place for links to nothing and for what is no file.
                damage_of(error)

    def _mend_log(self) -> list[Cut]:
        cuts = mend_log(self._disk, f"{QUARANTINE}/{KEPT}{self._stamp}")
        tell_cuts(self.report, cuts)
        # What is lost may have been answered: its numbers are not given again.
        self._lsn = max([self._lsn, *(cut.loss.behind - 1 for cut in cuts)])
        return cuts

    def _mend_index(self) -> bool:
        why = lost_index(self._disk)
        if not why:
            return False
        text = f"{why}: it is rebuilt; queues that were empty, and owners, may be lost"
        self.report.found("index", text, is_mended_by_a_start=True)
        store = CarefulStore(self._disk, self._options, self._wall_ms)
        rebuilt_index(store, self._tell_rebuilt).save(self._disk, INDEX)
        store.files.handles.close()
        return True

    def _tell_rebuilt(self, queue: Queue, found: Found, missing: int) -> None:
        """What was wrong with a queue when the index was made anew: nobody finds it a second time."""
        self._tell(queue, found, 0)
        if missing:
            text = f"{missing} messages that its last state counts are in no file"
            self.report.found("missing", text, queue.id, lost=missing)

    def _compare_manifest(self, *, is_rebuilt: bool) -> tuple[int, bool]:
        """Tells what the manifest knows and the store lacks; how far the log came, and whether a manifest
        is to be written."""
        node, next_lsn = self._options.node, self._store.next_lsn
        manifest, why = found_manifest(self._disk)
        if manifest is None:
            # Without a node's id no node has run here yet: an import makes a store, and no manifest.
            if not why and not node:
                return 0, False
            if why:
                folder = kept_folder(self._disk, self._stamp)
                self._disk.rename(MANIFEST, f"{folder}/{MANIFEST}")
            text = f"{why or MANIFEST + ' is missing'}: whether the end of the log is there cannot be told"
            self.report.found("manifest", text, is_mended_by_a_start=True)
            return 0, bool(node)
        # With a lost index its number went, and that is told; a lost log is one thing more.
        if manifest.lsn > next_lsn and not is_rebuilt:
            first, last = next_lsn, manifest.lsn - 1
            untold = max(0, last - max(first - 1, self._lsn))
            text = (
                f"changes {first} to {last} are in no file, {last - first + 1} in all: the log or the index "
                "is older than it was"
            )
            self.report.found("log", text, lost_changes=untold)
        elif self._has_no_log:
            text = f"no file of it is there: what was stored behind change {next_lsn - 1} is gone"
            self.report.found("log", text, is_loss_unknown=True)
        return manifest.lsn, False

    def _queues(self) -> Iterator[Queue]:
        store = self._store
        for row in store.index.rows["id"]:
            queue_id = row.tobytes()
            queue = store.glance(queue_id)
            if queue is not None:
                yield queue
        for queue_id in sorted(store.fresh()):
            yield store.live[queue_id]

    def _remove_orphans(self) -> None:
        store, disk = self._store, self._disk
        known = {text_of(queue.id) for queue, _, _ in self._aside}
        for path, queue_id in [*tree(disk, self._options.levels)]:
            if queue_id is None or self._is_known(queue_id):
                continue
            store.files.handles.forget_folder(path)
            done = put_away(disk, path, queue_id, self._stamp)
            self.report.found("orphan", f"{path} is of no queue that exists; {done}", queue_id)
        for name in disk.list_folder(QUARANTINE) if disk.exists(QUARANTINE) else []:
            if REPAIRED in name or name.startswith(KEPT) or name in known:
                continue
            path = f"{QUARANTINE}/{name}"
            if name.removesuffix(BUILDING) in known:
                continue
            queue_id = queue_of_folder(name.partition(".")[0])
            done = put_away(disk, path, queue_id or b"", self._stamp)
            self.report.found("orphan", f"{path} is of no queue that is set aside; {done}")

    def _is_known(self, queue_id: bytes) -> bool:
        return self._store.glance(queue_id) is not None

    # --- one queue --------------------------------------------------------------------------------

    def _look_at(self, queue: Queue) -> None:
        aside = f"{QUARANTINE}/{text_of(queue.id)}"
        if queue.damaged or self._disk.exists(aside):
            why = "its files are gone"
            if self._disk.exists(f"{aside}/{WHY_ASIDE}"):
                why = (
                    read_all(self._disk, f"{aside}/{WHY_ASIDE}").decode("utf-8", "replace").strip()
                )
            self._set_aside(queue, "quarantine", f"set aside: {why}")
            return
        try:
            self._read(queue)
        except Damaged as error:
            if isinstance(error.__cause__, PermissionError):
                raise error.__cause__ from error
            self._store.live[queue.id] = queue
            self._store.files.quarantine(queue, str(error))
            kind = "foreign" if isinstance(error, Foreign) else "record"
            self._set_aside(queue, kind, str(error))
        self._handles.close()

    def _read(self, queue: Queue) -> None:
        """Reads all of a queue's files, which repairs what a crash left."""
        path = path_of(queue.id, self._options.levels)
        if self._disk.exists(path) or queue.stored or queue.consumed:
            folder = QueueFolder(self._disk, self._handles, path, queue.id, self._options.node)
            found, difference = bring_in_order(folder, queue, self._stamp, self._spare(queue))
            self._tell(queue, found, difference)
            state = found.state
            self._lsn = max(self._lsn, found.lsn)
            if state is not None:
                self._lsn = max(self._lsn, state.lsn)
                last, count = 0, 0
                for entry, _ in folder.entries(state, 0):
                    if entry.lsn <= last:
                        raise Damaged(f"message {entry.lsn} stands behind {last}")
                    last, count = entry.lsn, count + 1
                if count != state.size:
                    raise Damaged(f"the files hold {count} messages, the state says {state.size}")
                self._lsn = max(self._lsn, last)
        self.report.messages += queue.size

    def _tell(self, queue: Queue, found: Found, difference: int) -> None:
        for note in found.notes:
            is_lost = difference > 0 or found.missing > 0
            kind = "missing" if "missing" in note and is_lost else "state"
            kind = "older" if note.startswith(OLDER) else kind
            self.report.found(kind, note, queue.id, is_mended_by_a_start=kind == "state")
        self.report.doubled += found.doubled
        self.report.aside += found.aside
        if found.doubled:
            text = f"{found.doubled} messages may have been acknowledged, and come again"
            self.report.found("doubled", text, queue.id, is_mended_by_a_start=True)
        if found.aside:
            self.report.found("aside", f"{found.aside} records are set aside", queue.id)
        if difference:
            self._disagree(queue, difference)

    def _disagree(self, queue: Queue, difference: int) -> None:
        """The files are right: they are what can be delivered."""
        self._store.live[queue.id] = self._store.dirty[queue.id] = queue
        if difference > 0:
            text = f"{difference} messages that the index counts are in no file"
            self.report.found("missing", text, queue.id, lost=difference)
        else:
            text = f"the files hold {-difference} messages more than the index counts"
            self.report.found("disagreement", text, queue.id)

    def _set_aside(self, queue: Queue, kind: str, why: str) -> None:
        """To be salvaged when all has been looked at; what is lost is known only then."""
        self._store.live[queue.id] = queue
        self._aside.append((queue, kind, why))

    # --- salvage ----------------------------------------------------------------------------------

    def _salvage_all(self) -> None:
        renames = [rename for aside in self._aside for rename in self._salvage(*aside)]
        if not renames:
            return
        for _, target in renames:
            self._disk.make_folders(parent(target))
        # The new folders are whole on disk, and what they are in, before they take anything's place.
        self._disk.sync_all()
        for source, target in renames:
            if self._disk.exists(source):
                self._disk.rename(source, target)
        self._disk.sync_all()

    def _salvage(self, queue: Queue, kind: str, why: str) -> list[tuple[str, str]]:
        """Builds a new folder for a damaged queue; returns the renames that make it count."""
        disk, name = self._disk, text_of(queue.id)
        path, aside = path_of(queue.id, self._options.levels), f"{QUARANTINE}/{name}"
        building = aside + BUILDING
        make_durable(disk, aside)
        if disk.exists(path):
            # Of a repair that was killed: one more source.
            self._store.files.handles.forget_folder(path)
            disk.rename(path, f"{aside}/again-{self._stamp}")
        if disk.exists(building):
            disk.remove_folder(building)
        entries, lost = self._saved(queue, aside)
        lsn = max([self._store.next_lsn - 1, self._lsn, *(entry.lsn for entry in entries)])
        self._lsn = lsn
        self._store.files.close_queue(queue)
        _reset(queue, lsn)
        queue.can_write = all(entry.kind != QUOTA_MARKER for entry in entries)
        builder = FolderBuilder(
            disk, building, queue, self._options.file_messages_max, self._options.node
        )
        for entry in entries:
            builder.add(entry)
        builder.finish()
        self._store.dirty[queue.id] = queue
        self.report.saved += len(entries)
        self.report.messages += len(entries)
        told = f"{lost} are lost" if lost is not None else "how many are lost is not known"
        text = f"{why}; {len(entries)} messages can be read, {told}"
        self.report.found(kind, text, queue.id, lost=lost or 0, is_loss_unknown=lost is None)
        return [(building, path), (aside, f"{aside}{REPAIRED}{self._stamp}")]

    def _spare(self, queue: Queue) -> list[Entry]:
        return self._store.files.spare_of(queue)

    def _saved(self, queue: Queue, aside: str) -> tuple[list[Entry], int | None]:
        """What can be read of a queue that is set aside, and how many messages cannot, if that is known."""
        found = entries_in(self._disk, aside, seed_of(queue.id), self._options.node)
        more = [*self._spare(queue), *(queue.pending or ())]
        found.entries.update({entry.lsn: entry for entry in more})
        found.acknowledged = max(found.acknowledged, queue.acknowledged_lsn, queue.settled_lsn)
        in_files = queue.stored + len(queue.consumed or ())
        entries = found.waiting(in_files, queue.flushed_lsn)
        if not queue.flushed_lsn:
            # Its row was lost with the index. The last state counts, if nothing came behind it.
            last = None if queue.acknowledged_lsn else found.last
            return entries, found.lost(last.size, last.lsn) if last else None
        # Only of those the number is known; what came later is in the log, or was kept from it.
        return entries, found.lost(queue.stored, queue.flushed_lsn)


def _reset(queue: Queue, lsn: int) -> None:
    """Nothing is left of what was known of its files and of the log."""
    queue.damaged = False
    queue.pending = queue.consumed = queue.popped = None
    queue.flushed_lsn = queue.touched_lsn = lsn
