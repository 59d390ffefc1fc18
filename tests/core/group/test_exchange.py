"""Exchanges of streams: they come to an end, near to equal loads, and never change how many anybody has."""

from hypothesis import given
from hypothesis import strategies as st

from moorline.core.group.exchange import BEGINS_AT, exchanges

Held = dict[str, list[int]]
Loads = dict[int, float]


@st.composite
def groups(draw: st.DrawFn) -> tuple[Held, Loads]:
    """Members that have as many streams as the others or one more, and what the streams carry."""
    members = [f"b{n}" for n in range(draw(st.integers(1, 8)))]
    held: Held = {member: [] for member in members}
    streams = draw(st.integers(0, 40))
    for stream in range(streams):
        held[members[stream % len(members)]].append(stream)
    # Some alike, some hot, some with next to nothing.
    load = st.one_of(st.integers(0, 20), st.integers(0, 1_000), st.sampled_from([0, 5_000]))
    loads = {stream: float(draw(load)) for stream in range(streams)}
    return held, loads


def settled(held: Held, loads: Loads) -> tuple[Held, int]:
    """After all exchanges; and how many streams were moved for them."""
    held = {member: list(streams) for member, streams in held.items()}
    moves = 0
    while found := exchanges(held, loads):
        touched = [member for one in found for member in (one.giver, one.taker)]
        assert len(set(touched)) == len(touched), "one of each member at a time"
        for giver, gives, taker, gets in found:
            before = squares(held, loads)
            held[giver].remove(gives)
            held[taker].append(gives)
            moves += 1
            if gets is not None:
                held[taker].remove(gets)
                held[giver].append(gets)
                moves += 1
            assert squares(held, loads) < before, (
                "X2: more alike each time, so there is an end of it"
            )
    return held, moves


def carried(held: Held, loads: Loads) -> dict[str, float]:
    return {member: sum(loads[stream] for stream in streams) for member, streams in held.items()}


def squares(held: Held, loads: Loads) -> float:
    return sum(load * load for load in carried(held, loads).values())


@given(groups())
def test_x1_at_rest_nobody_carries_far_more_but_for_one_hot_stream(
    group: tuple[Held, Loads],
) -> None:
    held, loads = group
    after, moves = settled(held, loads)
    assert sorted(stream for streams in after.values() for stream in streams) == sorted(loads)
    counts = {member: len(streams) for member, streams in after.items()}
    assert max(counts.values()) - min(counts.values()) <= 1, "by number they stay as they were"
    assert moves <= 2 * len(loads)
    by_member = carried(after, loads)
    most = max(by_member, key=lambda member: by_member[member])
    mean = sum(by_member.values()) / len(by_member)
    heaviest = max((loads[stream] for stream in after[most]), default=0)
    is_near = by_member[most] <= BEGINS_AT * mean + 1e-6
    is_one_stream = by_member[most] - min(by_member.values()) <= 9 / 8 * heaviest + 1e-6
    assert is_near or is_one_stream, (by_member, after, loads)


@given(groups(), st.floats(1, 1_000))
def test_equal_loads_and_unknown_ones_move_nothing(group: tuple[Held, Loads], load: float) -> None:
    held, loads = group
    assert exchanges(held, dict.fromkeys(loads, load)) == []
    assert exchanges(held, {}) == []


@given(groups(), st.data())
def test_what_is_resting_stays(group: tuple[Held, Loads], data: st.DataObject) -> None:
    held, loads = group
    resting = data.draw(st.sets(st.sampled_from(sorted(loads)))) if loads else set()
    for _, gives, _, gets in exchanges(held, loads, resting):
        assert gives not in resting
        assert gets not in resting
    assert exchanges(held, loads, loads.keys()) == []


def test_one_stream_more_is_no_reason_where_all_carry_the_same() -> None:
    assert exchanges({"a": [1, 2], "b": [3]}, {1: 10.0, 2: 10.0, 3: 10.0}) == []


def test_two_hot_streams_of_one_member_become_one_of_each() -> None:
    loads = {1: 900.0, 2: 800.0, 3: 10.0, 4: 20.0}
    assert exchanges({"a": [1, 2], "b": [3, 4]}, loads) == [("a", 2, "b", 3)]


def test_the_one_hot_stream_stays_where_it_is() -> None:
    """Whoever had it would carry most: to move it helps nobody."""
    loads = {1: 900.0, 2: 10.0, 3: 10.0, 4: 10.0}
    assert exchanges({"a": [1, 2], "b": [3, 4]}, loads) == []


def test_who_has_one_stream_more_gives_it_away() -> None:
    loads = {1: 50.0, 2: 40.0, 3: 30.0, 4: 5.0, 5: 5.0}
    assert exchanges({"a": [1, 2, 3], "b": [4, 5]}, loads) == [("a", 1, "b", None)]


def test_less_than_a_third_above_the_mean_moves_nothing() -> None:
    held = {"a": [1, 2, 3], "b": [4, 5, 6]}
    assert exchanges(held, {1: 13.0, 2: 13.0, 3: 13.0, 4: 8.0, 5: 8.0, 6: 8.0}) == []
    assert exchanges(held, {1: 18.0, 2: 18.0, 3: 18.0, 4: 8.0, 5: 8.0, 6: 8.0}) != []


def test_a_stream_that_carries_next_to_nothing_is_not_moved() -> None:
    """What would gain less than an eighth of a stream of average load, beside one that nobody can share."""
    loads = {1: 900.0, 2: 12.0, 3: 10.0, 4: 3.0, 5: 2.0, 6: 1.0}
    assert exchanges({"a": [1, 2, 3], "b": [4, 5, 6]}, loads) == []
