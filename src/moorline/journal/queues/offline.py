"""Room: journal/queues. A store in the hands of a tool, while no node runs on it.

    with viewed(disk, options) as store: …     looks; not a byte on disk changes
    with opened(disk, options) as store: …     changes; the log is empty before and behind it

How deep the folders lie is taken from the store itself, not from the settings: a tool must work on what is
there. What a tool writes is synced, whatever `queues.sync` says.
"""

import contextlib
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from moorline.core.queue.queue import Entry, Queue
from moorline.errors import ConfigError, JournalDamaged
from moorline.ids import text_of
from moorline.journal.disk import Disk
from moorline.journal.overlay import OverlayDisk
from moorline.journal.queues import checkpoint, layout
from moorline.journal.queues.files import StoreOptions
from moorline.journal.queues.folder import Damaged
from moorline.journal.queues.index import IndexDamaged
from moorline.journal.queues.manifest import found_manifest
from moorline.journal.queues.store import Store
from moorline.journal.queues.wal import Batch

OPEN_QUEUES = 16
"""Queues a tool has open at once: it visits one after the other."""

REPAIR = "run `moor journal check --repair`"


def options_of(disk: Disk, options: StoreOptions) -> StoreOptions:
    """The options for the store that is there; refuses one that is being moved."""
    found = layout.read_layout(disk)
    if found is not None and found.moving_to is not None:
        raise ConfigError(
            f"the queues are being moved to {found.moving_to} levels: "
            f"finish with `moor journal migrate --levels {found.moving_to}`"
        )
    levels = options.levels if found is None else found.levels
    manifest, _ = found_manifest(disk)
    node = options.node if manifest is None else manifest.node
    return msgspec.structs.replace(
        options, levels=levels, sync=True, open_queues_max=OPEN_QUEUES, node=node
    )


@contextlib.contextmanager
def viewed(
    disk: Disk, options: StoreOptions, wall_ms: Callable[[], int]
) -> Iterator[tuple[Store, Disk]]:
    """The store as a node would find it, and the disk that it is on."""
    overlay = OverlayDisk(disk)
    with _open(Store(overlay, options_of(disk, options), wall_ms)) as store:
        yield store, overlay


@contextlib.contextmanager
def opened(disk: Disk, options: StoreOptions, wall_ms: Callable[[], int]) -> Iterator[Store]:
    """The store itself, its log checkpointed; what is done to it is checkpointed at the end."""
    options = options_of(disk, options)
    layout.check_layout(disk, options.levels)
    with _open(Store(disk, options, wall_ms)) as store:
        checkpoint.run(store, wall_ms)
        yield store
        checkpoint.run(store, wall_ms)


@contextlib.contextmanager
def _open(store: Store) -> Iterator[Store]:
    try:
        store.open()
    except IndexDamaged as error:
        raise JournalDamaged(
            f"the index of the queues cannot be used ({error}): {REPAIR}"
        ) from error
    try:
        yield store
    finally:
        store.close()


def every_queue(store: Store, page: int = 4_096) -> Iterator[Queue]:
    """All queues in the order of their ids, without keeping them."""
    after = b""
    while True:
        ids = store.page(after, page)
        for queue_id in ids:
            queue = store.glance(queue_id)
            assert queue is not None, "a page names queues that are there"
            yield queue
        if len(ids) < page:
            return
        after = ids[-1]


def waiting(store: Store, queue: Queue) -> Iterator[Entry]:
    """Every message of a queue, in order: from its files, then from the log."""
    yield from waiting_in_files(store, queue)
    yield from queue.pending or ()


def waiting_in_files(store: Store, queue: Queue) -> Iterator[Entry]:
    """Those of them that are in its files."""
    if queue.damaged:
        raise _damaged(queue, "it is set aside")
    lost_before = store.files.lost_messages
    if queue.stored or queue.consumed or queue.popped is not None:
        reader = store.files.reader(queue)
        if reader is None:
            raise _damaged(queue, "its files are damaged")
        if store.files.lost_messages > lost_before:
            raise _damaged(queue, "messages are missing")
        state = reader.journal.stored
        if state is not None and queue.stored:
            entries = reader.folder.entries(state, len(queue.consumed or ()))
            try:
                for entry, _ in islice(entries, queue.stored):
                    yield entry
            except Damaged as error:
                raise _damaged(queue, str(error)) from error


def raise_lsn(store: Store, lsn: int) -> None:
    """The next change gets at least that number; nothing may wait in the batch."""
    assert not store.batch.count, "a change is not committed"
    if lsn > store.next_lsn:
        store.next_lsn = lsn
        store.committed_lsn = lsn - 1
        store.batch = Batch(lsn)


def migrate(
    disk: Disk,
    options: StoreOptions,
    levels: int,
    wall_ms: Callable[[], int],
    moved: Callable[[int, int], None],
) -> int:
    """Moves a store to another depth; returns how many folders were moved by this call.

    The log is checkpointed first, so that nothing is left in it that speaks of the old depth. Whoever is
    killed in between calls again: the layout file says what is under way.
    """
    found = layout.read_layout(disk)
    total = 0
    if found is None or found.moving_to is None:
        with opened(disk, options, wall_ms) as store:
            total = int((store.index.rows["size"] > 0).sum())
    elif found.moving_to != levels:
        raise ConfigError(
            f"the queues are being moved to {found.moving_to} levels: "
            f"finish with `moor journal migrate --levels {found.moving_to}` before another move"
        )
    return layout.migrate(disk, levels, lambda count: moved(count, max(total, count)))


def _damaged(queue: Queue, why: str) -> JournalDamaged:
    return JournalDamaged(f"the queue {text_of(queue.id)} cannot be read, {why}: {REPAIR}")
