"""What a publisher has: ids, commits, and who follows what."""

import random

import pytest

from moorline.core.values.batch import Batch
from moorline.core.values.board import Board


def told(board: Board[str], batch: Batch) -> dict[str, list[tuple[int, object]]]:
    seen: dict[str, list[tuple[int, object]]] = {}
    for followers, part in board.parts(batch):
        for follower in followers:
            seen.setdefault(follower, []).extend(zip(part.ids, part.values, strict=True))
    return seen


def test_an_update_is_seen_behind_its_commit() -> None:
    board: Board[str] = Board()
    one = board.publish("/a", 1)
    board.update(one, 2)
    assert board.value_of(one) == 1
    batch = board.commit()
    assert batch is not None
    assert board.value_of(one) == 2
    assert board.commit() is None


def test_t5_who_follows_between_update_and_commit_gets_the_batch_whole() -> None:
    """T5: the values at the subscription are those before the batch; then the batch comes, all of it."""
    board: Board[str] = Board()
    ids = [board.publish(f"/{name}", 0) for name in "ab"]
    board.update_all(ids, [1, 1])
    board.follow("s", ids)
    assert [board.value_of(one) for one in ids] == [0, 0]
    batch = board.commit()
    assert batch is not None
    assert told(board, batch) == {"s": [(ids[0], 1), (ids[1], 1)]}


def test_a_batch_that_the_same_ones_follow_is_not_cut() -> None:
    board: Board[str] = Board()
    ids = [board.publish(f"/{place}", 0) for place in range(100)]
    for follower in "xyz":
        board.follow(follower, ids)
    board.update_all(ids, list(range(100)))
    batch = board.commit()
    assert batch is not None
    assert board.parts(batch) == [(("x", "y", "z"), batch)]


def test_what_nobody_follows_goes_nowhere() -> None:
    board: Board[str] = Board()
    one, other = board.publish("/a", 0), board.publish("/b", 0)
    board.follow("s", [one])
    board.update_all([other, one, other], [1, 2, 3])
    batch = board.commit()
    assert batch is not None
    assert told(board, batch) == {"s": [(one, 2)]}


def test_what_was_unpublished_is_not_in_the_batch() -> None:
    board: Board[str] = Board()
    one, other = board.publish("/a", 0), board.publish("/b", 0)
    board.follow("s", [one, other])
    board.update_all([one, other], [1, 1])
    assert board.unpublish(one) == ("s",)
    batch = board.commit()
    assert batch is not None
    assert batch.ids == [other]
    board.update(other, 2)
    board.unpublish(other)
    assert board.commit() is None
    assert len(board._followed) == 0


def test_an_id_is_never_given_twice() -> None:
    board: Board[str] = Board()
    one = board.publish("/a", 0)
    board.unpublish(one)
    assert board.publish("/a", 0) != one


@pytest.mark.parametrize("seed", range(20))
def test_who_follows_what_in_any_order_of_events(seed: int) -> None:
    """B1 to B3, beside a plain model."""
    chance = random.Random(seed)
    board: Board[str] = Board()
    model: dict[str, set[int]] = {}
    ids: dict[int, int] = {}
    for step in range(400):
        match chance.randrange(6):
            case 0:
                ids[board.publish(f"/{step}", 0)] = 0
            case 1 if ids:
                one = chance.choice(list(ids))
                board.unpublish(one)
                del ids[one]
                for followed in model.values():
                    followed.discard(one)
            case 2 | 3 if ids:
                follower = chance.choice("pqrst")
                some = chance.sample(list(ids), chance.randint(1, len(ids)))
                board.follow(follower, some)
                model.setdefault(follower, set()).update(some)
            case 4:
                follower = chance.choice("pqrst")
                some = [one for one in ids if chance.random() < 0.5]
                everything = chance.random() < 0.2
                board.unfollow(follower, None if everything else some)
                if everything:
                    model.pop(follower, None)
                else:
                    model.get(follower, set()).difference_update(some)
            case 5 if ids:
                some = chance.choices(list(ids), k=chance.randint(1, 10))
                board.update_all(some, [step] * len(some))
                batch = board.commit()
                assert batch is not None
                seen = told(board, batch)
                for follower, followed in model.items():
                    wanted = sorted(one for one in some if one in followed)
                    assert sorted(one for one, _ in seen.get(follower, [])) == wanted
        board.check()
    for follower, followed in model.items():
        assert board._followed.get(follower, set()) == followed


def test_a_broken_board_is_told() -> None:
    board: Board[str] = Board()
    one = board.publish("/a", 0)
    board.follow("s", [one])
    board._followed["s"].clear()
    with pytest.raises(AssertionError, match="B2"):
        board.check()
    board = Board()
    board.publish("/a", 0)
    board._ids["/b"] = 1
    with pytest.raises(AssertionError, match="B1"):
        board.check()
    board = Board()
    board.update(1, 1)
    board._changed_ids.clear()
    with pytest.raises(AssertionError, match="B3"):
        board.check()
