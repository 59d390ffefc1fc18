"""Where a plain subscription is: whatever comes and is acknowledged, what goes on is all that is not done."""

from hypothesis import given
from hypothesis import strategies as st

from moorline.client.shard_cursor import ShardCursor, ShardCursors
from moorline.core.delivery.progress import Cursor, Progress
from moorline.core.stream import Shard
from moorline.limits import CLIENT_CURSOR_RANGES_MAX

SHARD = Shard("home", 0)


def is_done(cursor: ShardCursor, offset: int) -> bool:
    _, low, ranges = cursor.told(0)
    return Progress(Cursor(low, ranges)).is_done(offset)


@given(
    st.sets(st.integers(0, 80), min_size=1),
    st.lists(st.integers(1, 7), max_size=20),
    st.randoms(use_true_random=False),
)
def test_what_is_told_is_what_was_acknowledged_and_what_is_not_for_us(
    ours: set[int], sizes: list[int], chance: object
) -> None:
    """Messages that match come in batches of any size; some are acknowledged, in any order."""
    cursor, coming = ShardCursor(0), sorted(ours)
    acked: set[int] = set()
    came: set[int] = set()
    for size in sizes:
        batch, coming = coming[:size], coming[size:]
        if not batch:
            break
        assert cursor.came(batch[0], batch[-1] + 1)
        came.update(batch)
        for one, following in zip(batch, [*batch[1:], batch[-1] + 1], strict=True):
            if chance.random() < 0.6:  # type: ignore[attr-defined]
                cursor.done(one, following)
                acked.add(one)
    for offset in ours:
        assert is_done(cursor, offset) == (offset in acked), f"{offset} of {sorted(ours)}"
    if came and came == acked:
        assert cursor.offset > max(came), "nothing is left over of what does not match"


def test_what_comes_again_does_not_pass_over_what_is_out() -> None:
    cursor = ShardCursor(0)
    assert cursor.came(5, 10)
    assert not cursor.came(5, 6), "it was rejected, and comes again"
    cursor.done(5, 6)
    assert not is_done(cursor, 7)


def test_a_loss_is_done_and_what_lies_before_it_is_not() -> None:
    cursor = ShardCursor(0)
    cursor.came(0, 4)
    cursor.lost(10, 20)
    assert not is_done(cursor, 2)
    assert not is_done(cursor, 6), "it may be on its way"
    assert is_done(cursor, 15)


def test_behind_a_lost_connection_what_is_not_done_counts_as_not_come() -> None:
    cursor = ShardCursor(3)
    cursor.came(3, 9)
    cursor.done(3, 5)
    cursor.again()
    assert cursor.came(5, 9), "the same once more is new on the new connection"
    cursor.done(5, 9)
    assert cursor.offset == 9


def test_of_very_many_holes_the_highest_come_again() -> None:
    cursors = ShardCursors()
    cursor = cursors.at(SHARD, 0)
    for offset in range(1, 2 * CLIENT_CURSOR_RANGES_MAX + 9, 2):
        cursor.done(offset, offset + 1)
    ((home, ((number, low, ranges),)),) = cursors.told()
    assert (home, number, low) == ("home", 0, 0)
    assert len(ranges) == CLIENT_CURSOR_RANGES_MAX
    assert ranges[0] == (1, 2)


def test_what_has_come_before_the_answer_is_further_than_what_the_answer_says() -> None:
    cursors = ShardCursors()
    cursors.at(SHARD, 7)
    cursors.begin([("home", [(0, 4, ()), (1, 2, ())])])
    assert cursors.told() == [("home", [(0, 7, ()), (1, 2, ())])]
