"""The steps of a replay: every message once, a shard in order, no step above the rate."""

from moorline.core.stream import Stream
from moorline.spark.jobs.archive_files import ArchivedFile
from moorline.spark.jobs.replay import PIECE_ROWS, STEP_S, ReplayOptions, steps_of


def file(shard: int, generation: int, first: int, upto: int) -> ArchivedFile:
    path = f"{shard}/{generation}/{first}"
    return ArchivedFile(path, upto - first, 100, "node-1", shard, generation, first, upto - 1)


FILES = [file(0, 1, 0, 1_000), file(0, 2, 1_000, 1_500), file(1, 1, 0, 700), file(0, 1, 200, 400)]


def covered(steps: list[list[tuple[Stream, int, int]]]) -> dict[Stream, list[int]]:
    found: dict[Stream, list[int]] = {}
    for step in steps:
        for stream, first, upto in step:
            found.setdefault(stream, []).extend(range(first, upto))
    return found


def test_every_message_is_in_one_step_and_a_shard_is_in_order() -> None:
    for rate in (0, 7, 100, 10_000):
        steps = steps_of(FILES, [], rate)
        assert covered(steps) == {
            Stream("node-1", 0, 1): list(range(1_000)),
            Stream("node-1", 0, 2): list(range(1_000, 1_500)),
            Stream("node-1", 1, 1): list(range(700)),
        }
        generations = [stream for step in steps for stream, _, _ in step if stream.shard == 0]
        assert generations == sorted(generations)
        for step in steps:
            shards = [stream.line for stream, _, _ in step]
            assert len(shards) == len(set(shards))


def test_a_step_brings_no_more_than_the_rate_allows() -> None:
    for step in steps_of(FILES, [], 50):
        assert sum(upto - first for _, first, upto in step) <= 50 * STEP_S


def test_what_came_since_is_added_behind() -> None:
    known = steps_of(FILES, [], 0)
    assert steps_of(FILES, known, 0) == []
    grown = [*FILES, file(1, 1, 700, 900)]
    assert steps_of(grown, known, 0) == [[(Stream("node-1", 1, 1), 700, 900)]]


def test_large_messages_make_small_pieces() -> None:
    large = ArchivedFile("x", 1_000, 1_000 * 1024 * 1024, "node-1", 0, 1, 0, 999)
    assert max(upto - first for step in steps_of([large], [], 0) for _, first, upto in step) == 64
    assert steps_of([file(0, 1, 0, PIECE_ROWS)], [], 0) == [
        [(Stream("node-1", 0, 1), 0, PIECE_ROWS)]
    ]


def test_the_same_replay_has_the_same_name() -> None:
    one = ReplayOptions("archive", {"address": "tcp://a:1"}, prefix="again/")
    assert (
        one.name()
        == ReplayOptions("archive", {"address": "tcp://a:1"}, prefix="again/", rate=5).name()
    )
    assert one.name() != ReplayOptions("archive", {"address": "tcp://a:1"}).name()
    assert ReplayOptions("archive", {}, token="t").name() == "t"
