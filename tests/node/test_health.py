"""What is wrong with a node: told by its severity, in few lines, without asking anybody."""

import asyncio
import logging
from pathlib import Path

import pytest

from moorline.journal.disk import FileDisk
from moorline.journal.disk_watch import DiskWatch, FillsDisk
from moorline.limits import DISK_FREE_BYTES_MIN, PROBLEM_CHARACTERS_MAX, PROBLEMS_TOLD_MAX
from moorline.node.health import PAGES, Problems, Severity, full_disk


def told(problems: Problems) -> dict[str, list[str]]:
    return {page: problems.found(least) for page, least in PAGES.items()}


def test_each_page_tells_of_what_concerns_it() -> None:
    problems = Problems()
    wrong = {"clock": "", "disk": ""}
    problems.watch(Severity.WANTS_CARE, lambda: wrong["clock"])
    problems.watch(Severity.REFUSES, lambda: wrong["disk"])
    assert told(problems) == {"livez": [], "readyz": [], "healthz": []}
    wrong["clock"] = "the clock"
    assert told(problems) == {"livez": [], "readyz": [], "healthz": ["the clock"]}
    wrong["disk"] = "the disk"
    assert told(problems) == {
        "livez": [],
        "readyz": ["the disk"],
        "healthz": ["the disk", "the clock"],
    }
    problems.add(Severity.ENDS, "the journal\nfailed")
    assert told(problems)["livez"] == ["the journal failed"]
    wrong["disk"] = ""
    assert told(problems)["readyz"] == ["the journal failed"]


def test_what_is_told_has_a_bound() -> None:
    problems = Problems()
    for _ in range(2 * PROBLEMS_TOLD_MAX):
        problems.add(Severity.WANTS_CARE, "x" * 2 * PROBLEM_CHARACTERS_MAX)
    found = problems.found()
    assert len(found) == PROBLEMS_TOLD_MAX
    assert {len(text) for text in found} == {PROBLEM_CHARACTERS_MAX}


async def test_a_full_disk_is_a_problem_until_there_is_room(tmp_path: Path) -> None:
    filling = FillsDisk()
    free = DISK_FREE_BYTES_MIN - 1

    async def lacks_room(_: int) -> bool:
        return free < DISK_FREE_BYTES_MIN

    watch = DiskWatch(FileDisk(tmp_path), "queues", filling, lacks_room)
    await watch.look()
    assert "messages are refused" in full_disk("queues", filling)
    waiting = asyncio.create_task(filling.has_room_within(60_000))
    assert not await filling.has_room_within(1)
    free = DISK_FREE_BYTES_MIN
    await watch.look()
    assert full_disk("queues", filling) == ""
    assert await waiting, "whoever waits is woken"


async def test_a_disk_that_cannot_be_looked_at_is_said_once_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filling, disk = FillsDisk(), FileDisk(tmp_path / "gone")
    watch = DiskWatch(disk, "queues", filling)
    (tmp_path / "gone").rmdir()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            await watch.look()
    assert "cannot be looked at" in filling.disk_problem
    assert len(caplog.records) == 1
    (tmp_path / "gone").mkdir()
    await watch.look()
    assert filling.disk_problem == ""
