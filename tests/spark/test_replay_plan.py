"""The steps of a replay: every message once, a shard in order, no step above the rate, the same tomorrow."""

from itertools import islice, pairwise

import msgspec

from moorline.core.stream import Stream
from moorline.limits import (
    REPLAY_AHEAD_STEPS_MAX,
    REPLAY_ARREARS_S,
    REPLAY_PIECE_ROWS,
    REPLAY_STEP_S,
)
from moorline.spark.jobs.manifest import ArchivedFile
from moorline.spark.jobs.replay import ReplayOptions
from moorline.spark.jobs.replay_pace import Schedule, steps_ahead
from moorline.spark.jobs.replay_plan import Plan, Step


def file(shard: int, generation: int, first: int, upto: int) -> ArchivedFile:
    path = f"{shard}/{generation}/{first}"
    return ArchivedFile(path, upto - first, 100, "node-1", shard, generation, first, upto - 1)


FILES = [file(0, 1, 0, 1_000), file(0, 2, 1_000, 1_500), file(1, 1, 0, 700), file(0, 1, 200, 400)]
EMPTY = Plan("tcp://a:1", "#", 0, 1, "")


def planned(files: list[ArchivedFile], rate: int) -> Plan:
    return EMPTY.extended(files, rate, 0)


def covered(steps: list[Step]) -> dict[Stream, list[int]]:
    found: dict[Stream, list[int]] = {}
    for step in steps:
        for stream, first, upto in step:
            found.setdefault(stream, []).extend(range(first, upto))
    return found


ALL = {
    Stream("node-1", 0, 1): list(range(1_000)),
    Stream("node-1", 0, 2): list(range(1_000, 1_500)),
    Stream("node-1", 1, 1): list(range(700)),
}


def test_every_message_is_in_one_step_and_a_shard_is_in_order() -> None:
    for rate in (0, 7, 100, 10_000):
        steps = list(planned(FILES, rate).steps())
        assert covered(steps) == ALL
        generations = [
            stream for step in steps for stream, _, _ in step if stream.shard_number == 0
        ]
        assert generations == sorted(generations)
        for step in steps:
            shards = [stream.shard for stream, _, _ in step]
            assert len(shards) == len(set(shards))


def test_a_step_brings_no_more_than_the_rate_allows() -> None:
    for step in planned(FILES, 50).steps():
        assert sum(upto - first for _, first, upto in step) <= 50 * REPLAY_STEP_S


def test_what_came_since_is_added_behind() -> None:
    known = planned(FILES, 0)
    assert known.extended(FILES, 0, 0) == known
    grown = known.extended([*FILES, file(1, 1, 700, 900)], 0, 0)
    steps = list(known.steps())
    assert list(grown.steps()) == [*steps, [(Stream("node-1", 1, 1), 700, 900)]]


def test_another_rate_changes_only_what_was_never_begun() -> None:
    slow = planned(FILES, 50)
    for done in (0, 1, 5):
        fast = slow.extended(FILES, 0, done)
        # The step behind those that are done may be published, and the driver may not have heard it.
        begun = done + 1
        assert list(islice(fast.steps(), begun)) == list(islice(slow.steps(), begun))
        assert len(list(fast.steps())) < len(list(slow.steps()))
        assert covered(list(fast.steps())) == ALL
        # Once more, before anything was done: what was kept of both plans stays.
        slower = fast.extended(FILES, 10, done)
        assert list(islice(slower.steps(), begun)) == list(islice(slow.steps(), begun))
        assert covered(list(slower.steps())) == ALL
        for step in islice(slower.steps(), begun, None):
            assert sum(upto - first for _, first, upto in step) <= 10 * REPLAY_STEP_S
    over = len(list(slow.steps()))
    assert list(slow.extended(FILES, 0, over).steps()) == list(slow.steps())


def test_a_plan_is_as_large_as_there_are_streams_and_not_as_there_are_steps() -> None:
    plan = planned([file(0, 1, 0, 10_000_000)], 1)
    assert len(msgspec.json.encode(plan)) < 200
    kept = msgspec.json.decode(msgspec.json.encode(plan), type=Plan)
    assert list(islice(kept.steps(), 4)) == list(islice(plan.steps(), 4))


