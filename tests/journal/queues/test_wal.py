"""The write-ahead log: batches whole or not there, torn ends cut, damage named."""

import random
from itertools import pairwise

import pytest
from tests.journal.queues.held_syncs import HeldSyncs

from moorline.errors import FolderUnusable, LogDamaged
from moorline.ids import ID_BYTES
from moorline.journal.queues.salvage import mend_log
from moorline.journal.queues.wal import HEAD, Batch, Change, Kind, WriteAheadLog
from moorline.testing import Crashed, Lose, MemoryDisk

QUEUE = b"q" * ID_BYTES
FIRST = "wal/00000000000000000001.wal"


def batch(first: int, *bodies: bytes) -> Batch:
    made = Batch(first)
    for body in bodies:
        made.add(Kind.SEND, QUEUE, 1_000, body)
    return made


def log_on(disk: MemoryDisk, *, sync: bool = True) -> WriteAheadLog:
    return WriteAheadLog(disk, "wal", sync=sync)


def replayed(disk: MemoryDisk, *, repair: bool = False) -> list[bytes]:
    return [change.body for change in log_on(disk).replay(repair=repair)]


def written(*batches: list[bytes]) -> MemoryDisk:
    """One segment with these batches."""
    disk = MemoryDisk()
    log = log_on(disk)
    log.begin_segment(1)
    lsn = 1
    for bodies in batches:
        log.write(batch(lsn, *bodies))
        lsn += len(bodies)
    log.close()
    return disk


def overwrite(disk: MemoryDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=False)
    file.truncate(0)
    file.append(data)
    file.close()


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_changes_come_back_in_order_with_their_numbers() -> None:
    disk = MemoryDisk()
    log = log_on(disk)
    log.begin_segment(1)
    made = Batch(1)
    assert made.add(Kind.NEW, QUEUE, 5, b"owner") == 1
    assert made.add(Kind.ACKNOWLEDGE, QUEUE, 2**63, b"") == 2
    log.write(made)
    assert made.size == len(made.encoded(seed=0))
    assert log.size_bytes == made.size
    assert list(log_on(disk).replay()) == [
        Change(1, Kind.NEW, QUEUE, 5, b"owner"),
        Change(2, Kind.ACKNOWLEDGE, QUEUE, 2**63, b""),
    ]


def test_what_was_begun_is_synced_before_the_next_segment_begins() -> None:
    """Or a crash would leave a torn end in a segment that is not the last, which is damage."""
    disk = MemoryDisk()
    log = log_on(disk)
    log.begin_segment(1)
    assert log.begin(batch(1, b"a"), HeldSyncs(), lambda _: None)
    log.begin_segment(2)
    log.write(batch(2, b"b"))
    disk.crash(random.Random(1), lose="all")
    assert replayed(disk) == [b"a", b"b"]


def test_what_is_begun_is_there_when_its_sync_is_done_and_whole_or_not_at_all_before() -> None:
    for is_synced in (False, True):
        disk = MemoryDisk()
        log = log_on(disk)
        log.begin_segment(1)
        log.write(batch(1, b"a"))
        syncs, told = HeldSyncs(), list[BaseException | None]()
        assert log.begin(batch(2, b"b"), syncs, told.append)
        assert told == []
        if is_synced:
            syncs.settle()
            assert told == [None]
        disk.crash(random.Random(1), lose="all")
        assert replayed(disk) == ([b"a", b"b"] if is_synced else [b"a"])


def test_a_batch_that_begins_a_segment_is_for_the_thread() -> None:
    disk = MemoryDisk()
    log = log_on(disk)
    log.begin_segment(1)
    log.write(batch(1, b"a"))
    log.prepare(4_096)
    syncs = HeldSyncs()
    assert not log.begin(batch(2, b"b"), syncs, lambda _: None)
    assert syncs.begun == []
    log.write(batch(2, b"b"))
    assert log.begin(batch(3, b"c"), syncs, lambda _: None)
    assert replayed(disk) == [b"a", b"b", b"c"]


