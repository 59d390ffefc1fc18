"""The steps of a replay: every message once, a shard in order, no step above the rate, the same tomorrow."""

from itertools import islice

import msgspec

from moorline.core.stream import Stream
from moorline.limits import REPLAY_PIECE_ROWS, REPLAY_STEP_S
from moorline.spark.jobs.manifest import ArchivedFile
from moorline.spark.jobs.replay import ReplayOptions
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
        generations = [stream for step in steps for stream, _, _ in step if stream.shard == 0]
        assert generations == sorted(generations)
        for step in steps:
            shards = [stream.line for stream, _, _ in step]
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
