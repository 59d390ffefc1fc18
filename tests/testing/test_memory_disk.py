"""What a `MemoryDisk` keeps and loses in a crash."""

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.errors import DiskFull
from moorline.journal.disk import Disk, DiskFile, write_whole
from moorline.testing import Crashed, Lose, MemoryDisk

LOSES: list[Lose] = ["none", "some", "all"]
SEEDS = st.integers(0, 2**32)


def durable_file(disk: MemoryDisk, path: str, data: bytes = b"") -> DiskFile:
    file = disk.open(path, create=True)
    file.append(data)
    file.sync()
    disk.sync_folder(path.rpartition("/")[0])
    return file


def outcomes(
    lose: Lose, *, prepare: Callable[[MemoryDisk], None]
) -> set[tuple[tuple[str, bytes], ...]]:
    """All the contents that a crash was seen to leave behind, over many seeds."""
    found = set()
    for seed in range(200):
        disk = MemoryDisk()
        prepare(disk)
        disk.crash(random.Random(seed), lose)
        found.add(tuple(disk.files().items()))
    return found


# --- contents -------------------------------------------------------------------------------------

CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(min_size=1, max_size=6)),
        st.tuples(st.just("truncate"), st.integers(0, 12)),
        st.tuples(st.just("sync"), st.none()),
    ),
    max_size=12,
)


def apply(file: DiskFile, changes: list[tuple[str, object]]) -> tuple[bytes, set[bytes]]:
    """Makes the changes; returns the last synced content and all that a crash may leave."""
    now = synced = b""
    possible = {b""}
    for kind, what in changes:
        if kind == "append":
            assert isinstance(what, bytes)
            file.append(what)
            possible |= {now + what[:length] for length in range(len(what) + 1)}
            now += what
        elif kind == "truncate":
            assert isinstance(what, int)
            now = now[: min(what, len(now))]
            file.truncate(len(now))
            possible.add(now)
        else:
            file.sync()
            synced, possible = now, {now}
    return synced, possible


@given(CHANGES, SEEDS)
def test_losing_all_returns_to_the_last_sync(changes: list[tuple[str, object]], seed: int) -> None:
    disk = MemoryDisk()
    synced, _ = apply(durable_file(disk, "f"), changes)
    disk.crash(random.Random(seed), "all")
    assert disk.files() == {"f": synced}


@given(CHANGES, SEEDS)
def test_losing_some_leaves_a_moment_since_the_last_sync(
    changes: list[tuple[str, object]], seed: int
) -> None:
    disk = MemoryDisk()
    _, possible = apply(durable_file(disk, "f"), changes)
    disk.crash(random.Random(seed), "some")
    assert disk.files()["f"] in possible


@given(CHANGES, SEEDS)
def test_a_process_crash_loses_nothing(changes: list[tuple[str, object]], seed: int) -> None:
    disk = MemoryDisk()
    apply(durable_file(disk, "f"), changes)
    before = disk.files()
    disk.crash(random.Random(seed), "none")
    assert disk.files() == before


@given(st.binary(max_size=20), st.lists(st.binary(max_size=5), max_size=10), SEEDS)
def test_synced_data_survive_and_the_rest_is_a_prefix(
    synced: bytes, parts: list[bytes], seed: int
) -> None:
    disk = MemoryDisk()
    file = durable_file(disk, "f", synced)
    for part in parts:
        file.append(part)
    disk.crash(random.Random(seed), "some")
    found = disk.files()["f"]
    assert found.startswith(synced)
    assert (synced + b"".join(parts)).startswith(found)


def test_some_reaches_every_possible_end() -> None:
    def prepare(disk: MemoryDisk) -> None:
        file = durable_file(disk, "f", b"abc")
        file.truncate(1)
        file.append(b"xy")

    assert outcomes("some", prepare=prepare) == {
        (("f", end),) for end in (b"abc", b"a", b"ax", b"axy")
    }


