"""Segments of the log whose blocks were written before: zeros are no batch, and nothing whole is ever cut."""

import random
from itertools import pairwise

import pytest
from tests.journal.queues.test_wal import batch, flipped, log_on, overwrite, replayed

from moorline.errors import DiskFull, LogDamaged
from moorline.journal.queues.salvage import mend_log
from moorline.journal.queues.wal import WriteAheadLog
from moorline.journal.queues.wal_batch import Batch
from moorline.journal.queues.wal_segment import PREPARED_HEAD
from moorline.testing import Crashed, Lose, MemoryDisk

SIZE = 1_000
FIRST = "wal/00000000000000000001.wal"
PREPARED = "wal/prepared-00000001.wal"
GROUPS = [[b"a", b"b"], [b"c" * 50], [b"d" + bytes(20)]]
"""The last batch ends with zeros."""


def batches() -> list[Batch]:
    made, lsn = [], 2
    for bodies in GROUPS:
        made.append(batch(lsn, *bodies))
        lsn += len(bodies)
    return made


def written(count: int = 3, *, is_closed: bool = False) -> MemoryDisk:
    """A growing segment with one batch, and then a prepared one with so many."""
    disk = MemoryDisk()
    log = log_on(disk)
    log.begin_segment(1)
    log.write(batch(1, b"first"))
    log.prepare(SIZE)
    for one in batches()[:count]:
        log.write(one)
    if is_closed:
        log.close()
    return disk


def ends() -> list[int]:
    """Where the batches of the prepared segment end."""
    found = [PREPARED_HEAD.size]
    for one in batches():
        found.append(found[-1] + one.size)
    return found


def bodies(count: int) -> list[bytes]:
    return [b"first", *(body for group in GROUPS[:count] for body in group)]


def test_what_is_written_into_a_prepared_segment_comes_back() -> None:
    for is_closed in (False, True):
        disk = written(is_closed=is_closed)
        size = len(disk.files()[PREPARED])
        assert size == (ends()[-1] if is_closed else SIZE), "what nobody needs is given back"
        assert replayed(disk) == bodies(3)
        assert all(not one.bad for one in log_on(disk).survey())


@pytest.mark.parametrize("lead", range(440, 520, 3))
def test_a_batch_of_which_any_sector_did_not_land_is_cut_and_nothing_before_it(lead: int) -> None:
    """Any of the last batch's sectors may still be zeros, wherever the first of them begins in it."""
    before, last = batch(1, b"a" * (lead - PREPARED_HEAD.size - 65)), batch(2, b"b" * 1_400)
    disk = MemoryDisk()
    log = log_on(disk)
    log.prepare(4_000)
    log.begin_segment(1)
    log.write(before)
    log.write(last)
    data = disk.files()[PREPARED]
    start, end = lead, lead + last.size
    firsts = [start, *range(start - start % 512 + 512, end, 512)]
    for missing in range(1, 1 << len(firsts)):
        torn = bytearray(data)
        for place, (first, behind) in enumerate(pairwise([*firsts, end])):
            if missing >> place & 1:
                torn[first:behind] = bytes(behind - first)
        overwrite(disk, PREPARED, bytes(torn))
        (found,) = log_on(disk).survey()
        # Without any of its sectors there is nothing to be seen of it.
        assert found.is_torn_end == (missing != (1 << len(firsts)) - 1), missing
        assert [len(body) for body in replayed(disk)] == [lead - PREPARED_HEAD.size - 65], missing
        kept = disk.files()[PREPARED]
        assert kept[:start] == data[:start]
        assert not any(kept[start:]), "a torn end is cut off"


def test_a_changed_byte_of_the_last_batch_is_damage_to_a_start_and_to_a_check() -> None:
    data = written().files()[PREPARED]
    start = ends()[2]
    length = range(start + 4, start + 8)
    for place in range(start, ends()[3]):
        disk = written()
        log_on(disk).prepare(SIZE)
        changed = flipped(data, place)
        overwrite(disk, PREPARED, changed)
        *_, found = (one for one in log_on(disk).survey() if one.bad)
        # A length with another last bit is another end within the same sector.
        is_torn = place in length[:-1]
        assert found.is_torn_end == is_torn, place
        if is_torn:
            assert replayed(disk) == bodies(2), place
            continue
        with pytest.raises(LogDamaged, match=f"is damaged at byte {start} of"):
            replayed(disk)
        assert disk.files()[PREPARED] == changed, "nothing was cut"
        mend_log(disk, "kept")
        assert disk.files()["kept/prepared-00000001.wal"] == changed, "it is set aside"
        assert replayed(disk) == bodies(2)


