"""What of a shard can be handed out: fresh, back, refused, gone."""

import pytest

from moorline.core.delivery.progress import Cursor
from moorline.core.group.pool import Piece, Pool
from moorline.core.group.views import ShardView
from moorline.core.ranges import Range
from moorline.core.stream import Extent, Shard, Stream

SHARD = Shard("n1", 0)


def pool(cursor: Cursor = Cursor(0), *ends: int) -> Pool:  # noqa: B008
    """Of a shard with generations that end there; the last one grows."""
    view = ShardView(SHARD, cursor)
    see(view, *(ends or (100,)))
    return Pool(view)


def see(view: ShardView, *ends: int, dropped: int = 0) -> None:
    firsts = (0, *ends)
    view.extents = tuple(
        Extent(Stream("n1", 0, n), firsts[n], end, n + 1 < len(ends))
        for n, end in enumerate(ends)
        if n >= dropped
    )


def take(one: Pool, count: int) -> Range:
    found = one.fresh()
    assert found is not None
    one.next = min(found[1], found[0] + count)
    one.check()
    return found[0], one.next


def test_what_is_fresh_passes_what_is_done_and_ends_with_its_stream() -> None:
    one = pool(Cursor(2, ((4, 6),)), 8, 20)
    assert [take(one, 9) for _ in range(3)] == [(2, 4), (6, 8), (8, 17)]
    assert one.has_fresh()
    assert take(one, 9) == (17, 20)
    assert not one.has_fresh()
    assert one.fresh() is None


def test_what_comes_back_is_in_pieces_of_one_stream() -> None:
    one = pool(Cursor(0), 8, 20)
    one.next = 20
    one.put_back(5, 12)
    assert list(one.pieces()) == [Piece(5, 8, ""), Piece(8, 12, "")]


def test_what_was_refused_stands_apart_with_who_refused_it() -> None:
    one = pool()
    one.next = 20
    one.put_back(5, 9, refused=6, by="b1")
    assert list(one.pieces()) == [Piece(5, 6, ""), Piece(6, 7, "b1"), Piece(7, 9, "")]
    one.take_back(5, 9)
    assert list(one.pieces()) == []
    one.check()


def test_what_is_done_meanwhile_does_not_come_back() -> None:
    one = pool()
    one.next = 20
    one.view.progress.ack(3, 5)
    one.put_back(2, 8, refused=4, by="b1")
    assert list(one.back) == [(2, 3), (5, 8)]
    one.view.progress.ack(6, 7)
    one.forget_done()
    assert list(one.back) == [(2, 3), (5, 6), (7, 8)]
    assert list(one.pieces()) == [Piece(2, 3, ""), Piece(5, 6, ""), Piece(7, 8, "")]
    one.check()


def test_what_is_gone_is_taken_out_once_and_not_what_a_member_has() -> None:
    one = pool(Cursor(0), 10, 30)
    one.next = 6
    one.put_back(1, 3)
    see(one.view, 10, 30, dropped=1)
    assert one.take_gone() == ((1, 3), (6, 10))
    assert one.take_gone() == ()
    assert take(one, 5) == (10, 15)


@pytest.mark.parametrize("broken", ["P1", "P2", "R3"])
def test_a_broken_state_is_found(broken: str) -> None:
    one = pool()
    one.next = 10
    one.put_back(5, 9, refused=6, by="b1")
    one.check()
    match broken:
        case "P1":
            one.next = 7
        case "P2":
            one._refused_by[9] = "b1"
        case _:
            one.back._count = 5
    with pytest.raises(AssertionError, match=broken):
        one.check()