def test_what_a_process_crash_left_can_still_be_lost() -> None:
    disk = MemoryDisk()
    durable_file(disk, "f", b"abc").append(b"d")
    disk.crash(random.Random(1), "none")
    assert disk.files() == {"f": b"abcd"}
    disk.crash(random.Random(1), "all")
    assert disk.files() == {"f": b"abc"}


# --- names ----------------------------------------------------------------------------------------


def test_a_synced_file_without_a_synced_name_is_lost() -> None:
    disk = MemoryDisk()
    file = disk.open("f", create=True)
    file.append(b"x")
    file.sync()
    disk.crash(random.Random(1), "all")
    assert disk.files() == {}


def test_a_folder_is_durable_only_with_those_above_it() -> None:
    disk = MemoryDisk()
    disk.make_folders("a/b")
    durable_file(disk, "a/b/f", b"x")
    disk.sync_folder("a")
    disk.crash(random.Random(1), "all")
    assert not disk.exists("a")


def test_names_undone_one_by_one() -> None:
    def prepare(disk: MemoryDisk) -> None:
        durable_file(disk, "old", b"1")
        file = disk.open("new", create=True)
        file.append(b"2")
        file.sync()
        disk.rename("new", "old")
        disk.remove("old")

    old, new = ("old", b"1"), ("new", b"2")
    assert outcomes("all", prepare=prepare) == {(old,)}
    assert outcomes("none", prepare=prepare) == {()}
    assert outcomes("some", prepare=prepare) == {(old,), (new, old), (("old", b"2"),), ()}


def test_a_rename_before_the_sync_may_leave_an_empty_file() -> None:
    def prepare(disk: MemoryDisk) -> None:
        durable_file(disk, "state", b"old")
        disk.open("state.new", create=True).append(b"n")
        disk.rename("state.new", "state")

    assert (("state", b""),) in outcomes("some", prepare=prepare)


def test_a_folder_may_be_removed_by_half() -> None:
    def prepare(disk: MemoryDisk) -> None:
        disk.make_folders("a")
        disk.sync_folder("")
        durable_file(disk, "a/1")
        durable_file(disk, "a/2")
        disk.remove_folder("a")

    one, two = ("a/1", b""), ("a/2", b"")
    assert outcomes("all", prepare=prepare) == {(one, two)}
    assert outcomes("some", prepare=prepare) == {(one, two), (two,), ()}


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("rename"), st.integers(0, 5), st.integers(0, 2)),
        st.tuples(st.just("sync"), st.just(0), st.integers(0, 2)),
    ),
    max_size=20,
)


@given(MOVES, SEEDS, st.sampled_from(LOSES))
def test_a_renamed_file_is_always_in_exactly_one_place(
    moves: list[tuple[str, int, int]], seed: int, lose: Lose
) -> None:
    disk = MemoryDisk()
    folders = ["a", "b", "b/c"]
    disk.make_folders("a")
    disk.make_folders("b/c")
    disk.sync_folder("")
    disk.sync_folder("b")
    where = {}
    for number in range(6):
        where[number] = f"a/{number}"
        durable_file(disk, where[number], b"%d" % number)
    for kind, number, folder in moves:
        if kind == "rename":
            target = f"{folders[folder]}/{number}"
            disk.rename(where[number], target)
            where[number] = target
        else:
            disk.sync_folder(folders[folder])
    disk.crash(random.Random(seed), lose)
    assert sorted(disk.files().values()) == [b"%d" % number for number in range(6)]


def test_folders_moved_in_a_ring_do_not_hold_each_other() -> None:
    for seed in range(200):
        disk = MemoryDisk()
        disk.make_folders("a")
        disk.make_folders("b")
        disk.sync_folder("")
        disk.rename("a", "b/a")
        disk.rename("b/a", "a")
        disk.rename("b", "a/b")
        disk.crash(random.Random(seed), "some")
        assert disk.exists("a") or disk.exists("b/a")