def test_a_log_cut_at_any_byte_gives_the_whole_batches_before_it() -> None:
    """The table of failures: a torn batch at the end is cut there."""
    whole = written([b"a", b"b"], [b"c" * 50], [b"d"])
    data = whole.files()[FIRST]
    ends, size = [HEAD.size], HEAD.size
    for first, bodies in ((1, [b"a", b"b"]), (3, [b"c" * 50]), (4, [b"d"])):
        size += len(batch(first, *bodies).encoded(seed=0))
        ends.append(size)
    groups = [[b"a", b"b"], [b"c" * 50], [b"d"]]
    for end in range(len(data) + 1):
        disk = written()
        overwrite(disk, FIRST, data[:end])
        count = sum(end >= one for one in ends[1:])
        assert replayed(disk) == [body for group in groups[:count] for body in group]
        kept = ends[count] if end >= HEAD.size else 0
        assert len(disk.files()[FIRST]) == kept, "the torn end is cut off"


def test_a_changed_byte_in_the_last_batch_is_damage_and_is_not_cut() -> None:
    """All of it was written, so it may have been answered: no crash leaves that."""
    data = written([b"a"], [b"b"]).files()[FIRST]
    start = HEAD.size + len(batch(1, b"a").encoded(seed=0))
    length = range(start + 4, start + 8)
    for place in range(start, len(data)):
        disk = written()
        changed = flipped(data, place)
        overwrite(disk, FIRST, changed)
        (found,) = log_on(disk).survey()
        assert (found.bad, found.is_torn_end) == ([(start, len(data))], place in length), place
        if place in length:
            # It says that it is longer than the file, as one does that a crash cut short.
            assert replayed(disk) == [b"a"]
            continue
        with pytest.raises(LogDamaged, match=f"is damaged at byte {start} of"):
            replayed(disk)
        assert disk.files()[FIRST] == changed, "nothing was cut"
        assert replayed(disk, repair=True) == [b"a"]
        mend_log(disk, "kept")
        assert disk.files()[f"kept/{FIRST.removeprefix('wal/')}"] == changed, "it is set aside"
        assert replayed(disk) == [b"a"]


def test_sectors_that_a_crash_left_zeros_are_a_torn_end_wherever_they_are() -> None:
    """A file may be long already and its blocks not be written: no false alarm after a power cut."""
    data = written([b"a"], [b"x" * 3_000]).files()[FIRST]
    start = HEAD.size + len(batch(1, b"a").encoded(seed=0))
    firsts = [start, *range(512, len(data), 512)]
    for missing in range(1, 1 << len(firsts)):
        torn = bytearray(data)
        for place, (first, behind) in enumerate(pairwise([*firsts, len(data)])):
            if missing >> place & 1:
                torn[first:behind] = bytes(behind - first)
        disk = written()
        overwrite(disk, FIRST, bytes(torn))
        (found,) = log_on(disk).survey()
        assert found.is_torn_end, missing
        assert replayed(disk) == [b"a"], missing


def test_a_changed_byte_before_the_end_is_damage_and_is_named() -> None:
    """The table of failures: damage before the end, with the file and the offset."""
    data = written([b"a"], [b"b"], [b"c"]).files()[FIRST]
    size = len(batch(1, b"a").encoded(seed=0))
    start = HEAD.size + size
    for place in range(start, start + size):
        disk = written()
        overwrite(disk, FIRST, flipped(data, place))
        with pytest.raises(LogDamaged, match=rf"{FIRST} is damaged at byte {start} of {len(data)}"):
            replayed(disk)
        assert disk.files()[FIRST] == flipped(data, place), "nothing was cut"
        assert replayed(disk, repair=True) == [b"a", b"c"], "what is whole behind it counts"
        (found,) = log_on(disk).survey()
        assert (found.bad, found.is_torn_end) == ([(start, start + size)], False)
        assert disk.files()[FIRST] == flipped(data, place)


def test_a_changed_byte_in_the_head_costs_nothing() -> None:
    """The seed is there twice; whatever else is wrong with a head, its batches can be told."""
    data = written([b"a"], [b"b"]).files()[FIRST]
    for place in range(HEAD.size):
        disk = written()
        overwrite(disk, FIRST, flipped(data, place))
        with pytest.raises(LogDamaged, match="a damaged head"):
            replayed(disk)
        assert replayed(disk, repair=True) == [b"a", b"b"]
        assert disk.files()[FIRST] == flipped(data, place), "nothing was cut"


def test_a_head_that_a_crash_cut_short_had_no_batch_behind_it() -> None:
    data = written().files()[FIRST]
    assert len(data) == HEAD.size
    for size in range(HEAD.size):
        disk = written()
        overwrite(disk, FIRST, data[:size])
        assert replayed(disk) == []


