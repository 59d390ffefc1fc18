"""Whose an identity is: the rules by themselves, and many histories of folders, copies and processes."""

import random
from collections.abc import Iterator

import pytest

from moorline.core.identity import (
    Claim,
    ClaimVerdict,
    EndNode,
    GoOn,
    Held,
    HoldBack,
    Looked,
    Renewed,
    Taken,
    Tenure,
    TenureState,
    is_older_copy,
    judge,
)

LEASE_MS = 1_000


def test_a_lease_that_runs_is_respected_whatever_the_copy_knows() -> None:
    held = Held(b"1", "boot/1:7", 5_000)
    assert judge(None, Claim((), "boot/1:7"), 0) is ClaimVerdict.NEW
    assert judge(held, Claim((b"1",), "boot/1:8"), 4_999) is ClaimVerdict.TAKEN
    assert judge(held, Claim((b"1",), ""), 4_999) is ClaimVerdict.TAKEN
    assert judge(held, Claim((b"1",), "boot/1:8"), 5_000) is ClaimVerdict.FREE
    assert judge(held._replace(lease_until_ms=None), Claim((), "other/1:7"), 0) is ClaimVerdict.FREE


def test_whoever_holds_the_same_lock_need_not_wait() -> None:
    held = Held(b"1", "boot/1:7", 5_000)
    assert judge(held, Claim((), "boot/1:7"), 0) is ClaimVerdict.SAME_LOCK
    # Where a system cannot name the lock, two such do not count as the same.
    assert judge(held._replace(lock=""), Claim((), ""), 0) is ClaimVerdict.TAKEN


def test_a_catalog_in_the_folder_itself_goes_with_it() -> None:
    held = Held(b"1", "boot/1:7", 5_000)
    assert judge(held, Claim((b"1",), "boot/1:8", is_alone=True), 0) is ClaimVerdict.FREE


def test_an_older_copy_is_told_apart_from_a_restart() -> None:
    held = Held(b"2", "boot/1:7", None)
    assert is_older_copy(held, Claim((b"1",), "boot/1:8"))
    assert not is_older_copy(held, Claim((b"1", b"2"), "later/1:7")), "behind a reboot"
    assert not is_older_copy(held, Claim((b"1",), "boot/1:7")), "cut short behind its claim"
    assert not is_older_copy(None, Claim((), "boot/1:7"))


def test_a_tenure_ends_before_its_lease() -> None:
    tenure = Tenure("n", LEASE_MS, 100)
    assert tenure.may_answer(1_079)
    assert not tenure.may_answer(1_080)
    assert tenure.handle(Looked(), 1_079) == []
    assert tenure.handle(Looked(), 1_080) == [HoldBack()]
    # Renewed, but by an answer that came late: the time of the asking counts.
    assert tenure.handle(Renewed(200), 1_300) == []
    assert not tenure.may_answer(1_300)
    assert tenure.handle(Renewed(1_300), 1_310) == [GoOn()]
    assert tenure.may_answer(1_310)
    assert tenure.handle(Taken(), 1_320) == [EndNode()]
    assert tenure.handle(Renewed(1_320), 1_330) == []
    assert not tenure.may_answer(1_330)
    assert tenure.state is TenureState.LOST


class Folder:
    """A data folder: whoever locks it, and the starts that it knows."""

    def __init__(self, lock: str, starts: tuple[bytes, ...]) -> None:
        self.lock = lock
        self.starts = starts
        self.process: Process | None = None


class Process:
    """A node that has claimed, or is about to; its questions to the catalog take time, both ways."""

    def __init__(self, folder: Folder, incarnation: bytes) -> None:
        self.folder = folder
        self.incarnation = incarnation
        self.tenure: Tenure | None = None
        self.is_stopped = False
        """By SIGSTOP."""
        self.asked: list[tuple[int, bool]] = []
        """Answers under way: when it was asked, and whether the catalog said yes."""

    def may_answer(self, now_ms: int) -> bool:
        return self.tenure is not None and self.tenure.may_answer(now_ms)


