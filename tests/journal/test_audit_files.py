"""The files of the audit trail: whole lines in order, whatever crashes, fills up or is torn."""

import random
from collections.abc import Callable

import pytest
from tests.journal.audit_pages import read_all_pages

from moorline.core.access.audit import Act, AuditProof, Kind, Verdict, encoded, line_of
from moorline.errors import DiskFull
from moorline.journal.audit import (
    AuditCursor,
    AuditFiles,
    Wanted,
    first_place,
    name_of,
    numbers_in,
    read_page,
)
from moorline.limits import (
    AUDIT_FILES_MAX,
    AUDIT_LINE_BYTES_MAX,
    AUDIT_PAGE_BYTES_MAX,
    AUDIT_ROWS_PER_PAGE_MAX,
    AUDIT_SCAN_BYTES,
)
from moorline.testing.memory_disk import Crashed, MemoryDisk

WALL_MS = 1_763_424_000_000
SMALL = AUDIT_FILES_MAX * AUDIT_LINE_BYTES_MAX
"""Bytes of a trail whose files are as small as can be."""


def line(number: int, principal: str = "p", path: str = "/topics/a") -> bytes:
    act = Act(Kind.REFUSAL, principal, AuditProof.NOTHING, "", "Publish", path, Verdict.DENIED)
    return encoded(line_of(act, WALL_MS + number), "node-1")


def opened(disk: MemoryDisk, *, sync: bool = True, bytes_max: int = SMALL) -> AuditFiles:
    files = AuditFiles(disk, sync=sync, bytes_max=bytes_max)
    files.open()
    return files


ALL = Wanted()


def read(disk: MemoryDisk, wanted: Wanted = ALL) -> tuple[list[bytes], int]:
    found: list[bytes] = []
    _, unreadable = read_all_pages(disk, wanted, found.extend)
    return found, unreadable


def test_lines_are_read_back_in_order_over_a_restart() -> None:
    disk = MemoryDisk()
    lines = [line(number) for number in range(20)]
    first = opened(disk)
    first.append(lines[:10], durable=True)
    first.close()
    second = opened(disk)
    second.append(lines[10:], durable=True)
    second.close()
    assert second.torn == 0
    assert disk.open_handles == 0
    assert read(disk) == ([one[:-1] for one in lines], 0)
    assert numbers_in(disk) == [1]


def test_files_are_rotated_by_size_and_the_oldest_goes() -> None:
    disk = MemoryDisk()
    files = opened(disk)
    lines = [line(number) for number in range(10_000)]
    for start in range(0, len(lines), 10):
        files.append(lines[start : start + 10], durable=False)
    numbers = numbers_in(disk)
    assert len(numbers) == AUDIT_FILES_MAX
    assert numbers[0] > 1
    assert all(len(content) <= AUDIT_LINE_BYTES_MAX for content in disk.files().values())
    found, unreadable = read(disk)
    assert unreadable == 0
    assert found == [one[:-1] for one in lines[-len(found) :]]
    assert disk.open_handles == 1


def test_every_crash_leaves_what_was_durable_and_the_next_start_goes_on() -> None:
    lines = [line(number, "p" * 200, "/t" * 600) for number in range(40)]

    def run(disk: MemoryDisk, done: list[bytes]) -> None:
        files = opened(disk)
        for one in lines:
            files.append([one], durable=True)
            done.append(one[:-1])

    whole = MemoryDisk()
    run(whole, [])
    assert len(numbers_in(whole)) > 2
    torn = 0
    for step in range(whole.steps):
        disk, done = MemoryDisk(crash_at=step), list[bytes]()
        with pytest.raises(Crashed):
            run(disk, done)
        disk.crash(random.Random(step), lose="some")
        before = b"".join(content for _, content in sorted(disk.files().items()))
        files = opened(disk)
        torn += files.torn
        files.append([line(99)], durable=True)
        after = b"".join(content for _, content in sorted(disk.files().items()))
        assert after.startswith(before), "nothing that was there is removed"
        found, unreadable = read(disk)
        assert found[: len(done)] == done
        assert found[-1] == line(99)[:-1]
        assert unreadable == files.torn
    assert torn > 0, "no crash tore a line: the test proves nothing"


def test_a_torn_line_is_ended_and_counted_and_stays() -> None:
    disk = MemoryDisk()
    opened(disk).append([line(1)], durable=True)
    disk.open(name_of(1), create=False).append(line(2)[:50])
    files = opened(disk)
    assert files.torn == 1
    files.append([line(3)], durable=True)
    assert disk.files()[name_of(1)] == line(1) + line(2)[:50] + b"\n" + line(3)
    assert read(disk) == ([line(1)[:-1], line(3)[:-1]], 1)
    assert opened(disk).torn == 0


def test_a_full_disk_takes_nothing_by_halves_and_goes_on_when_there_is_room() -> None:
    disk = MemoryDisk(capacity_bytes=len(line(1)) + 30)
    files = opened(disk)
    files.append([line(1)], durable=True)
    with pytest.raises(DiskFull):
        files.append([line(2)], durable=True)
    assert disk.files()[name_of(1)] == line(1)
    disk.capacity_bytes = None
    files.append([line(3)], durable=True)
    assert read(disk) == ([line(1)[:-1], line(3)[:-1]], 0)
    assert files.torn == 0


