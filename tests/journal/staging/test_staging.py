"""Staged rows and decisions: whole or not there after any crash, never undone, leftovers removed."""

import random

import pytest
import xxhash

from moorline.errors import (
    CallFailed,
    JournalDamaged,
    LimitReached,
    LogDamaged,
    Malformed,
    NotFound,
)
from moorline.journal.staging import store as staging
from moorline.journal.staging.store import (
    COMMITS,
    STAGES,
    StagePosition,
    StagingStore,
    queries_under_way,
)
from moorline.limits import STAGE_KEPT_S, STAGED_QUERIES_MAX, STAGED_QUERY_KEPT_S
from moorline.testing import Crashed, Lose, MemoryDisk
from moorline.wire.staging import QUEUES, TOPICS, query_key

NOW_S = 1_767_225_600
ROWS = [b"first chunk", b"second", b"third and last"]


class Clock:
    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> int:
        return self.now_s


def opened(disk: MemoryDisk, clock: Clock | None = None) -> StagingStore:
    chance = random.Random(disk.life)
    store = StagingStore(disk, clock or Clock(), draw=chance.randbytes)
    store.open()
    return store


def hash_of(rows: list[bytes]) -> bytes:
    return xxhash.xxh3_128_digest(b"".join(rows))


def staged(
    store: StagingStore, query: str = "q", batch: int = 0, partition: int = 0
) -> tuple[bytes, int, bytes]:
    """A closed stage of three chunks with two rows each."""
    name = store.begin(query, batch, partition, attempt=0, target=0)
    for rows in ROWS:
        store.append(name, rows, 2)
    store.finish(name, 6, hash_of(ROWS))
    return name, 6, hash_of(ROWS)


def rows_of(store: StagingStore, name: bytes, first_row: int = 0) -> list[bytes]:
    return [chunk.rows for chunk in store.chunks(name, first_row)]


def overwrite(disk: MemoryDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=False)
    file.truncate(0)
    file.append(data)
    file.close()


def flip(disk: MemoryDisk, path: str, place: int) -> None:
    data = bytearray(disk.files()[path])
    data[place] ^= 1
    overwrite(disk, path, bytes(data))


def path_of(name: bytes) -> str:
    return f"{STAGES}/{name.hex()}.stage"


def test_commits_under_way_are_found_without_a_change_of_the_folder() -> None:
    disk = MemoryDisk()
    assert queries_under_way(disk) == []
    store = opened(disk)
    for query, target, aside in (
        ("topics", TOPICS, ""),
        ("queues", QUEUES, ""),
        ("aside", QUEUES, "refused"),
        ("done", TOPICS, ""),
    ):
        name, _, _ = staged(store, query)
        store.decide(query, 0, target, [name], aside)
    store.advance("topics", StagePosition(0, 4))
    store.complete("done")
    disk.crash(random.Random(1), "all")
    before = disk.files()
    # Those that publish to topics: rows that queues refuse go there too.
    assert queries_under_way(disk) == ["topics", "aside"]
    assert disk.files() == before
    store = opened(disk)
    store.complete("topics")
    store.complete("aside")
    assert queries_under_way(disk) == []


def test_what_is_left_of_a_decided_stage_stays_and_other_garbage_goes() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    decided, other = staged(store)[0], staged(store, "other")[0]
    store.decide("q", 0, TOPICS, [decided])
    for name in (decided, other):
        overwrite(disk, path_of(name), disk.files()[path_of(name)][:20])
    disk.open(f"{STAGES}/not hex.stage", create=True).append(b"garbage")
    store = opened(disk)
    assert sorted(disk.list_folder(STAGES)) == [f"{decided.hex()}.stage"]
    assert list(store.pending) == ["q"]
    with pytest.raises(NotFound, match="no such stage"):
        store.facts(decided)


# --- stages ---------------------------------------------------------------------------------------


def test_a_closed_stage_is_there_after_a_power_cut_and_an_open_one_is_not() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    closed, _, _ = staged(store)
    left_open = store.begin("q", 0, 1, attempt=0, target=0)
    store.append(left_open, b"rows", 1)
    disk.crash(random.Random(1), "all")
    store = opened(disk)
    assert rows_of(store, closed) == ROWS
    assert rows_of(store, closed, 3) == ROWS[1:], "from the chunk that has the row"
    with pytest.raises(NotFound):
        store.append(left_open, b"more", 1)
    assert list(disk.files()) == [COMMITS, path_of(closed)]


def test_a_stage_that_is_not_what_its_task_wrote_is_not_closed() -> None:
    store = opened(MemoryDisk())
    name = store.begin("q", 0, 0, attempt=0, target=0)
    store.append(name, b"rows", 2)
    with pytest.raises(Malformed):
        store.finish(name, 3, hash_of([b"rows"]))
    with pytest.raises(Malformed):
        store.finish(name, 2, hash_of([b"others"]))
    with pytest.raises(NotFound):
        store.check_stages("q", 0, [(name, 2, hash_of([b"rows"]))])