@pytest.mark.parametrize("unbegun", [0, 2])
def test_a_torn_end_is_one_also_beside_segments_that_were_only_prepared(unbegun: int) -> None:
    disk = MemoryDisk()
    log = log_on(disk)
    log.prepare(4_000)
    log.begin_segment(1)
    log.write(batch(1, b"first"))
    log.write(batch(2, b"x" * 2_000))
    for _ in range(unbegun):
        log_on(disk).prepare(SIZE)
    overwrite(disk, PREPARED, disk.files()[PREPARED][:1_024] + bytes(4_000 - 1_024))
    found = [one for one in log_on(disk).survey() if one.bad]
    assert [(one.path, one.is_torn_end) for one in found] == [(PREPARED, True)]
    assert replayed(disk) == [b"first"]


def test_a_prepared_log_cut_at_any_byte_gives_the_whole_batches_before_it() -> None:
    data = written().files()[PREPARED]
    for end in range(len(data) + 1):
        disk = written()
        overwrite(disk, PREPARED, data[:end])
        count = sum(end >= one for one in ends()[1:])
        assert replayed(disk) == bodies(count), end


def test_a_changed_byte_before_the_last_batch_is_damage_and_costs_nothing_behind_it() -> None:
    data = written().files()[PREPARED]
    for place in range(ends()[1], ends()[2]):
        disk = written()
        overwrite(disk, PREPARED, flipped(data, place))
        with pytest.raises(LogDamaged, match=f"is damaged at byte {ends()[1]} of"):
            replayed(disk)
        assert disk.files()[PREPARED] == flipped(data, place), "nothing was cut"
        assert replayed(disk, repair=True) == [*bodies(1), *GROUPS[2]]
        mend_log(disk, "kept")
        assert replayed(disk) == [*bodies(1), *GROUPS[2]]


@pytest.mark.parametrize("damage", ["flipped", "zeros"])
def test_a_damaged_head_is_never_taken_for_a_segment_that_was_not_begun(damage: str) -> None:
    data = written().files()[PREPARED]
    for place in range(PREPARED_HEAD.size):
        changed = flipped(data, place)
        if damage == "zeros":
            changed = bytes(place + 1) + data[place + 1 :]
        if changed == data:
            continue
        disk = written()
        overwrite(disk, PREPARED, changed)
        with pytest.raises(LogDamaged, match="a damaged head"):
            replayed(disk)
        assert disk.files()[PREPARED] == changed, "nothing was cut"
        if damage == "flipped" or place < 16:
            assert replayed(disk, repair=True) == bodies(3), place
            mend_log(disk, "kept")
            assert replayed(disk) == bodies(3), place


def test_a_segment_that_was_only_prepared_is_nothing() -> None:
    disk = written(0)
    assert disk.files()[PREPARED] == bytes(SIZE)
    assert replayed(disk) == [b"first"]
    assert list(disk.files()) == [FIRST]
    alone = MemoryDisk()
    log_on(alone).prepare(SIZE)
    assert log_on(alone).is_new


def test_one_that_was_prepared_in_part_is_nothing_too() -> None:
    for size in range(0, SIZE, 37):
        disk = written(0)
        overwrite(disk, PREPARED, bytes(size))
        assert replayed(disk) == [b"first"]


def test_bytes_of_another_segment_are_no_batches_here() -> None:
    """Blocks that had held another log, or were put here by somebody: the seed is another."""
    stale = written().files()[PREPARED]
    disk = written(1)
    mine = disk.files()[PREPARED]
    overwrite(disk, PREPARED, mine[: ends()[1]] + stale[ends()[1] :])
    assert replayed(disk, repair=True) == bodies(1)
    with pytest.raises(LogDamaged, match="is damaged at byte"):
        replayed(disk)


def test_segments_come_in_the_order_of_their_changes_whatever_their_names_are() -> None:
    disk = MemoryDisk()
    log = log_on(disk)
    log.begin_segment(1)
    expected = []
    for lsn in range(1, 41):
        if lsn % 3 == 0 and log.ready < 2:
            log.prepare(SIZE - 13 * lsn)
        if lsn == 20:
            log.begin_segment(lsn)
        body = b"%d" % lsn + b"x" * (300 if lsn % 4 else 2_000)
        log.write(batch(lsn, body))
        expected.append(body)
    names = sorted(disk.files())
    assert sum("prepared" in name for name in names) > 3
    assert sum("prepared" not in name for name in names) > 3
    assert [change.lsn for change in log_on(disk).replay()] == list(range(1, 41))
    log.drop_before(20)
    assert [change.lsn for change in log_on(disk).replay()] == list(range(20, 41))


