"""Stores for the tests of tools: filled, opened again, and compared with what they should hold."""

import random
from collections.abc import Iterator
from pathlib import Path

from moorline.core.queue.queue import Queue
from moorline.journal.disk import Disk
from moorline.journal.queues import checkpoint
from moorline.journal.queues.check import check
from moorline.journal.queues.files import StoreOptions
from moorline.journal.queues.folder import path_of
from moorline.journal.queues.layout import check_layout
from moorline.journal.queues.offline import every_queue, options_of, waiting
from moorline.journal.queues.rebuild import rebuilt_index
from moorline.journal.queues.store import Store
from moorline.testing import Crashed, MemoryDisk
from moorline.testing.memory_disk import Lose

OPTIONS = StoreOptions(queue_messages_max=12, file_messages_max=16, levels=2)
NOW_MS = 1_767_225_600_000

Contents = dict[bytes, list[tuple[int, int, bytes]]]
"""Of each queue its messages: (id, kind, body)."""


def now() -> int:
    return NOW_MS


def unseen(_done: int, _total: int) -> None:
    """No progress is shown."""


def opened(disk: Disk, options: StoreOptions = OPTIONS) -> Store:
    check_layout(disk, options.levels)
    store = Store(disk, options, now)
    store.open(rebuilt_index)
    return store


def contents(disk: Disk, options: StoreOptions = OPTIONS) -> Contents:
    """What a node that starts here would deliver."""
    store = opened(disk, options_of(disk, options))
    try:
        return {
            queue.id: [(entry.lsn, entry.kind, entry.body) for entry in waiting(store, queue)]
            for queue in every_queue(store)
        }
    finally:
        store.close()


def filled(disk: Disk, queues: int = 4, options: StoreOptions = OPTIONS) -> list[bytes]:
    """Queues with messages in files, some acknowledged, and some more in the log; their ids in order."""
    store = opened(disk, options)
    made = sorted((store.create(b"owner") for _ in range(queues)), key=lambda queue: queue.id)
    for number in range(6):
        for queue in made:
            assert store.send(queue, b"stored %d" % number * 9, NOW_MS + number)
    checkpoint.run(store, now)
    for queue in made:
        acknowledge(store, queue, 2)
    checkpoint.run(store, now)
    for queue in made:
        assert store.send(queue, b"in the log", NOW_MS + 99)
    store.commit()
    store.close()
    return [queue.id for queue in made]


def acknowledge(store: Store, queue: Queue, count: int) -> None:
    for _ in range(count):
        head = store.head(queue)
        assert head is not None
        assert store.acknowledge(queue, head.lsn)


def tree(root: Path) -> dict[str, bytes | None]:
    """Every name below a folder with its bytes."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def folder_of(root: Path, queue_id: bytes, options: StoreOptions = OPTIONS) -> Path:
    return root / path_of(queue_id, options.levels)


def message_file(folder: Path) -> Path:
    (found,) = folder.glob("messages.*.log")
    return found


def flip(path: Path, offset: int) -> None:
    """One byte is not what was written."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x40
    path.write_bytes(data)


def killed_checkpoints(
    lose: Lose, *, has_problems: bool = False
) -> Iterator[tuple[MemoryDisk, int]]:
    """A store behind a crash at every step of a checkpoint, and how many messages it must hold.

    With `has_problems` only where a check finds something.
    """
    step, is_crashed = 0, True
    while is_crashed:
        disk = MemoryDisk()
        filled(disk)
        store = opened(disk)
        made = [store.create(b"owner"), *every_queue(store)]
        for queue in made:
            assert store.send(queue, b"more", NOW_MS)
        for queue in made[1:3]:
            acknowledge(store, queue, 1)
        store.commit()
        count = sum(queue.size for queue in every_queue(store))
        disk.crash_at = disk.steps + step
        try:
            checkpoint.run(store, now)
            is_crashed = False
        except Crashed:
            pass
        disk.crash(random.Random(step), lose=lose)
        if not has_problems or check(disk, OPTIONS, now, unseen).problems:
            yield disk, count
        step += 1
