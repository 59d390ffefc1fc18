"""A folder of the same queue that another node wrote, or of an earlier time: named, and never delivered."""

import shutil
from pathlib import Path

import msgspec
import pytest
from tests.journal.queues.stores import (
    OPTIONS,
    acknowledge,
    contents,
    filled,
    folder_of,
    now,
    opened,
    tree,
    unseen,
)

from moorline.journal.disk import FileDisk
from moorline.journal.queues import checkpoint
from moorline.journal.queues.check import check, repair
from moorline.journal.queues.manifest import write_manifest

ONE = msgspec.structs.replace(OPTIONS, node="one-0000000000000000000000000000")
TWO = msgspec.structs.replace(OPTIONS, node="two-0000000000000000000000000000")


def copied(tmp_path: Path) -> tuple[FileDisk, bytes, set[bytes]]:
    """A store of the node one, in which the folder of one queue comes from the node two; what is in it."""
    for_two = tmp_path / "two"
    (victim, *_) = filled(FileDisk(for_two), 2, OPTIONS)
    shutil.copytree(for_two, tmp_path / "one")
    for options in (ONE, TWO):
        store = opened(FileDisk(tmp_path / options.node[:3]), options)
        checkpoint.run(store, now)
        write_manifest(store.disk, options.node, store.next_lsn)
        store.close()
    disk = FileDisk(tmp_path / "one")
    assert check(disk, ONE, now, unseen).problems == []
    place = folder_of(tmp_path / "one", victim)
    shutil.rmtree(place)
    shutil.copytree(folder_of(for_two, victim), place)
    return disk, victim, {path.read_bytes() for path in place.glob("messages.*.log")}


def test_a_repair_names_it_delivers_none_of_it_and_keeps_it(tmp_path: Path) -> None:
    disk, victim, files = copied(tmp_path)
    (problem,) = check(disk, ONE, now, unseen).problems
    assert (problem.kind, problem.lost) == ("foreign", 5)
    assert "written by the node two-0000…, and this one is one-0000…" in problem.text
    assert repair(disk, ONE, now, unseen).problems == [problem]
    assert check(disk, ONE, now, unseen).problems == []
    found = contents(disk, ONE)
    assert found[victim] == []
    assert sorted(map(len, found.values())) == [0, 5], "the other one is whole"
    assert files <= set(tree(tmp_path / "one").values())


def test_a_node_sets_the_queue_aside_at_its_first_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk, victim, files = copied(tmp_path)
    store = opened(disk, ONE)
    queue = store.find(victim)
    assert queue is not None
    assert store.head(queue) is None
    assert queue.damaged
    assert "queue set aside" in caplog.text
    store.close()
    assert files <= set(tree(tmp_path / "one").values())


def test_an_earlier_copy_of_its_own_folder_is_named_as_older(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FileDisk(tmp_path / "one")
    (victim, *_) = filled(disk, 2, ONE)
    store = opened(disk, ONE)
    checkpoint.run(store, now)
    place = folder_of(tmp_path / "one", victim)
    shutil.copytree(place, tmp_path / "earlier")
    queue = store.find(victim)
    assert queue is not None
    acknowledge(store, queue, 5)
    for _ in range(5):
        assert store.send(queue, b"later", now())
    checkpoint.run(store, now)
    write_manifest(disk, ONE.node, store.next_lsn)
    store.close()
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "earlier", place)
    report = check(disk, ONE, now, unseen)
    assert "older" in [problem.kind for problem in report.problems]
    assert report.lost == 5
    store = opened(disk, ONE)
    queue = store.find(victim)
    assert queue is not None
    assert store.head(queue) is None, "what was acknowledged does not come again"
    assert "the files are older than the index" in caplog.text
    assert store.files.lost_messages == 5
    store.close()