def test_what_must_not_be_committed_is_refused() -> None:
    store = opened(MemoryDisk())
    one, again, other = staged(store), staged(store), staged(store, batch=1)
    with pytest.raises(CallFailed, match="two stages"):
        store.check_stages("q", 0, [one, again])
    with pytest.raises(CallFailed, match="a stage of q/1, not q/0"):
        store.check_stages("q", 0, [one, other])
    with pytest.raises(CallFailed, match="another"):
        store.check_stages("q", 0, [(one[0], 5, one[2])])
    with pytest.raises(NotFound):
        store.check_stages("q", 0, [(b"x" * 16, 6, one[2])])
    store.check_stages("q", 0, [one])


def test_a_damaged_stage_is_found_before_the_decision() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    one = staged(store)
    flip(disk, path_of(one[0]), disk.files()[path_of(one[0])].index(b"second"))
    with pytest.raises(JournalDamaged, match=one[0].hex()):
        store.check_stages("q", 0, [one])


def test_too_many_stages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "STAGES_MAX", 2)
    store = opened(MemoryDisk())
    staged(store)
    store.begin("q", 0, 1, attempt=0, target=0)
    with pytest.raises(LimitReached, match="2 stages"):
        store.begin("q", 0, 2, attempt=0, target=0)


# --- decisions ------------------------------------------------------------------------------------


def test_partitions_are_published_in_their_order() -> None:
    store = opened(MemoryDisk())
    later, earlier = staged(store, partition=7), staged(store, partition=2)
    decided = store.decide("q", 0, 0, [later[0], earlier[0]])
    assert decided.stages == [earlier[0], later[0]]


def test_abort_removes_what_no_decision_names() -> None:
    store = opened(MemoryDisk())
    one, wasted, next_one = staged(store), staged(store, partition=1), staged(store, batch=1)
    store.decide("q", 0, 0, [one[0]])
    assert store.abort("q", 0, [one[0], wasted[0], next_one[0], b"?" * 16]) == 1
    assert rows_of(store, one[0]) == ROWS
    assert rows_of(store, next_one[0]) == ROWS
    with pytest.raises(NotFound):
        rows_of(store, wasted[0])


def test_a_completed_batch_leaves_its_number_and_no_files() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    one, wasted = staged(store, batch=4), staged(store, batch=4, partition=1)
    store.decide("q", 4, 0, [one[0]])
    assert store.last_batch("q") == 4
    store.complete("q")
    assert store.last_batch("q") == 4
    assert store.last_batch("another") == -1
    assert [store.is_decided("q", batch) for batch in (3, 4, 5)] == [True, True, False]
    assert not store.is_decided("another", 0)
    assert rows_of(store, wasted[0]) == ROWS, "a second attempt that nobody named"
    assert store.remove_leftovers() == 1
    assert list(disk.files()) == [COMMITS]


def test_a_batch_that_an_older_program_committed_is_known_by_the_new_key() -> None:
    store = opened(MemoryDisk())
    one, other = staged(store, "q", batch=4), staged(store, "\0alice\0r", batch=7)
    store.decide("q", 4, 0, [one[0]])
    assert store.last_batch(query_key("anonymous", "q")) == 4, "while it goes on"
    store.complete("q")
    store.decide("\0alice\0r", 7, 0, [other[0]])
    assert store.last_batch(query_key("anonymous", "q")) == 4
    assert store.last_batch(query_key("alice", "q")) == -1
    assert store.last_batch(query_key("anonymous", "r")) == -1


def test_leftovers_go_after_a_day_but_not_what_is_decided() -> None:
    disk, clock = MemoryDisk(), Clock()
    store = opened(disk, clock)
    one, leftover = staged(store), staged(store, query="gone")
    store.decide("q", 0, 0, [one[0]])
    clock.now_s += STAGE_KEPT_S
    assert store.remove_leftovers() == 0
    clock.now_s += 1
    assert store.remove_leftovers() == 1
    assert rows_of(store, one[0]) == ROWS
    with pytest.raises(NotFound):
        rows_of(store, leftover[0])


def test_queries_are_forgotten_after_a_month_or_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, clock = MemoryDisk(), Clock()
    store = opened(disk, clock)
    for number in range(3):
        store.decide(f"q{number}", number, 0, [])
        store.complete(f"q{number}")
        clock.now_s += 10
    clock.now_s = NOW_S + STAGED_QUERY_KEPT_S + 5
    store.remove_leftovers()
    assert [store.last_batch(f"q{number}") for number in range(3)] == [-1, 1, 2]
    assert STAGED_QUERIES_MAX > 1
    monkeypatch.setattr(staging, "STAGED_QUERIES_MAX", 1)
    store = opened(disk, clock)
    assert [store.last_batch(f"q{number}") for number in range(3)] == [-1, -1, 2]


