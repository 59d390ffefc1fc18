"""Syncs that the kernel does by itself, on a real disk and a real kernel."""

import os
import select
from pathlib import Path

import pytest

from moorline.journal.begun_syncs import BEGUN_MAX, KernelSyncs
from moorline.journal.disk import FileDisk

Told = list[BaseException | None]


@pytest.fixture
def syncs(tmp_path: Path) -> KernelSyncs:
    found = KernelSyncs.of(tmp_path)
    if found is None:
        pytest.skip("this kernel does not sync by itself")
    return found


def wait_for(syncs: KernelSyncs, told: Told, count: int) -> None:
    while len(told) < count:
        assert select.select([syncs.fileno()], [], [], 20)[0], "the kernel told nothing"
        syncs.told()


def test_whoever_begins_a_sync_is_told_when_it_is_done(syncs: KernelSyncs, tmp_path: Path) -> None:
    disk = FileDisk(tmp_path)
    file = disk.open("file", create=True)
    told: Told = []
    for number in range(100):
        file.append(b"x" * 1_000)
        syncs.begin(file, told.append)
        wait_for(syncs, told, number + 1)
    assert told == [None] * 100
    file.close()
    syncs.close()


def test_several_are_told_together(syncs: KernelSyncs, tmp_path: Path) -> None:
    disk = FileDisk(tmp_path)
    files = [disk.open(f"file-{number}", create=True) for number in range(BEGUN_MAX)]
    told: list[tuple[int, BaseException | None]] = []
    for number, file in enumerate(files):
        file.append(b"x")
        syncs.begin(file, lambda error, number=number: told.append((number, error)))  # type: ignore[misc]
    while len(told) < len(files):
        assert select.select([syncs.fileno()], [], [], 20)[0]
        syncs.told()
    assert sorted(number for number, _ in told) == list(range(BEGUN_MAX))
    assert all(error is None for _, error in told)
    for file in files:
        file.close()
    syncs.close()


def test_more_than_are_taken_at_once_are_told_of_at_once(
    syncs: KernelSyncs, tmp_path: Path
) -> None:
    """The kernel counts them in one number, which is read once; what was left behind nobody told of."""
    file = FileDisk(tmp_path).open("file", create=True)
    file.append(b"x")
    told: Told = []
    for _ in range(BEGUN_MAX):
        syncs.begin(file, told.append)
    # And the one by which the fixture has found out that the kernel does it.
    while counted(syncs.fileno()) <= BEGUN_MAX:
        os.sched_yield()
    syncs.told()
    assert told == [None] * BEGUN_MAX
    file.close()
    syncs.close()


def counted(eventfd: int) -> int:
    """What its next reader will read."""
    lines = Path(f"/proc/self/fdinfo/{eventfd}").read_text().splitlines()
    (count,) = (line.split()[1] for line in lines if line.startswith("eventfd-count:"))
    return int(count, 16)


def test_a_sync_that_cannot_be_is_an_error(syncs: KernelSyncs) -> None:
    class Pipe:
        """What has no disk below it."""

        def __init__(self) -> None:
            self.read_end, self.write_end = os.pipe()

        def fileno(self) -> int:
            return self.write_end

    pipe = Pipe()
    told: Told = []
    syncs.begin(pipe, told.append)  # type: ignore[arg-type]
    assert told == [], "never before the caller goes on"
    wait_for(syncs, told, 1)
    assert isinstance(told[0], OSError)
    os.close(pipe.read_end)
    os.close(pipe.write_end)
    syncs.close()


def test_whoever_closes_waits_for_what_is_under_way(syncs: KernelSyncs, tmp_path: Path) -> None:
    disk = FileDisk(tmp_path)
    file = disk.open("file", create=True)
    file.append(b"x" * 1_000_000)
    told: Told = []
    syncs.begin(file, told.append)
    syncs.close()
    assert told == []
    file.close()