@pytest.mark.parametrize("repair", [True, False])
def test_a_log_of_an_earlier_version_is_refused_and_left_as_it_is(repair: bool) -> None:
    disk = written()
    earlier = b"MOORWAL1" + bytes(8) + batch(1, b"a").encoded(seed=0)
    overwrite(disk, FIRST, earlier)
    with pytest.raises(FolderUnusable, match="an earlier version"):
        replayed(disk, repair=repair)
    assert disk.files()[FIRST] == earlier


def two_segments() -> MemoryDisk:
    disk = MemoryDisk()
    log = log_on(disk)
    log.begin_segment(1)
    log.write(batch(1, b"a"))
    log.begin_segment(2)
    log.write(batch(2, b"b"))
    log.close()
    return disk


def test_a_torn_end_of_an_earlier_segment_is_damage() -> None:
    disk = two_segments()
    assert replayed(disk) == [b"a", b"b"]
    overwrite(disk, FIRST, disk.files()[FIRST][:-1])
    with pytest.raises(LogDamaged, match=FIRST):
        replayed(disk)


def test_a_repair_passes_over_the_damage_of_one_segment_and_reads_the_later_ones() -> None:
    disk = two_segments()
    overwrite(disk, FIRST, disk.files()[FIRST][:-1])
    assert [change.lsn for change in log_on(disk).replay(repair=True)] == [2]
    first, second = log_on(disk).survey()
    assert (first.bad, first.is_torn_end) == ([(HEAD.size, len(disk.files()[FIRST]))], False)
    assert second.bad == []


def test_a_body_that_looks_like_a_batch_does_not_turn_a_torn_end_into_damage() -> None:
    hostile = batch(99, b"a sender chose these bytes").encoded(seed=0)
    disk = written()
    longer = written([b"a"], [hostile, b"and one more"]).files()[FIRST]
    overwrite(disk, FIRST, longer[:-1])
    assert replayed(disk) == [b"a"]


def test_a_body_full_of_marks_is_read_as_it_was_written() -> None:
    body = b"MWAL" * 1_000
    assert replayed(written([body], [b"MWAL"])) == [body, b"MWAL"]


def test_damage_is_found_behind_more_than_a_window_of_bytes() -> None:
    disk = written([b"x" * (1 << 20)], [b"y" * (1 << 20)], [b"z"])
    overwrite(disk, FIRST, flipped(disk.files()[FIRST], 100))
    with pytest.raises(LogDamaged, match=f"at byte {HEAD.size}"):
        replayed(disk)


def test_segments_are_dropped_when_all_their_changes_are_below() -> None:
    disk = MemoryDisk()
    log = log_on(disk)
    log.begin_segment(1)
    log.write(batch(1, b"a", b"b"))
    log.begin_segment(3)
    log.write(batch(3, b"c"))
    size = log.size_bytes
    log.drop_before(2)
    assert log.size_bytes == size
    log.drop_before(3)
    assert list(disk.files()) == ["wal/00000000000000000003.wal"]
    assert replayed(disk) == [b"c"]
    log.begin_segment(4)
    log.begin_segment(4)
    log.drop_before(4)
    assert (list(disk.files()), log.size_bytes) == (["wal/00000000000000000004.wal"], 0)


def test_a_log_says_whether_it_was_ever_written() -> None:
    disk = MemoryDisk()
    assert log_on(disk).is_new
    assert not log_on(two_segments()).is_new


@pytest.mark.parametrize("lose", ["all", "some", "none"])
def test_what_was_written_is_there_after_a_crash_at_any_step(lose: Lose) -> None:
    def life(disk: MemoryDisk, done: list[bytes]) -> None:
        log = log_on(disk)
        log.begin_segment(1)
        for lsn in range(1, 5):
            if lsn == 3:
                log.begin_segment(3)
            log.write(batch(lsn, b"%d" % lsn))
            done.append(b"%d" % lsn)
        log.drop_before(3)

    probe = MemoryDisk()
    life(probe, [])
    assert probe.steps > 12
    for step in range(probe.steps):
        disk, done = MemoryDisk(crash_at=step), list[bytes]()
        with pytest.raises(Crashed):
            life(disk, done)
        disk.crash(random.Random(step), lose)
        found = replayed(disk)
        # Dropping begins when all four are written: only then may the first two be gone.
        expected = [b"1", b"2", b"3", b"4"][: len(done) + 1]
        allowed = [done, expected] + ([[b"3", b"4"]] if len(done) == 4 else [])
        assert found in allowed, step
