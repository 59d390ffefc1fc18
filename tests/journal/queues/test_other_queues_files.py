"""Files of another queue, or of an earlier time: delivered to nobody, and what is lost is told."""

import shutil
from pathlib import Path

import pytest
from tests.journal.queues.stores import (
    NOW_MS,
    OPTIONS,
    acknowledge,
    contents,
    filled,
    folder_of,
    message_file,
    now,
    opened,
    tree,
    unseen,
)

from moorline.errors import FolderUnusable
from moorline.journal.disk import FileDisk
from moorline.journal.queues import checkpoint
from moorline.journal.queues.check import check, repair
from moorline.journal.queues.index import EARLIER_MAGIC, INDEX
from moorline.journal.queues.report import Report

STORED = 4
"""Messages in the files of each queue; one more is in the log."""


class TwoQueues:
    """A store of four queues; files of two of them are mixed up."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = FileDisk(root)
        self.ids = filled(self.disk)
        self.before = contents(self.disk)
        self.one, self.other = (folder_of(root, queue_id) for queue_id in self.ids[:2])

    def mended(self) -> Report:
        """After a repair; a check before it said the same, and one behind it finds nothing."""
        told = check(self.disk, OPTIONS, now, unseen)
        done = repair(self.disk, OPTIONS, now, unseen)
        assert (told.lost, told.saved) == (done.lost, done.saved)
        assert check(self.disk, OPTIONS, now, unseen).problems == []
        return done

    def assert_nobody_gets_anothers(self) -> None:
        after = contents(self.disk)
        assert after.keys() == self.before.keys()
        for queue_id, messages in after.items():
            assert [m for m in messages if m not in self.before[queue_id]] == []

    def bytes_kept(self, data: bytes) -> bool:
        return data in tree(self.root).values()


@pytest.fixture
def two(tmp_path: Path) -> TwoQueues:
    return TwoQueues(tmp_path / "queues")


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


@pytest.mark.parametrize("what", ["folders", "message files"])
def test_files_that_were_swapped_are_delivered_to_nobody(two: TwoQueues, what: str) -> None:
    """They belong to other owners: each queue goes on with what the log has, and tells of the rest."""
    data = message_file(two.one).read_bytes()
    if what == "folders":
        swap(two.one, two.other)
    else:
        swap(message_file(two.one), message_file(two.other))
    assert two.mended().lost == 2 * STORED
    two.assert_nobody_gets_anothers()
    assert two.bytes_kept(data), "whoever finds out can put them back"


def test_a_node_sets_a_queue_with_anothers_files_aside(two: TwoQueues) -> None:
    swap(two.one, two.other)
    store = opened(two.disk)
    queue = store.find(two.ids[0])
    assert queue is not None
    assert store.head(queue) is None
    assert queue.damaged
    with pytest.raises(StopIteration) as looked:
        next(store.files.unreadable(queue))
    assert looked.value.value == STORED + 1
    store.close()


def test_a_message_file_of_another_queue_is_set_aside(two: TwoQueues) -> None:
    data = message_file(two.other).read_bytes()
    shutil.copy(message_file(two.other), two.one / "messages.strange.log")
    assert two.mended().lost == 0
    assert contents(two.disk) == two.before
    assert (two.one / f"messages.strange.aside-{NOW_MS:014}").read_bytes() == data


def test_the_states_of_another_queue_acknowledge_nothing(two: TwoQueues) -> None:
    """One in which nothing waits would else show all of this queue's messages to be done with."""
    store = opened(two.disk)
    other = store.find(two.ids[1])
    assert other is not None
    acknowledge(store, other, STORED + 1)
    checkpoint.run(store, now)
    store.close()
    (empty,) = two.other.glob("queue.*.log")
    shutil.copy(empty, two.one / empty.name)
    (two.one / "queue.log").write_bytes(b"torn")
    assert two.mended().lost == 0
    assert contents(two.disk)[two.ids[0]] == two.before[two.ids[0]]


@pytest.mark.parametrize("sent", [STORED, STORED + 1, STORED + 3])
def test_files_of_an_earlier_time_stand_in_for_none_that_is_lost(two: TwoQueues, sent: int) -> None:
    """All of theirs were acknowledged since. As many may wait now: the row knows which do not."""
    store = opened(two.disk)
    checkpoint.run(store, now)
    store.close()
    earlier = two.root.with_name("earlier")
    shutil.copytree(two.one, earlier)
    store = opened(two.disk)
    queue = store.find(two.ids[0])
    assert queue is not None
    acknowledge(store, queue, STORED + 1)
    for number in range(sent):
        assert store.send(queue, b"later %d" % number, NOW_MS)
    checkpoint.run(store, now)
    store.close()
    shutil.rmtree(two.one)
    shutil.copytree(earlier, two.one)
    assert two.mended().lost == sent
    assert contents(two.disk)[two.ids[0]] == [], "what was acknowledged does not come again"


def test_an_index_of_an_earlier_version_is_refused_by_name(two: TwoQueues) -> None:
    """To rebuild it would set every queue aside: their records have other checks."""
    path = two.root / INDEX
    path.write_bytes(EARLIER_MAGIC + path.read_bytes()[len(EARLIER_MAGIC) :])
    before = tree(two.root)
    for attempt in (lambda: opened(two.disk), lambda: check(two.disk, OPTIONS, now, unseen)):
        with pytest.raises(FolderUnusable, match="earlier version"):
            attempt()
    assert tree(two.root) == before


def test_what_the_index_before_knows_to_be_acknowledged_is_not_told_as_lost(two: TwoQueues) -> None:
    """The index is lost, and the states are of an earlier time: the one before knows how far it went."""
    earlier = (two.one / "queue.log").read_bytes()
    store = opened(two.disk)
    queue = store.find(two.ids[0])
    assert queue is not None
    for _ in range(2):
        acknowledge(store, queue, 1)
        checkpoint.run(store, now)
    store.close()
    (two.one / "queue.log").write_bytes(earlier)
    (two.root / INDEX).unlink()
    report = two.mended()
    assert (report.lost, report.saved) == (0, 0)
    assert contents(two.disk)[two.ids[0]] == two.before[two.ids[0]][1:], (
        "the last one may come twice"
    )
