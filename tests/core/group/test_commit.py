"""Commits: one at a time, with a pause behind each, and nothing that changed is forgotten."""

import pytest

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import SetTimer
from moorline.core.group.commit import Commits
from moorline.core.group.events import Commit, CommitFailed, Committed, LeaderOptions
from moorline.core.group.views import ShardView
from moorline.core.stream import Shard

OPTIONS = LeaderOptions()
ONE, OTHER = Shard("n1", 0), Shard("n1", 1)


def shards() -> dict[Shard, ShardView]:
    return {shard: ShardView(shard, Cursor(0)) for shard in (ONE, OTHER)}


def test_a_commit_has_the_cursors_of_now_and_the_next_one_waits() -> None:
    commits, views = Commits(OPTIONS), shards()
    commits.note(OTHER)
    commits.note(ONE)
    views[ONE].progress.ack(0, 5)
    assert commits.next(views) == Commit(1, ((ONE, Cursor(5)), (OTHER, Cursor(0))))
    commits.note(ONE)
    assert commits.next(views) is None, "one is under way"
    assert commits.answered(Committed(1)) == [SetTimer("commit", OPTIONS.commit_ms)]
    assert commits.next(views) is None, "a pause follows"
    commits.go_on()
    commits.check(views)
    assert commits.next(views) == Commit(2, ((ONE, Cursor(5)),))


def test_what_failed_is_stored_with_the_next() -> None:
    commits, views = Commits(OPTIONS), shards()
    commits.note(ONE)
    commits.next(views)
    assert commits.answered(CommitFailed(1)) == [SetTimer("commit", OPTIONS.commit_retry_ms)]
    commits.note(OTHER)
    commits.go_on()
    assert commits.next(views) == Commit(2, ((ONE, Cursor(0)), (OTHER, Cursor(0))))


def test_an_answer_to_an_earlier_one_says_nothing() -> None:
    commits, views = Commits(OPTIONS), shards()
    assert commits.answered(Committed(1)) == []
    commits.note(ONE)
    commits.next(views)
    assert commits.answered(Committed(7)) == []
    assert commits.is_busy


def test_without_changes_there_is_nothing_to_store() -> None:
    assert Commits(OPTIONS).next(shards()) is None


@pytest.mark.parametrize("broken", ["C1", "C2"])
def test_a_broken_state_is_found(broken: str) -> None:
    commits, views = Commits(OPTIONS), shards()
    commits.note(ONE)
    commits.next(views)
    commits.check(views)
    if broken == "C1":
        commits._is_pausing = True
    else:
        commits.note(Shard("nowhere", 0))
    with pytest.raises(AssertionError, match=broken):
        commits.check(views)
