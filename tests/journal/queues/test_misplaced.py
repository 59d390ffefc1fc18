"""Something else stands in the place of a queue's files: the queue is set aside, nothing else suffers."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.journal.queues.stores import (
    NOW_MS,
    OPTIONS,
    Contents,
    contents,
    filled,
    flip,
    folder_of,
    message_file,
    now,
    opened,
    tree,
    unseen,
)

from moorline.errors import FolderUnusable
from moorline.ids import text_of
from moorline.journal.disk import DiskFile, FileDisk
from moorline.journal.queues import checkpoint
from moorline.journal.queues.check import check, repair
from moorline.journal.queues.folder import path_of
from moorline.journal.queues.offline import waiting
from moorline.journal.queues.store import Store

pytestmark = pytest.mark.slow

Put = Callable[[Path], None]
Place = Callable[[Path], Path]


def a_folder(path: Path) -> None:
    path.mkdir()


def a_file(path: Path) -> None:
    path.write_bytes(b"not ours")


def a_loop(path: Path) -> None:
    path.symlink_to(path.name)


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def the_state(folder: Path) -> Path:
    return folder / "queue.log"


def the_folder(folder: Path) -> Path:
    return folder


def the_folder_above(folder: Path) -> Path:
    return folder.parent


CASES: list[tuple[Place, Put]] = [
    *((the_state, put) for put in (a_folder, a_loop, a_link_to_nothing, a_pipe)),
    *((message_file, put) for put in (a_folder, a_loop, a_link_to_nothing, a_pipe)),
    *((the_folder, put) for put in (a_file, a_loop, a_link_to_nothing)),
    *((the_folder_above, put) for put in (a_file, a_loop)),
]


class Harm:
    """A store of four queues, and the place in one of them where something else is put."""

    def __init__(self, root: Path, place: Place) -> None:
        self.root = root
        self.disk = FileDisk(root)
        self.ids = filled(self.disk)
        self.victim = self.ids[1]
        self.before = contents(self.disk)
        self.place = place(folder_of(root, self.victim))
        self.rescued = root.parent / "rescued"

    def put(self, put: Put) -> None:
        self.place.rename(self.rescued)
        put(self.place)

    def undo(self) -> None:
        """What was displaced is found again, and given to the repair."""
        found = self.root / "quarantine" / text_of(self.victim) / "found-again"
        found.mkdir()
        self.rescued.rename(found / self.place.name)

    @property
    def others(self) -> Contents:
        return {queue: found for queue, found in self.before.items() if queue != self.victim}

    def readable(self, store: Store) -> Contents:
        """What the queues that are not set aside deliver."""
        found: Contents = {}
        for queue_id in self.ids:
            queue = store.find(queue_id)
            if queue is not None and not queue.damaged:
                entries = waiting(store, queue)
                found[queue_id] = [(entry.lsn, entry.kind, entry.body) for entry in entries]
        return found

    def is_damaged(self, store: Store) -> bool:
        queue = store.find(self.victim)
        assert queue is not None
        return queue.damaged


@pytest.fixture
def harm(tmp_path: Path, place: Place) -> Harm:
    return Harm(tmp_path / "queues", place)


def named(value: object) -> str:
    return getattr(value, "__name__", "")


@pytest.mark.parametrize(("place", "put"), CASES, ids=named)
def test_a_queue_found_so_is_set_aside_and_the_others_go_on(harm: Harm, put: Put) -> None:
    harm.put(put)
    store = opened(harm.disk)
    queue = store.find(harm.victim)
    assert queue is not None
    assert store.head(queue) is None
    assert queue.damaged
    assert harm.readable(store) == harm.others
    checkpoint.run(store, now)
    store.close()
    assert harm.disk.open_handles == 0

    store = opened(harm.disk)
    assert harm.is_damaged(store)
    assert harm.readable(store) == harm.others
    store.close()

    # What was promised and was in no file yet is kept, and comes back with the repair.
    check(harm.disk, OPTIONS, now, unseen)
    repair(harm.disk, OPTIONS, now, unseen)
    after = contents(harm.disk)
    assert after.pop(harm.victim)[-1:] == harm.before[harm.victim][-1:]
    assert after == harm.others
    assert check(harm.disk, OPTIONS, now, unseen).problems == []


@pytest.mark.parametrize(
    ("place", "put"), [case for case in CASES if case[0] is not the_folder_above], ids=named
)
def test_a_queue_that_a_checkpoint_finds_so_loses_nothing(harm: Harm, put: Put) -> None:
    store = opened(harm.disk)
    for queue_id in harm.ids:
        queue = store.find(queue_id)
        assert queue is not None
        assert store.send(queue, b"one more", NOW_MS + 100)
    harm.put(put)
    checkpoint.run(store, now)
    assert harm.is_damaged(store)
    store.close()

    harm.undo()
    repair(harm.disk, OPTIONS, now, unseen)
    after = contents(harm.disk)
    # Only what the state said of acknowledgements may be forgotten.
    expected = harm.before[harm.victim]
    assert after[harm.victim][-1][2] == b"one more"
    assert after[harm.victim][-1 - len(expected) : -1] == expected
    for queue_id, found in harm.others.items():
        assert after[queue_id][:-1] == found


@pytest.mark.parametrize(
    ("place", "put"), [(message_file, a_folder), (message_file, a_loop)], ids=named
)
def test_a_queue_that_is_in_use_is_set_aside_too(harm: Harm, put: Put) -> None:
    store = opened(harm.disk)
    queue = store.find(harm.victim)
    assert queue is not None
    assert store.files.reader(queue) is not None
    harm.put(put)
    # As when many other queues were used since: the file is not open any more.
    store.files.handles.close()
    assert store.head(queue) is None
    assert queue.damaged
    assert harm.readable(store) == harm.others
    store.close()


@pytest.mark.parametrize(("place", "put"), CASES, ids=named)
def test_such_a_queue_can_be_deleted(harm: Harm, put: Put) -> None:
    harm.put(put)
    store = opened(harm.disk)
    queue = store.find(harm.victim)
    assert queue is not None
    store.delete(queue)
    checkpoint.run(store, now)
    assert store.find(harm.victim) is None
    assert harm.readable(store) == harm.others
    store.close()
    repair(harm.disk, OPTIONS, now, unseen)
    assert contents(harm.disk) == harm.others


@pytest.mark.parametrize("place", [the_folder])
def test_a_damaged_folder_behind_a_link_is_only_the_link_that_moves(harm: Harm) -> None:
    harm.place.rename(harm.rescued)
    harm.place.symlink_to(harm.rescued)
    flip(message_file(harm.rescued), -1)
    store = opened(harm.disk)
    queue = store.find(harm.victim)
    assert queue is not None
    assert store.head(queue) is None
    assert queue.damaged
    store.delete(queue)
    store.commit()
    store.close()
    assert not harm.place.is_symlink()
    assert harm.rescued.is_dir()


# --- rights ---------------------------------------------------------------------------------------


class Forbidding(FileDisk):
    """A disk on which one folder may not be touched, whoever runs this."""

    def __init__(self, root: Path, forbidden: str) -> None:
        super().__init__(root)
        self.forbidden = forbidden

    def open(self, path: str, *, create: bool) -> DiskFile:
        self._forbid(path)
        return super().open(path, create=create)

    def list_folder(self, path: str) -> list[str]:
        self._forbid(path)
        return super().list_folder(path)

    def rename(self, source: str, target: str) -> None:
        self._forbid(source)
        super().rename(source, target)

    def remove_folder(self, path: str) -> None:
        self._forbid(path)
        super().remove_folder(path)

    def _forbid(self, path: str) -> None:
        if f"{path}/".startswith(f"{self.forbidden}/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


@pytest.mark.parametrize("place", [the_folder])
def test_a_queue_that_may_not_be_touched_stays_whole_until_it_may(harm: Harm) -> None:
    forbidding = Forbidding(harm.root, path_of(harm.victim, OPTIONS.levels))
    store = opened(forbidding)
    queue = store.find(harm.victim)
    assert queue is not None
    assert store.head(queue) is None
    assert queue.damaged
    assert harm.readable(store) == harm.others
    checkpoint.run(store, now)
    store.close()

    before = tree(harm.root)
    with pytest.raises(FolderUnusable, match="may not read or change it"):
        check(forbidding, OPTIONS, now, unseen)
    assert tree(harm.root) == before
    with pytest.raises(FolderUnusable, match="may not read or change it"):
        repair(forbidding, OPTIONS, now, unseen)

    repair(harm.disk, OPTIONS, now, unseen)
    assert contents(harm.disk) == harm.before


@pytest.mark.parametrize("place", [the_folder])
def test_a_check_that_may_not_read_a_queue_gives_nothing_up(harm: Harm) -> None:
    forbidding = Forbidding(harm.root, path_of(harm.victim, OPTIONS.levels))
    with pytest.raises(FolderUnusable, match="may not read or change it"):
        repair(forbidding, OPTIONS, now, unseen)
    assert contents(harm.disk) == harm.before


@pytest.mark.parametrize("place", [the_folder])
def test_a_queue_that_may_not_be_touched_can_be_deleted(harm: Harm) -> None:
    store = opened(Forbidding(harm.root, path_of(harm.victim, OPTIONS.levels)))
    queue = store.find(harm.victim)
    assert queue is not None
    store.delete(queue)
    checkpoint.run(store, now)
    store.close()
    assert contents(harm.disk) == harm.others


@pytest.mark.parametrize("place", [the_folder])
def test_a_failing_device_is_no_damage_to_a_queue(
    harm: Harm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is set aside for an error that may be gone at the next try, or is that of all queues."""
    store = opened(harm.disk)
    queue = store.find(harm.victim)
    assert queue is not None

    def failing(_path: str) -> list[str]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(harm.disk, "list_folder", failing)
        with pytest.raises(OSError, match="open files"):
            store.head(queue)
    assert not queue.damaged
    assert harm.readable(store) == harm.before
    store.close()


@pytest.mark.parametrize("place", [the_folder_above])
@pytest.mark.parametrize("put", [a_file, a_loop])
def test_what_stands_first_in_the_tree_says_nothing_of_its_depth(harm: Harm, put: Put) -> None:
    """Whichever of the folders it is: here the first one that a check meets."""
    put(harm.root / "messages" / "--")
    harm.put(put)
    check(harm.disk, OPTIONS, now, unseen)
    repair(harm.disk, OPTIONS, now, unseen)
    after = contents(harm.disk)
    after.pop(harm.victim)
    assert after == harm.others
