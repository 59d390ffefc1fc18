"""Where a micro-batch ends that shall have so many messages: it goes on whatever is told of them."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from moorline.journal.streams.source import Counted
from moorline.spark.batch_limit import Count, is_enough, limited_by_matches, may_count
from moorline.spark.options import Offsets

WANTED = st.dictionaries(
    st.sampled_from(["n/0", "n/1", "n/2"]), st.sets(st.integers(0, 59)).map(sorted), min_size=1
)
"""By shard the messages that match, of sixty each."""


def counting(wanted: dict[str, list[int]], looks_at: int, unknown: str = "") -> Count:
    """What tells it, and looks no further than that from where it is asked."""

    def count(since: Offsets, count_max: Offsets) -> dict[str, Counted]:
        found = {}
        for shard, at in since.items():
            if shard == unknown:
                continue
            own = wanted[shard]
            first, limit = bisect_left(own, at), min(at + looks_at, 70)
            stop = min(bisect_left(own, limit), first + count_max[shard])
            upto = min(own[stop], limit) if stop < len(own) else limit
            found[shard] = Counted(upto, stop - first)
        return found

    return count


@given(WANTED, st.integers(1, 40), st.integers(1, 70), st.sampled_from(["", "n/0", "n/1"]))
def test_batches_reach_the_end_and_no_batch_has_more(
    wanted: dict[str, list[int]], rows_max: int, looks_at: int, unknown: str
) -> None:
    count = counting(wanted, looks_at, unknown)
    at, end = dict.fromkeys(wanted, 0), dict.fromkeys(wanted, 60)
    for _ in range(200):
        reached = limited_by_matches(at, end, rows_max, count)
        assert reached != at, "it goes on, also where nothing matches"
        assert all(at[shard] <= reached[shard] <= 60 for shard in wanted)
        batch = sum(
            bisect_left(own, reached[shard]) - bisect_left(own, at[shard])
            for shard, own in wanted.items()
        )
        # One of each shard at least, so that none with little in it waits for ever.
        assert batch <= max(rows_max, rows_max + len(wanted) - 1)
        at = reached
        if at == end:
            return
    raise AssertionError(f"it never came to the end, but to {at}")


def test_others_messages_take_none_of_the_limit() -> None:
    count = counting({"n/0": [5, 15, 25, 35, 45, 55], "n/1": []}, 60)
    start, end = {"n/0": 0, "n/1": 0}, {"n/0": 60, "n/1": 60}
    assert limited_by_matches(start, end, 4, count) == {"n/0": 45, "n/1": 60}
    # A shard that the batch may not touch yet, or that is new, stays as it was said.
    assert limited_by_matches(start, {**end, "n/1": 0, "n/2": 9}, 2, count)["n/1"] == 0


def test_a_shard_of_which_nothing_is_told_counts_every_message() -> None:
    count = counting({"n/0": [5]}, 60, unknown="n/0")
    assert limited_by_matches({"n/0": 3}, {"n/0": 60}, 10, count) == {"n/0": 13}
    assert limited_by_matches({"n/0": 3}, {"n/0": 60}, 10, counting({"n/0": []}, 0)) == {"n/0": 13}


def test_enough_is_of_what_matches() -> None:
    count = counting({"n/0": [5, 15]}, 60)
    assert is_enough({"n/0": 0}, {"n/0": 60}, 2, count)
    assert not is_enough({"n/0": 0}, {"n/0": 60}, 3, count)
    assert is_enough({"n/0": 0}, {"n/0": 60}, 3, counting({"n/0": [5, 15]}, 30)), (
        "not looked to the end"
    )
    assert not is_enough({"n/0": 60}, {"n/0": 60}, 1, count)


def test_who_wants_everything_or_too_much_is_not_counted_for() -> None:
    assert may_count(("a", "b/+"))
    assert not may_count(("a", "#"))
    assert not may_count(tuple(f"t/{number}" for number in range(65)))