def test_a_failed_sync_is_told_and_the_next_lines_go_into_another_file() -> None:
    disk = MemoryDisk()
    files = opened(disk)
    files.append([line(1)], durable=True)
    disk.fail_sync = True
    with pytest.raises(OSError, match="Input/output"):
        files.append([line(2)], durable=True)
    disk.fail_sync = False
    files.append([line(3)], durable=True)
    assert numbers_in(disk) == [1, 2]
    disk.crash(random.Random(1), lose="all")
    assert line(3)[:-1] in read(disk)[0]


@pytest.mark.parametrize("sync", [True, False])
def test_what_is_durable_survives_what_the_mode_says(sync: bool) -> None:
    disk = MemoryDisk()
    opened(disk, sync=sync).append([line(1)], durable=True)
    disk.crash(random.Random(1), lose="all" if sync else "none")
    assert read(disk) == ([line(1)[:-1]], 0)


# --- reading --------------------------------------------------------------------------------------

WANTED: dict[str, tuple[Wanted, Callable[[int], bool]]] = {
    "all": (Wanted(), lambda _: True),
    "of one principal": (Wanted(principal="p3"), lambda number: number % 7 == 3),
    "below a path": (Wanted(path="/topics/2"), lambda number: number % 5 == 2),
    "since then": (Wanted(since="2025-11-18T00:00:04.000Z"), lambda number: number >= 4_000),
    "of another kind": (Wanted(kind="login"), lambda _: False),
    "with a verdict": (Wanted(verdict="denied"), lambda _: True),
    "of nobody": (Wanted(principal="nobody"), lambda _: False),
}


@pytest.fixture(scope="module")
def full() -> MemoryDisk:
    disk = MemoryDisk()
    files = opened(disk, sync=False, bytes_max=AUDIT_FILES_MAX * 2 * AUDIT_SCAN_BYTES)
    lines = [
        line(number, f"p{number % 7}", f"/topics/{number % 5}/{number}") for number in range(20_000)
    ]
    for start in range(0, len(lines), 500):
        files.append(lines[start : start + 500], durable=False)
    assert len(numbers_in(disk)) > 1
    assert any(len(content) > AUDIT_SCAN_BYTES for content in disk.files().values())
    return disk


@pytest.mark.parametrize("name", WANTED)
def test_pages_have_all_that_is_wanted_and_nothing_else(full: MemoryDisk, name: str) -> None:
    wanted, is_wanted = WANTED[name]
    expected = [
        line(number, f"p{number % 7}", f"/topics/{number % 5}/{number}")[:-1]
        for number in range(20_000)
        if is_wanted(number)
    ]
    found: list[bytes] = []
    place, is_end = first_place(full, wanted), False
    while not is_end:
        page = read_page(full, place, wanted)
        assert len(page.lines) <= AUDIT_ROWS_PER_PAGE_MAX
        assert sum(map(len, page.lines)) <= AUDIT_PAGE_BYTES_MAX
        assert page.is_end or page.next > place, "every page goes on"
        assert page.unreadable == 0
        found += page.lines
        place, is_end = page.next, page.is_end
    assert found == expected


def test_files_before_a_time_are_passed_over(full: MemoryDisk) -> None:
    assert first_place(full, Wanted(since="2025-11-18T00:00:19.999Z")).file == numbers_in(full)[-1]
    assert first_place(full, Wanted(since="2020")).file == numbers_in(full)[0]


def test_a_reader_goes_on_from_where_it_was_and_never_takes_half_a_line() -> None:
    disk = MemoryDisk()
    files = opened(disk)
    files.append([line(1)], durable=False)
    page = read_page(disk, AuditCursor(), Wanted())
    assert (page.lines, page.is_end) == ([line(1)[:-1]], True)
    raw = disk.open(name_of(1), create=False)
    raw.append(line(2)[:40])
    half = read_page(disk, page.next, Wanted())
    assert (half.lines, half.is_end, half.next) == ([], True, page.next)
    raw.append(line(2)[40:])
    assert read_page(disk, half.next, Wanted()).lines == [line(2)[:-1]]


def test_a_reader_whose_file_is_gone_goes_on_with_the_oldest() -> None:
    disk = MemoryDisk()
    files = opened(disk)
    for number in range(3_000):
        files.append([line(number)], durable=False)
    oldest = numbers_in(disk)[0]
    disk.remove(name_of(oldest))
    assert (
        read_page(disk, AuditCursor(oldest, 17), Wanted()).lines[0]
        == (disk.files()[name_of(oldest + 1)].split(b"\n")[0])
    )


@pytest.mark.parametrize("offset", [1, 10**12])
def test_a_place_that_nobody_gave_out_reads_what_is_readable(offset: int) -> None:
    disk = MemoryDisk()
    opened(disk).append([line(1), line(2)], durable=False)
    page = read_page(disk, AuditCursor(1, offset), Wanted())
    assert (page.lines, page.is_end) == ([line(2)[:-1]] if offset == 1 else [], True)


def test_what_another_hand_wrote_is_counted_and_ends_nothing() -> None:
    disk = MemoryDisk()
    files = opened(disk)
    files.append([line(1)], durable=False)
    raw = disk.open(name_of(1), create=False)
    raw.append(b'\xff\xfe\n{"time": 1}\n[]\n\n' + b"x" * (2 * AUDIT_SCAN_BYTES) + b"\n")
    raw.append(line(2))
    found, unreadable = read(disk)
    assert found == [line(1)[:-1], line(2)[:-1]]
    assert unreadable >= 4