# --- whole writes, stopped at every step ----------------------------------------------------------


@pytest.mark.parametrize("lose", LOSES)
def test_write_whole_stopped_at_every_step_leaves_old_or_new(lose: Lose) -> None:
    seen = set()
    for stop, seed in itertools.product(range(7), range(20)):
        disk = MemoryDisk()
        disk.write_whole("state", b"old")
        disk.crash_at = disk.steps + stop
        finished = True
        try:
            disk.write_whole("state", b"new")
        except Crashed:
            finished = False
        disk.crash(random.Random(seed), lose)
        state = disk.files()["state"]
        seen.add(state)
        assert state in ({b"new"} if finished else {b"old", b"new"})
    assert seen == {b"old", b"new"}


def test_a_crash_is_not_survived_by_handlers() -> None:
    disk = MemoryDisk(crash_at=1)

    def stubborn() -> None:
        try:
            disk.open("a", create=True).append(b"x")
        except Exception:
            disk.remove("a")

    with pytest.raises(Crashed):
        stubborn()
    with pytest.raises(Crashed):
        disk.exists("a")
    disk.crash(random.Random(1), "none")
    assert disk.files() == {"a": b""}
    assert disk.crash_at is None


def test_counts_only_what_changes_something() -> None:
    disk = MemoryDisk()
    file = disk.open("a", create=True)
    disk.open("a", create=True).close()
    disk.exists("a")
    disk.list_folder("")
    file.size()
    file.read_at(0, 1)
    assert disk.steps == 1
    file.append(b"x")
    file.truncate(0)
    file.sync()
    disk.sync_folder("")
    disk.rename("a", "b")
    disk.remove("b")
    disk.make_folders("c/d")
    disk.remove_folder("c")
    assert disk.steps == 11


def test_handles_die_in_a_crash() -> None:
    disk = MemoryDisk()
    file = durable_file(disk, "f")
    disk.crash(random.Random(1), "none")
    assert disk.open_handles == 0
    with pytest.raises(AssertionError, match="died in a crash"):
        file.append(b"x")
    file.close()
    assert disk.open_handles == 0


# --- full and broken disks ------------------------------------------------------------------------


def test_a_full_disk_takes_what_fits() -> None:
    disk = MemoryDisk(capacity_bytes=10)
    file = disk.open("f", create=True)
    file.append(b"12345678")
    assert disk.free_bytes("") == 2
    with pytest.raises(DiskFull, match="Free some space"):
        file.append(b"abc")
    assert file.read_at(0, 20) == b"12345678ab"
    file.truncate(8)
    file.append(b"xy")
    disk.remove("f")
    assert disk.free_bytes("") == 10


def test_write_whole_on_a_full_disk_keeps_the_old_content() -> None:
    disk = MemoryDisk(capacity_bytes=5)
    disk.write_whole("f", b"old")
    with pytest.raises(DiskFull):
        disk.write_whole("f", b"newer")
    assert disk.files() == {"f": b"old"}
    assert disk.open_handles == 0


def test_after_a_failed_sync_the_next_one_lies() -> None:
    disk = MemoryDisk()
    file = durable_file(disk, "f", b"a")
    file.append(b"b")
    disk.fail_sync = True
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    with pytest.raises(OSError, match="Input/output error"):
        disk.sync_folder("")
    disk.fail_sync = False
    file.sync()
    disk.crash(random.Random(1), "all")
    assert disk.files() == {"f": b"a"}
    file = disk.open("f", create=False)
    file.append(b"c")
    file.sync()
    disk.crash(random.Random(1), "all")
    assert disk.files() == {"f": b"ac"}


def test_is_a_disk() -> None:
    disk: Disk = MemoryDisk()
    write_whole(disk, "f", b"x")
    assert disk.exists("f")
