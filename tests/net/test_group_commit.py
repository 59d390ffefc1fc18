"""Group commit, over a small store on a disk in memory: what is durable, seen and answered, in what order."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from tests.waiting import until

from moorline.errors import DiskFull, OutcomeUnknown
from moorline.net import group_commit
from moorline.net.group_commit import GroupCommit
from moorline.testing import MemoryDisk
from moorline.wire.message import Answer
from moorline.wire.queue import Done

WITHIN_S = 15

Story = list[str]
"""What happened, in order."""


class Lines:
    """A store of lines: a batch of them is an append and a sync. Its writes wait while `gate` is closed."""

    def __init__(self, disk: MemoryDisk, story: Story, *, quick: bool = False) -> None:
        self.seen: list[bytes] = []
        self.gate = threading.Event()
        self.gate.set()
        self.threads: set[int] = set()
        self.quick = quick
        self.refuses_commits = False
        self.begun: list[Callable[[BaseException | None], None]] = []
        self._file = disk.open("lines", create=True)
        self._story = story
        self._waiting: list[bytes] = []

    def add(self, line: bytes) -> None:
        self._waiting.append(line)

    @property
    def batch_bytes(self) -> int:
        return sum(map(len, self._waiting))

    def take_batch(self) -> list[bytes] | None:
        if not self._waiting:
            return None
        batch, self._waiting = self._waiting, []
        self._story.append(f"take {shown(batch)}")
        return batch

    def is_quick(self, batch: list[bytes]) -> bool:  # noqa: ARG002
        return self.quick

    def write(self, batch: list[bytes]) -> None:
        assert self.gate.wait(WITHIN_S)
        self.threads.add(threading.get_ident())
        self._file.append(b"".join(batch))
        self._story.append("append")
        self._file.sync()
        self._story.append("sync")

    def begin(self, batch: list[bytes], done: Callable[[BaseException | None], None]) -> bool:
        """As a kernel that syncs by itself; short lines only."""
        if len(batch[0]) > 1:
            return False
        self._file.append(b"".join(batch))
        self._story.append("append")
        self.begun.append(done)
        return True

    def finish(self) -> None:
        """What was begun is synced, or has failed."""
        done = self.begun.pop(0)
        try:
            self._file.sync()
        except OSError as error:
            done(error)
            return
        self._story.append("sync")
        done(None)

    def committed(self, batch: list[bytes]) -> None:
        if self.refuses_commits:
            raise OSError(5, "what is in memory is not what is on the disk")
        self.seen += batch
        self._story.append(f"committed {shown(batch)}")


class Sender:
    """A caller that remembers what it was told, and why it is held."""

    def __init__(self, story: Story) -> None:
        self.answers: list[int] = []
        self.holds: set[str] = set()
        self._story = story

    def answer(self, answers: list[Answer]) -> None:
        calls = [answer.call for answer in answers]
        self.answers += calls
        self._story.append(f"answer {calls}")

    def hold_reading(self, reason: str) -> None:
        self.holds.add(reason)

    def release_reading(self, reason: str) -> None:
        self.holds.remove(reason)


class Scene:
    """A store, its group commit, and one sender."""

    def __init__(
        self, disk: MemoryDisk | None = None, *, quick: bool = False, begins: bool = False
    ) -> None:
        self.story: Story = []
        self.disk = disk or MemoryDisk()
        self.store = Lines(self.disk, self.story, quick=quick)
        self.sender = Sender(self.story)
        self.is_ours = True
        self.pause_ms = 0
        self.commits: GroupCommit[list[bytes]] = GroupCommit(
            self.store,
            "lines",
            answered=lambda batch: self.story.append(f"answered {shown(batch)}"),
            pause_ms=lambda _: self.pause_ms,
            begin=self.store.begin if begins else None,
        )
        self.commits.may_answer = lambda: self.is_ours

    def send(self, call: int, line: bytes, sender: Sender | None = None) -> None:
        self.store.add(line)
        self.commits.answer(sender or self.sender, Done(call))
        self.commits.changed()

    async def written(self, story: str) -> None:
        await until(lambda: story in self.story)

    def stored(self) -> bytes:
        """What is on the disk, whatever was committed."""
        return self.disk.files().get("lines", b"")

    async def close(self) -> None:
        self.store.gate.set()
        await self.commits.close()


def shown(batch: list[bytes]) -> str:
    return b"".join(batch).decode()


@pytest.mark.parametrize("quick", [False, True])
async def test_a_change_is_appended_and_synced_then_seen_and_then_answered(quick: bool) -> None:
    scene = Scene(quick=quick)
    scene.send(1, b"a")
    scene.commits.when_durable(lambda: scene.story.append("called back"))
    await scene.written("answered a")
    assert scene.story == [
        "take a",
        "append",
        "sync",
        "committed a",
        "answer [1]",
        "called back",
        "answered a",
    ]
    on_the_loop = {threading.get_ident()}
    assert (scene.store.threads == on_the_loop) is quick
    assert scene.commits.count == 1
    await scene.close()


async def test_what_changes_in_one_turn_shares_a_commit() -> None:
    """And each caller gets all of its answers at once."""
    scene = Scene()
    other = Sender(scene.story)
    scene.send(1, b"a")
    scene.send(7, b"b", other)
    scene.store.add(b"c")
    scene.commits.answer_all(scene.sender, [Done(2), Done(3)])
    await asyncio.wait_for(scene.commits.durable(), WITHIN_S)
    assert (scene.sender.answers, other.answers) == ([1, 2, 3], [7])
    assert scene.story.count("sync") == 1
    assert scene.commits.count == 1
    await scene.close()


async def test_what_arrives_during_a_write_is_the_next_which_begins_before_anybody_is_answered() -> (
    None
):
    scene = Scene()
    scene.store.gate.clear()
    scene.send(1, b"a")
    await scene.written("take a")
    scene.send(2, b"b")
    scene.send(3, b"c")
    scene.store.gate.set()
    await scene.written("answered bc")
    first = [one for one in scene.story if one not in ("append", "sync")][:4]
    assert first == ["take a", "committed a", "take bc", "answer [1]"]
    assert scene.sender.answers == [1, 2, 3]
    await scene.close()


async def test_a_write_that_was_begun_is_answered_when_it_is_told_of() -> None:
    scene = Scene(begins=True)
    scene.send(1, b"a")
    await until(lambda: len(scene.store.begun) == 1)
    scene.send(2, b"b")
    await asyncio.sleep(0)
    assert scene.story == ["take a", "append"]
    scene.store.finish()
    assert scene.story[2:] == [
        "sync",
        "committed a",
        "take b",
        "append",
        "answer [1]",
        "answered a",
    ]
    # A long one goes by the thread, behind it.
    scene.send(3, b"long")
    scene.store.finish()
    await scene.written("answered long")
    assert scene.sender.answers == [1, 2, 3]
    assert threading.get_ident() not in scene.store.threads
    await scene.close()


async def test_a_write_that_was_begun_and_fails_is_answered_to_nobody() -> None:
    disk = MemoryDisk(fail_sync=True)
    scene = Scene(disk, begins=True)
    scene.send(1, b"a")
    await until(lambda: len(scene.store.begun) == 1)
    scene.store.finish()
    assert "the disk of the lines failed" in str(scene.commits.failed.result())
    scene.send(2, b"b")
    await asyncio.wait_for(scene.commits.next(), WITHIN_S)
    await scene.close()
    assert scene.story == ["take a", "append"]
    assert (scene.sender.answers, scene.store.seen) == ([], [])


async def test_a_quick_commit_takes_one_turn_and_one_behind_it_lets_its_answers_leave_first() -> (
    None
):
    scene = Scene(quick=True)
    scene.send(1, b"a")
    await asyncio.sleep(0)
    assert scene.sender.answers == [1]
    scene.story.clear()
    scene.send(2, b"b")
    scene.commits.when_durable(lambda: scene.send(4, b"d"))
    answer = scene.sender.answer

    def answered(answers: list[Answer]) -> None:
        answer(answers)
        if answers[0].call == 2:
            scene.send(3, b"c")

    scene.sender.answer = answered  # type: ignore[method-assign]
    await scene.written("answered cd")
    assert scene.story == [
        *("take b", "append", "sync", "committed b", "answer [2]", "answered b"),
        *("take cd", "append", "sync", "committed cd", "answer [3, 4]", "answered cd"),
    ]
    await scene.close()


async def test_what_changes_while_a_quick_commit_is_under_way_is_the_next() -> None:
    """Also where nobody says again that something changed."""
    scene = Scene(quick=True)
    committed = scene.store.committed

    def commit_and_change(batch: list[bytes]) -> None:
        committed(batch)
        if batch == [b"a"]:
            scene.send(2, b"b")

    scene.store.committed = commit_and_change  # type: ignore[method-assign]
    scene.send(1, b"a")
    await scene.written("answered b")
    assert scene.story == [
        *("take a", "append", "sync", "committed a", "take b", "answer [1]", "answered a"),
        *("append", "sync", "committed b", "answer [2]", "answered b"),
    ]
    await scene.close()


@pytest.mark.parametrize("quick", [False, True])
async def test_after_a_failed_write_nobody_is_answered_and_nothing_is_written(quick: bool) -> None:
    disk = MemoryDisk(fail_sync=True)
    scene = Scene(disk, quick=quick)
    called: list[str] = []
    scene.send(1, b"a")
    scene.commits.when_durable(lambda: called.append("a"))
    with pytest.raises(OutcomeUnknown, match="the disk of the lines failed"):
        await asyncio.wait_for(scene.commits.durable(), WITHIN_S)
    assert "the disk of the lines failed" in str(scene.commits.failed.result())
    disk.fail_sync = False
    scene.send(2, b"b")
    with pytest.raises(OutcomeUnknown):
        await asyncio.wait_for(scene.commits.durable(), WITHIN_S)
    await asyncio.wait_for(scene.commits.next(), WITHIN_S)
    await scene.close()
    assert scene.story == ["take a", "append"]
    assert (scene.sender.answers, called, scene.store.seen) == ([], [], [])


async def test_whoever_waits_on_a_full_disk_is_told_and_does_not_wait_for_ever() -> None:
    scene = Scene(MemoryDisk(capacity_bytes=3))
    scene.send(1, b"abc")
    await asyncio.wait_for(scene.commits.durable(), WITHIN_S)
    scene.send(2, b"d")
    with pytest.raises(OutcomeUnknown, match="whether it is stored is unknown"):
        await asyncio.wait_for(scene.commits.durable(), WITHIN_S)
    assert isinstance(scene.commits.failed.result(), DiskFull)
    assert (scene.sender.answers, scene.store.seen) == ([1], [b"abc"])
    await scene.close()


async def test_a_store_that_cannot_take_over_what_was_written_fails_too() -> None:
    scene = Scene()
    scene.store.refuses_commits = True
    scene.send(1, b"a")
    error = await asyncio.wait_for(scene.commits.failed, WITHIN_S)
    assert "not what is on the disk" in str(error)
    assert scene.sender.answers == []
    await scene.close()


async def test_only_the_first_failure_is_told() -> None:
    scene = Scene()
    scene.commits.fail(OSError("the first"))
    scene.commits.fail(OSError("the second"))
    assert "the first" in str(scene.commits.failed.result())
    await scene.close()


async def test_while_the_identity_has_lapsed_no_commit_begins_and_senders_are_held() -> None:
    scene = Scene()
    scene.is_ours = False
    scene.send(1, b"a")
    scene.commits.hold_if_behind(scene.sender)
    await turns_of_the_loop()
    assert (scene.story, len(scene.sender.holds)) == ([], 1)
    scene.is_ours = True
    scene.commits.go_on()
    await scene.written("answered a")
    assert (scene.sender.answers, scene.sender.holds) == ([1], set())
    await scene.close()


async def test_what_was_on_its_way_when_the_identity_lapsed_is_stored_and_neither_seen_nor_answered() -> (
    None
):
    scene = Scene()
    scene.store.gate.clear()
    scene.send(1, b"a")
    await scene.written("take a")
    scene.is_ours = False
    scene.send(2, b"b")
    scene.store.gate.set()
    await scene.written("sync")
    await until(lambda: scene.commits._is_held_back)
    await turns_of_the_loop()
    assert scene.stored() == b"a"
    assert (scene.store.seen, scene.sender.answers) == ([], [])
    assert not scene.commits.is_idle
    scene.is_ours = True
    scene.commits.go_on()
    await scene.written("answered b")
    assert scene.sender.answers == [1, 2]
    assert scene.store.seen == [b"a", b"b"]
    await scene.close()


async def test_a_sender_is_held_while_the_disk_is_behind_and_goes_on_with_the_next_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "COMMIT_BYTES_MAX", 2)
    scene = Scene()
    other = Sender(scene.story)
    scene.store.gate.clear()
    scene.send(1, b"a")
    scene.commits.hold_if_behind(scene.sender)
    assert scene.sender.holds == set()
    await scene.written("take a")
    scene.send(2, b"bcd")
    scene.send(3, b"e", other)
    scene.commits.hold_if_behind(scene.sender)
    scene.commits.hold_if_behind(other)
    assert len(scene.sender.holds) == len(other.holds) == 1
    scene.store.gate.set()
    await scene.written("committed a")
    await until(lambda: not scene.sender.holds and not other.holds)
    await scene.close()
    assert (scene.sender.answers, other.answers) == ([1, 2], [3])


async def test_a_callback_that_raises_keeps_nobody_else_from_hearing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    heard: list[str] = []

    def broken() -> None:
        raise ValueError("whoever wanted this is gone")

    scene.send(1, b"a")
    scene.commits.when_durable(broken)
    scene.commits.when_durable(lambda: heard.append("a"))
    await scene.written("answered a")
    assert heard == ["a"]
    assert [one.message for one in caplog.records] == [
        "nobody could be told that a change is stored"
    ]
    scene.send(2, b"b")
    await scene.written("answered b")
    await scene.close()


async def test_whoever_gives_up_waiting_takes_nothing_with_it() -> None:
    scene = Scene()
    scene.store.gate.clear()
    scene.send(1, b"a")
    waiting = [asyncio.create_task(scene.commits.durable()) for _ in range(2)]
    await scene.written("take a")
    waiting[0].cancel()
    scene.store.gate.set()
    await asyncio.wait_for(waiting[1], WITHIN_S)
    assert waiting[0].cancelled()
    assert scene.sender.answers == [1]
    await scene.close()


async def test_where_nothing_changed_there_is_nothing_to_wait_for() -> None:
    scene = Scene()
    await asyncio.wait_for(scene.commits.durable(), WITHIN_S)
    assert (scene.story, scene.commits.count) == ([], 0)
    await scene.close()


async def test_an_answer_without_a_change_waits_for_what_is_on_its_way() -> None:
    """A duplicate may be of a message that is not durable yet."""
    scene = Scene()
    scene.store.gate.clear()
    scene.send(1, b"a")
    await scene.written("take a")
    scene.commits.answer(scene.sender, Done(2))
    scene.commits.changed()
    await turns_of_the_loop()
    assert scene.sender.answers == []
    scene.store.gate.set()
    await until(lambda: scene.sender.answers == [1, 2])
    assert scene.commits.count == 1
    await scene.close()


async def test_a_pause_is_kept_behind_the_beginning_of_a_commit() -> None:
    """More is gathered meanwhile: what comes in the pause is one commit."""
    scene = Scene()
    scene.pause_ms = 50
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    scene.send(1, b"a")
    await scene.written("answered a")
    scene.send(2, b"b")
    await turns_of_the_loop()
    scene.send(3, b"c")
    await scene.written("answered bc")
    assert loop.time() - began_s >= 0.05
    await scene.close()


async def test_the_end_does_not_wait_for_a_pause() -> None:
    scene = Scene()
    scene.pause_ms = 3_600_000
    scene.send(1, b"a")
    await scene.written("answered a")
    scene.send(2, b"b")
    await asyncio.wait_for(scene.close(), WITHIN_S)
    assert scene.sender.answers == [1, 2]


async def test_work_between_two_batches_is_done_by_the_thread_that_writes() -> None:
    scene = Scene()
    scene.store.gate.clear()
    scene.send(1, b"a")
    await scene.written("take a")
    threads: set[int] = set()

    def work() -> None:
        threads.add(threading.get_ident())
        scene.story.append("between")

    working = asyncio.create_task(scene.commits.between_batches(work))
    scene.store.gate.set()
    await asyncio.wait_for(working, WITHIN_S)
    scene.send(2, b"b")
    await scene.written("answered b")
    assert threads == scene.store.threads
    assert [one for one in scene.story if one in ("sync", "between")] == ["sync", "between", "sync"]
    await scene.close()


async def test_the_next_commit_is_awaited() -> None:
    scene = Scene()
    waiting = [asyncio.create_task(scene.commits.next()) for _ in range(2)]
    await turns_of_the_loop()
    assert not any(one.done() for one in waiting)
    scene.send(1, b"a")
    await asyncio.wait_for(asyncio.gather(*waiting), WITHIN_S)
    assert scene.store.seen == [b"a"]
    await scene.close()


async def test_a_close_commits_what_is_left_behind_what_is_on_its_way() -> None:
    scene = Scene()
    scene.store.gate.clear()
    scene.send(1, b"a")
    await scene.written("take a")
    scene.send(2, b"b")
    closing = asyncio.create_task(scene.commits.close())
    await turns_of_the_loop()
    assert not closing.done()
    scene.store.gate.set()
    await asyncio.wait_for(closing, WITHIN_S)
    assert scene.stored() == b"ab"
    assert scene.sender.answers == [1, 2]
    assert scene.commits.is_over
    assert not scene.commits.failed.done()


async def test_a_close_without_an_identity_answers_nobody_and_tells_those_who_wait() -> None:
    """What was not written is not; what was on its way may be in this folder."""
    scene = Scene()
    scene.store.gate.clear()
    scene.send(1, b"a")
    await scene.written("take a")
    scene.is_ours = False
    scene.send(2, b"b")
    waiting = asyncio.create_task(scene.commits.durable())
    await turns_of_the_loop()
    scene.store.gate.set()
    await asyncio.wait_for(scene.commits.close(), WITHIN_S)
    with pytest.raises(OutcomeUnknown, match="the node stops"):
        await waiting
    scene.is_ours = True
    scene.commits.go_on()
    scene.commits.changed()
    await turns_of_the_loop()
    assert scene.stored() == b"a"
    assert (scene.store.seen, scene.sender.answers) == ([], [])


async def turns_of_the_loop() -> None:
    """Whatever was to happen at once has had its turn."""
    for _ in range(10):
        await asyncio.sleep(0)
