"""A shard and a member as a Leader sees them: which stream is read, how far behind, and what is gone."""

import pytest

from moorline.core.delivery.progress import Cursor
from moorline.core.group.message import LeaderWanted
from moorline.core.group.views import BorrowerView, ShardView
from moorline.core.stream import RETENTION, Extent, Gap, Shard, Stream


def extent(generation: int, first: int, end: int, *, sealed: bool = True) -> Extent:
    return Extent(Stream("n1", 0, generation), first, end, sealed)


def view(cursor: Cursor, *extents: Extent) -> ShardView:
    found = ShardView(Shard("n1", 0), cursor)
    found.extents = extents
    return found


GENERATIONS = (extent(4, 10, 20), extent(5, 20, 20), extent(6, 20, 30, sealed=False))


@pytest.mark.parametrize(
    ("low", "generation"), [(0, 4), (10, 4), (19, 4), (20, 6), (29, 6), (30, 6)]
)
def test_the_stream_to_be_read_is_the_first_with_anything_beyond_the_cursor(
    low: int, generation: int
) -> None:
    current = view(Cursor(low), *GENERATIONS).current()
    assert current is not None
    assert current.stream.generation == generation


def test_a_shard_that_is_sealed_to_its_end_has_none() -> None:
    assert view(Cursor(20), extent(4, 10, 20)).current() is None
    assert view(Cursor(20)).current() is None


def test_streams_and_messages_are_found() -> None:
    one = view(Cursor(0), *GENERATIONS)
    for found in GENERATIONS:
        assert one.extent_of(found.stream) == found
    assert one.extent_of(Stream("n1", 0, 3)) is None
    assert one.extent_of(Stream("n1", 0, 7)) is None
    assert [one.extent_at(offset) for offset in (9, 10, 19, 20, 30)] == [
        None,
        GENERATIONS[0],
        GENERATIONS[0],
        GENERATIONS[2],
        None,
    ]


def test_lag_is_what_is_there_and_gone_is_what_is_not() -> None:
    one = view(Cursor(4, ((6, 8), (25, 27))), *GENERATIONS)
    assert (one.first, one.end, one.lag, one.gone) == (10, 30, 18, 4)


def test_of_a_shard_whose_node_is_away_nothing_is_known_to_be_gone() -> None:
    one = view(Cursor(4))
    assert (one.first, one.end, one.lag, one.gone) == (4, 4, 0, 0)


def test_a_loss_is_counted_once_whoever_tells_it() -> None:
    one = view(Cursor(2, ((5, 6),)), *GENERATIONS)
    gap = Gap(0, 8, RETENTION)
    assert one.lose([gap]) == [Gap(2, 5, RETENTION), Gap(6, 8, RETENTION)]
    assert one.lose([gap]) == []
    assert one.cursor() == Cursor(8, lost=5)
    one.check()


def test_a_new_member_has_said_nothing_yet() -> None:
    member = BorrowerView(LeaderWanted("b1", "ann", 16), 7)
    assert (member.id, member.member, member.window, member.heard_ms) == ("b1", "ann", 16, 7)
    assert (member.number, member.leases, member.locked) == (0, {}, 0)


@pytest.mark.parametrize("broken", ["W1", "W2", "M1"])
def test_a_broken_state_is_found(broken: str) -> None:
    one = view(Cursor(2), *GENERATIONS)
    one.check()
    match broken:
        case "W1":
            one.extents = (extent(4, 10, 20, sealed=False), GENERATIONS[2])
        case "W2":
            one.lost = -1
        case _:
            one.progress._done.add(0, 3)
    with pytest.raises(AssertionError, match=broken):
        one.check()