def test_large_messages_make_small_pieces() -> None:
    large = ArchivedFile("x", 1_000, 1_000 * 1024 * 1024, "node-1", 0, 1, 0, 999)
    sizes = [upto - first for step in planned([large], 0).steps() for _, first, upto in step]
    assert max(sizes) == 64
    rows = REPLAY_PIECE_ROWS
    assert list(planned([file(0, 1, 0, rows)], 0).steps()) == [[(Stream("node-1", 0, 1), 0, rows)]]


def test_the_same_replay_has_the_same_name() -> None:
    target = {"address": "tcp://a:1"}
    one = ReplayOptions("archive", target, prefix="again/")
    # By whatever path the archive is named, at whatever rate, with whatever certificates.
    secured = {**target, "ca": "/new/ca.pem"}
    same = ReplayOptions("/elsewhere/archive", secured, prefix="again/", rate=5)
    assert one.name("id") == same.name("id")
    assert one.name("id") != one.name("another archive")
    assert one.name("id") != ReplayOptions("archive", target).name("id")
    assert one.name("id") != ReplayOptions(
        "archive", {"address": "tcp://b:1"}, prefix="again/"
    ).name("id")
    assert ReplayOptions("archive", target, token="t").name("id") == "t"


# --- the pace: a clock that is moved by hand --------------------------------------------------------


def run_at(rate: int, counts: list[int], late_s: list[float]) -> list[tuple[float, int]]:
    """(time, messages) of each step; each may be ready so much later than the one before was published."""
    schedule, now_s = Schedule(rate), 100.0
    found = []
    for count, late in zip(counts, late_s, strict=True):
        now_s += late
        now_s += schedule.wait_s(now_s)
        schedule.published(count, now_s)
        found.append((now_s, count))
    return found


def rate_of(found: list[tuple[float, int]]) -> float:
    return sum(count for _, count in found[:-1]) / (found[-1][0] - found[0][0])


def test_a_rate_is_kept_although_steps_take_their_time() -> None:
    """600 messages are two seconds' worth: a step that takes 1.9 seconds, or sometimes 7, is made up for."""
    steady = run_at(300, [600] * 50, [1.9] * 50)
    assert abs(rate_of(steady) - 300) < 0.001
    uneven = run_at(300, [600] * 50, [7.0 if number % 10 == 5 else 0.1 for number in range(50)])
    assert abs(rate_of(uneven) - 300) < 3
    # Never more than the rate from the first on, but for the step that is being published.
    for number, (now_s, count) in enumerate(uneven):
        passed = sum(one for _, one in uneven[: number + 1])
        assert passed <= 300 * (now_s - uneven[0][0]) + count + 1e-6


def test_a_long_pause_is_not_followed_by_a_burst() -> None:
    counts, late_s = [600] * 40, [0.0] * 40
    late_s[10] = 3_600.0
    found = run_at(300, counts, late_s)
    back_s = found[10][0]
    at_once = sum(count for now_s, count in found[10:] if now_s < back_s + 0.001)
    assert at_once <= 300 * REPLAY_ARREARS_S + 600
    behind = [now_s for now_s, _ in found[20:]]
    assert all(after - before > 1.999 for before, after in pairwise(behind))


def test_without_a_rate_nobody_waits_and_what_was_kept_is_told() -> None:
    assert {now_s for now_s, _ in run_at(0, [600] * 5, [0.0] * 5)} == {100.0}
    schedule = Schedule(300)
    assert schedule.rate_kept is None
    for now_s in (5.0, 7.0, 9.0):
        schedule.published(600, now_s)
    assert schedule.rate_kept == 300.0


def test_so_much_is_staged_ahead_that_the_next_job_has_its_time() -> None:
    assert steps_ahead(0, 0, 0) == steps_ahead(0, 10**9, 5) == 1
    assert steps_ahead(300, 6_000, 10) == 10
    # A filter that leaves little of each step: more of them, up to a bound.
    assert steps_ahead(300, 600, 10) == REPLAY_AHEAD_STEPS_MAX
    assert steps_ahead(300, 0, 10) == REPLAY_AHEAD_STEPS_MAX
    assert steps_ahead(10, 10**6, 10) == 1