def test_a_batch_too_large_for_a_prepared_segment_goes_to_one_that_grows() -> None:
    disk = written(1)
    log = log_on(disk)
    assert len(list(log.replay())) == 3
    log.begin_segment(4)
    log.prepare(SIZE)
    log.write(batch(4, b"small"))
    log.write(batch(5, bytes(2 * SIZE)))
    log.prepare(SIZE)
    log.write(batch(6, b"small again"))
    assert [change.lsn for change in log_on(disk).replay()] == [1, 2, 3, 4, 5, 6]


def test_a_disk_without_room_for_a_segment_is_no_harm() -> None:
    disk = MemoryDisk()
    log = log_on(disk)
    log.begin_segment(1)
    log.write(batch(1, b"a"))
    disk.capacity_bytes = disk.used_bytes() + SIZE // 2
    with pytest.raises(DiskFull):
        log.prepare(SIZE)
    assert (list(disk.files()), log.ready) == ([FIRST], 0)
    log.write(batch(2, b"b"))
    assert replayed(disk) == [b"a", b"b"]


def test_a_batch_without_room_leaves_the_log_as_it_was() -> None:
    """At every size of what is left; then the same batch is written, once."""
    for left in range(200):
        disk = MemoryDisk()
        log = log_on(disk)
        log.begin_segment(1)
        log.write(batch(1, b"a"))
        disk.capacity_bytes = disk.used_bytes() + left
        more = batch(2, b"b" * 100)
        if left < more.size:
            with pytest.raises(DiskFull):
                log.write(more)
            assert replayed(disk) == [b"a"]
            disk.capacity_bytes = None
        log.write(more)
        assert replayed(disk) == [b"a", b"b" * 100]


def test_a_sync_that_fails_for_lack_of_room_is_not_tried_again() -> None:
    class Lying(MemoryDisk):
        def sync_node(self, node: object) -> None:  # noqa: ARG002
            raise DiskFull("no room left")

    disk = Lying()
    log = WriteAheadLog(disk, "wal", sync=False)
    log.begin_segment(1)
    log._sync = True
    with pytest.raises(OSError, match="a sync of the log failed"):
        log.write(batch(1, b"a"))


def test_what_is_prepared_is_given_back() -> None:
    disk = written(0)
    log = log_on(disk)
    list(log.replay())
    log.begin_segment(2)
    log.prepare(SIZE)
    log.prepare(SIZE)
    assert log.ready == 2
    log.give_back()
    assert (log.ready, [name for name in disk.files() if "prepared" in name]) == (0, [])
    log.prepare(SIZE)
    log.close()
    assert not [name for name in disk.files() if "prepared" in name]


@pytest.mark.parametrize("lose", ["all", "some", "none"])
@pytest.mark.parametrize("seed", range(8))
def test_what_was_written_is_there_after_a_crash_at_any_step(lose: Lose, seed: int) -> None:
    def life(disk: MemoryDisk, done: list[int]) -> None:
        log = log_on(disk)
        log.begin_segment(1)
        for lsn in range(1, 9):
            if lsn in (2, 3, 6):
                log.prepare(SIZE // 2)
            if lsn == 5:
                log.begin_segment(5)
            log.write(batch(lsn, b"%d" % lsn * 120))
            done.append(lsn)
        log.drop_before(5)

    probe = MemoryDisk()
    life(probe, [])
    assert any("prepared" in name for name in probe.files())
    assert probe.steps > 30
    for step in range(probe.steps):
        disk, done = MemoryDisk(crash_at=step), list[int]()
        with pytest.raises(Crashed):
            life(disk, done)
        disk.crash(random.Random(step * 100 + seed), lose)
        log = log_on(disk)
        found = [change.lsn for change in log.replay()]
        # Dropping begins when all are written: only then may the first be gone.
        expected = list(range(1, len(done) + 1))
        allowed = [expected, [*expected, len(done) + 1]]
        if len(done) == 8:
            allowed += [list(range(start, 9)) for start in range(2, 6)]
        assert found in allowed, (step, found)
        # And it goes on behind that, also over a second crash.
        behind = found[-1] + 1 if found else 1
        log.begin_segment(behind)
        log.write(batch(behind, b"on"))
        disk.crash(random.Random(step), "all")
        assert [change.lsn for change in log_on(disk).replay()] == [*found, behind], step