def test_the_log_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "COMMIT_LOG_BYTES_MAX", 1_000)
    disk = MemoryDisk()
    store = opened(disk)
    one = staged(store, query="pending")
    store.decide("pending", 0, 0, [one[0]])
    store.advance("pending", StagePosition(0, 3))
    for batch in range(200):
        store.decide("q", batch, 0, [])
        store.complete("q")
    assert len(disk.files()[COMMITS]) < 1_200
    disk.crash(random.Random(3), "all")
    store = opened(disk)
    assert store.last_batch("q") == 199
    assert store.pending["pending"][1] == StagePosition(0, 3)


def test_a_torn_end_is_cut_and_damage_before_it_is_an_error() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    for batch in range(3):
        store.decide("q", batch, 0, [])
        store.complete("q")
    store.close()
    whole = disk.files()[COMMITS]
    overwrite(disk, COMMITS, whole[:-1])
    assert opened(disk).pending["q"][0].batch == 2
    overwrite(disk, COMMITS, whole)
    flip(disk, COMMITS, 20)
    with pytest.raises(LogDamaged, match="byte 16"):
        opened(disk)
    overwrite(disk, COMMITS, b"")
    with pytest.raises(LogDamaged):
        opened(disk)


# --- crashes --------------------------------------------------------------------------------------


class Run:
    """A life of a store, and what its caller was promised until it ended."""

    def __init__(self) -> None:
        self.closed: dict[bytes, int] = {}
        self.decided = self.decided_at_least = -1
        self.completed = -1
        self.position = self.place_at_least = StagePosition()

    def work(self, store: StagingStore) -> None:
        for batch in range(2):
            stages = []
            for partition in range(2):
                one = staged(store, batch=batch, partition=partition)
                self.closed[one[0]] = batch
                stages.append(one)
            wasted = staged(store, batch=batch, partition=1)
            store.abort("q", batch, [wasted[0]])
            store.check_stages("q", batch, stages)
            self.position = self.place_at_least = StagePosition()
            self.decided = batch
            store.decide("q", batch, 0, [one[0] for one in stages])
            self.decided_at_least = batch
            for position in (StagePosition(0, 2), StagePosition(1, 4)):
                self.position = position
                store.advance("q", position)
                self.place_at_least = position
            store.complete("q")
            self.completed = batch
            store._compact()

    def check(self, store: StagingStore) -> None:
        """What was promised holds; what was on its way happened, or did not."""
        last = store.last_batch("q")
        assert self.decided_at_least <= last <= self.decided
        pending = store.pending.get("q")
        if pending is None:
            assert last in (-1, self.decided, self.decided_at_least)
        else:
            decided, position = pending
            assert decided.batch > self.completed
            assert position in (StagePosition(), self.place_at_least, self.position)
            if self.decided_at_least == decided.batch:
                assert position >= self.place_at_least
            assert all(rows_of(store, name) == ROWS for name in decided.stages)
        for name, batch in self.closed.items():
            if batch > last:
                assert rows_of(store, name) == ROWS


@pytest.mark.parametrize("lose", ["none", "some", "all"])
def test_a_crash_at_every_step(lose: Lose) -> None:
    disk = MemoryDisk()
    opened(disk)
    before = disk.steps
    Run().work(opened(disk))
    steps = disk.steps - before
    assert steps > 60
    for step in range(steps):
        for seed in range(3 if lose == "some" else 1):
            disk, run = MemoryDisk(), Run()
            opened(disk)
            disk.crash_at = disk.steps + step
            with pytest.raises(Crashed):
                run.work(opened(disk))
            disk.crash(random.Random(seed), lose)
            store = opened(disk)
            run.check(store)
            if "q" in store.pending:
                store.complete("q")
            last = store.last_batch("q")
            disk.crash(random.Random(seed), "all")
            store = opened(disk)
            assert (store.last_batch("q"), store.pending) == (last, {})


def test_many_stages_that_are_written_in_turn_have_few_files_open() -> None:
    disk = MemoryDisk()
    chance = random.Random(7)
    store = StagingStore(disk, Clock(), draw=chance.randbytes, files_max=3)
    store.open()
    names = [store.begin("q", 0, partition, attempt=0, target=0) for partition in range(20)]
    for rows in ROWS:
        for name in chance.sample(names, len(names)):
            store.append(name, rows, 2)
            assert disk.open_handles <= 1 + 3, "the log, and the last ones"
    stages = [(name, 6, hash_of(ROWS)) for name in names]
    for name, count, hash_ in stages:
        store.finish(name, count, hash_)
    assert disk.open_handles == 1
    store.check_stages("q", 0, stages)
    disk.crash(chance, "all")
    store = opened(disk)
    assert all(rows_of(store, name) == ROWS for name in names)
    store.close()
    assert disk.open_handles == 0


def test_a_stage_whose_file_is_gone_is_refused_by_name() -> None:
    disk = MemoryDisk()
    store = StagingStore(disk, Clock(), files_max=1)
    store.open()
    name = store.begin("q", 0, 0, attempt=0, target=0)
    store.begin("q", 0, 1, attempt=0, target=0)
    disk.remove(path_of(name))
    with pytest.raises(JournalDamaged, match=name.hex()):
        store.append(name, b"rows", 1)