class World:
    """One identity, its folders and processes, and the row in the catalog. The catalog's clock runs ahead."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 0
        self.row: Held | None = None
        self.folders = [Folder("lock 0", ())]
        self.processes: list[Process] = []
        self.drawn = 0
        self.handovers = 0

    def step(self) -> None:
        often = [self.start, self.ask, self.answer, self.wait]
        seldom = [self.kill, self.stop, self.freeze, self.thaw, self.copy]
        self.chance.choice([*often, *often, *seldom])()
        self.check()

    def check(self) -> None:
        able = [one for one in self.processes if one.may_answer(self.now_ms) and not one.is_stopped]
        assert len(able) <= 1, f"{len(able)} processes may answer under one identity"

    def wait(self) -> None:
        self.now_ms += self.chance.choice([1, 10, 100, 500, LEASE_MS, 3 * LEASE_MS])

    def copy(self) -> None:
        if len(self.folders) < 4:
            source = self.chance.choice(self.folders)
            self.folders.append(Folder(f"lock {len(self.folders)}", source.starts))

    def start(self) -> None:
        """The claim is asked and judged in one step: its answer too may take long, or be lost."""
        folder = self.chance.choice(self.folders)
        if folder.process is not None:
            return  # the kernel does not give its lock
        self.drawn += 1
        process = Process(folder, b"%d" % self.drawn)
        before, asked_ms = folder.starts, self.now_ms
        folder.starts = (*before, process.incarnation)
        if self.chance.random() < 0.1:
            return  # cut short before its claim
        verdict = judge(self.row, Claim(before, folder.lock), self.catalog_ms)
        if verdict is ClaimVerdict.TAKEN:
            folder.starts = before
            return
        if verdict is ClaimVerdict.SAME_LOCK:
            assert not is_older_copy(self.row, Claim(before, folder.lock))
        self.row = Held(process.incarnation, folder.lock, self.catalog_ms + LEASE_MS)
        if self.chance.random() < 0.1:
            return  # cut short behind its claim
        self.handovers += 1
        folder.starts = (process.incarnation,)
        folder.process = process
        self.processes.append(process)
        if self.chance.random() < 0.3:
            self.now_ms += self.chance.randrange(2 * LEASE_MS)
        process.tenure = Tenure("simulated", LEASE_MS, asked_ms)

    @property
    def catalog_ms(self) -> int:
        """It runs faster than ours, by less than the margin of a tenure."""
        return 7_000_000 + self.now_ms + self.now_ms // 100

    def ask(self) -> None:
        """A renewal reaches the catalog; its answer comes later."""
        for process in self.running():
            held = self.row is not None and self.row.incarnation == process.incarnation
            if held and self.row is not None:
                self.row = self.row._replace(lease_until_ms=self.catalog_ms + LEASE_MS)
            process.asked.append((self.now_ms, held))

    def answer(self) -> None:
        for process in self.running():
            if process.asked and process.tenure is not None:
                asked_ms, held = process.asked.pop(0)
                if self.chance.random() < 0.2:
                    continue  # lost
                process.tenure.handle(Renewed(asked_ms) if held else Taken(), self.now_ms)
                process.tenure.check()
                if process.tenure.state is TenureState.LOST:
                    self.end(process)

    def running(self) -> Iterator[Process]:
        """Some of those that run now, in any order."""
        able = [one for one in self.processes if not one.is_stopped]
        return iter(self.chance.sample(able, self.chance.randint(0, len(able))))

    def kill(self) -> None:
        if self.processes:
            self.end(self.chance.choice(self.processes))

    def stop(self) -> None:
        """In order: the identity is given back behind the last answer."""
        for process in list(self.running())[:1]:
            if self.row is not None and self.row.incarnation == process.incarnation:
                self.row = self.row._replace(lease_until_ms=None)
            self.end(process)

    def end(self, process: Process) -> None:
        self.processes.remove(process)
        process.folder.process = None

    def freeze(self) -> None:
        if self.processes:
            self.chance.choice(self.processes).is_stopped = True

    def thaw(self) -> None:
        for process in self.processes:
            process.is_stopped = False


@pytest.mark.parametrize("block", range(4))
def test_no_two_processes_answer_under_one_identity(block: int) -> None:
    handovers = 0
    for seed in range(block * 150, (block + 1) * 150):
        world = World(seed)
        for _ in range(120):
            world.step()
        handovers += world.handovers
        # Whatever happened: when all are gone and the lease is over, any folder can be started.
        for process in list(world.processes):
            world.end(process)
        world.now_ms += 2 * LEASE_MS
        for folder in world.folders:
            assert judge(world.row, Claim(folder.starts, folder.lock), world.catalog_ms) in (
                ClaimVerdict.NEW,
                ClaimVerdict.FREE,
                ClaimVerdict.SAME_LOCK,
            )
    assert handovers > 600, "the histories are too quiet to show anything"


def test_a_killed_process_is_followed_at_once_in_its_folder() -> None:
    for seed in range(200):
        world = World(seed)
        while not world.processes:
            world.step()
        process = world.processes[0]
        world.end(process)
        held = world.row
        assert held is not None
        if held.incarnation == process.incarnation:
            claim = Claim(process.folder.starts, process.folder.lock)
            assert judge(held, claim, world.catalog_ms) is ClaimVerdict.SAME_LOCK


@pytest.mark.parametrize("broken", ["U1", "U2", "U3"])
def test_a_broken_state_is_found_and_tells_the_story(broken: str) -> None:
    tenure = Tenure("identity of n", LEASE_MS, 100)
    tenure.handle(Renewed(300), 350)
    tenure.check()
    match broken:
        case "U1":
            tenure._kept_ms = LEASE_MS
        case "U2":
            tenure._until_ms += 500
        case _:
            tenure._looked_ms = 9_000
    with pytest.raises(AssertionError, match=broken) as caught:
        tenure.check()
    assert "story of identity of n" in str(caught.value)
