"""Picking the messages of few topics out of a sealed stream: the same messages as of reading all."""

import pytest
from tests.journal.streams.lives import Lives, one_shard

from moorline.core.delivery.selection import Selection, select, select_picked
from moorline.core.frames.picked import Picked
from moorline.core.topic import Matcher
from moorline.journal.disk import read_all
from moorline.journal.streams.generation import DENSE, SEGMENT, TOPICS
from moorline.journal.streams.topic_picks import Wish

COUNT, NAMES, FAR = 3_000, 100, 1 << 62
PATH = "000/00000001"
FILTERS = ["t/7", "+/7", "none", "$own/#", "t/7/#"]


@pytest.fixture
def sealed() -> Lives:
    """A hundred topics that take turns, and one whose name begins with `$`."""
    lives = one_shard()
    for number in range(COUNT):
        topic = "$own/1" if number % 500 == 3 else f"t/{number % NAMES}"
        lives.put(topic, b"%d" % number * (1 + number % 50))
        if number % 300 == 299:
            lives.commit()
    lives.store.upkeep.roll(lives.now_us() + 10**15)
    lives.commit()
    lives.seal()
    lives.restart()
    return lives


def picked(lives: Lives, text: str, count: int = 17, bytes_max: int = 900) -> list[Selection]:
    """All that is picked, step by step; it ends where nothing can be picked."""
    found: list[Selection] = []
    offset = 0
    while offset < COUNT:
        one = lives.store.pick(0, 1, offset, bytes_max, Wish((text,), FAR, count))
        if one is None:
            return found
        assert isinstance(one, Picked)
        assert one.first == offset < one.upto
        chosen = select_picked(one, FAR, FAR, Matcher(text), 0)
        assert chosen.upto == one.upto
        found.append(chosen)
        offset = one.upto
    return found


def read(lives: Lives, text: str) -> bytes:
    frames, offset = b"", 0
    while offset < COUNT:
        block = lives.store.read(0, 1, offset, 10_000)
        assert block is not None
        assert not hasattr(block, "reason")
        frames += select(block, FAR, FAR, Matcher(text), 0).frames
        offset = block.upto
    return frames


@pytest.mark.parametrize("text", FILTERS)
def test_what_is_picked_is_what_reading_everything_gives(sealed: Lives, text: str) -> None:
    chosen = picked(sealed, text)
    assert chosen[-1].upto == COUNT
    assert b"".join(one.frames for one in chosen) == read(sealed, text)
    assert all(one.taken <= 17 for one in chosen)


def test_what_is_most_of_a_stream_is_not_picked(sealed: Lives) -> None:
    assert sealed.store.pick(0, 1, 0, 10_000, Wish(("t/#",), FAR)) is None


def test_a_wish_ends_where_it_says(sealed: Lives) -> None:
    one = sealed.store.pick(0, 1, 8, 10_000, Wish(("t/7",), 107))
    assert one is not None
    assert (one.first, one.upto, one.offsets.tolist()) == (8, 107, [])


def harm(lives: Lives, ending: str, at: int) -> None:
    data = bytearray(read_all(lives.disk, PATH + ending))
    data[at] ^= 0x55
    lives.disk.write_whole(PATH + ending, bytes(data))


@pytest.mark.parametrize("at", [3, 12, 60, -1])
def test_damaged_lists_pick_nothing_or_all_that_they_should(sealed: Lives, at: int) -> None:
    expected = read(sealed, "t/7")
    harm(sealed, TOPICS, at)
    chosen = picked(sealed, "t/7")
    assert not chosen or b"".join(one.frames for one in chosen) == expected


def test_a_stream_of_an_older_program_is_read_whole(sealed: Lives) -> None:
    sealed.disk.remove(PATH + TOPICS)
    assert sealed.store.pick(0, 1, 0, 10_000, Wish(("t/7",), FAR)) is None


def test_a_damaged_frame_ends_the_picking_and_is_told_by_reading(sealed: Lives) -> None:
    one = sealed.store.pick(0, 1, 0, 10_000, Wish(("t/7",), FAR, 5))
    assert one is not None
    data = read_all(sealed.disk, PATH + SEGMENT)
    start = int(one.positions[2])
    harm(sealed, SEGMENT, data.index(one.data[start : int(one.positions[3])]) + 30)
    again = sealed.store.pick(0, 1, 0, 10_000, Wish(("t/7",), FAR, 5))
    assert again is not None
    assert (again.offsets.tolist(), again.upto) == ([7, 107], 207)
    assert sealed.store.pick(0, 1, 207, 10_000, Wish(("t/7",), FAR, 5)) is None


def test_without_a_dense_index_nothing_is_picked(sealed: Lives) -> None:
    sealed.disk.remove(PATH + DENSE)
    assert sealed.store.pick(0, 1, 0, 10_000, Wish(("t/7",), FAR)) is None
