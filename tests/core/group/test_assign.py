"""Plans: balanced to within one, with as few moves as can be, and empty on their own result."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from moorline.core.group.assign import assignment, shares

Held = dict[str, list[int]]


@st.composite
def groups(draw: st.DrawFn) -> tuple[Held, list[int]]:
    """Members that hold any streams, balanced or not, and streams that nobody holds."""
    members = [f"b{n}" for n in range(draw(st.integers(1, 8)))]
    held: Held = {member: [] for member in members}
    free: list[int] = []
    for stream in range(draw(st.integers(0, 64))):
        owner = draw(st.sampled_from([*members, ""]))
        (held[owner] if owner else free).append(stream)
    return held, free


def settled(held: Held, free: list[int]) -> tuple[Held, int]:
    """Plans until there is nothing to do; how many streams changed hands or were taken."""
    moves = 0
    before = {stream: owner for owner, streams in held.items() for stream in streams}
    while True:
        plan = assignment(held, free, before=before)
        if not plan.grants and not plan.revokes:
            return held, moves
        moves += len(plan.revokes)
        held = {owner: list(streams) for owner, streams in held.items()}
        free = [stream for stream in free if stream not in dict(plan.grants)]
        for stream, owner in plan.revokes:
            held[owner].remove(stream)
            free.append(stream)
        for stream, owner in plan.grants:
            held[owner].append(stream)


@given(groups())
def test_i8_i9_plans_end_with_everything_shared_out_to_within_one(
    group: tuple[Held, list[int]],
) -> None:
    held, free = group
    after, _ = settled(held, free)
    counts = [len(streams) for streams in after.values()]
    assert max(counts) - min(counts) <= 1
    everything = [*free, *(stream for streams in held.values() for stream in streams)]
    assert Counter(stream for streams in after.values() for stream in streams) == Counter(
        everything
    )
    plan = assignment(after, [])
    assert not plan.grants
    assert not plan.revokes


@given(groups())
def test_i10_a_join_moves_at_most_its_share(group: tuple[Held, list[int]]) -> None:
    held, _ = settled(*group)
    total = sum(len(streams) for streams in held.values())
    after, moves = settled({**held, "new": []}, [])
    assert moves <= -(-total // (len(held) + 1))
    for owner, streams in held.items():
        assert set(after[owner]) <= set(streams), "nobody but the new one gets a stream"


@given(groups())
def test_i10_a_leave_moves_only_what_the_leaver_had(group: tuple[Held, list[int]]) -> None:
    held, _ = settled(*group)
    if len(held) == 1:
        return
    leaver = sorted(held)[0]
    rest = {owner: streams for owner, streams in held.items() if owner != leaver}
    after, moves = settled(rest, held[leaver])
    assert moves == 0
    assert all(set(streams) <= set(after[owner]) for owner, streams in rest.items())


def test_a_stream_goes_back_to_whoever_had_it() -> None:
    plan = assignment({"a": [], "b": []}, ["s1", "s2"], before={"s1": "b", "s2": "a"})
    assert sorted(plan.grants) == [("s1", "b"), ("s2", "a")]


def test_the_one_too_many_stays_where_it_was_when_a_stream_of_its_owner_begins_anew() -> None:
    plan = assignment({"a": ["s1"], "b": ["s2"]}, ["s3"], before={"s3": "b"})
    assert plan == ([("s3", "b")], [])


def test_what_is_on_its_way_back_counts_and_is_not_taken_twice() -> None:
    assert assignment({"a": [1, 2], "b": []}, [], moving=2).revokes == []


def test_f17_more_members_than_streams_leaves_some_without() -> None:
    plan = assignment({"a": [], "b": [], "c": []}, [1])
    assert len(plan.grants) == 1
    assert shares({"a": 1, "b": 0, "c": 0}, 1) == {"a": 1, "b": 0, "c": 0}
    assert shares({}, 3) == {}
