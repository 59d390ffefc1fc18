"""How far so many messages go that a filter may take: never past one that it does not count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.journal.streams.lives import Lives

from moorline.core.stream import Extent
from moorline.core.topic import matches
from moorline.journal.streams.generation import TOPICS
from moorline.journal.streams.match_count import look_of_each
from moorline.journal.streams.source import Counted
from moorline.journal.streams.store import StreamOptions
from moorline.limits import COUNTED_BYTES_MAX, COUNTED_STREAMS_MAX
from moorline.testing import MemoryDisk

MESSAGES = st.lists(st.lists(st.sampled_from("abc"), max_size=12), min_size=1, max_size=6)
"""Of each generation the topics, one message after the other."""
FILTERS = st.sampled_from([["a"], ["a", "c"], ["+"], ["b/#"], ["nothing"]])


def filled(generations: list[list[str]], *, sealed: int) -> Lives:
    """One shard with these generations, of which so many are sealed; the last one grows."""
    lives = Lives(MemoryDisk(), StreamOptions(shards=1))
    for number, topics in enumerate(generations):
        for topic in topics:
            lives.put(topic)
        if topics:
            lives.commit()
        if number < len(generations) - 1 and topics:
            lives.store.upkeep.roll(lives.now_us() + 10**15)
            lives.commit()
        if number < sealed:
            lives.seal()
    return lives


def counted(lives: Lives, offset: int, filters: list[str], count_max: int) -> Counted:
    extents: list[Extent] = lives.store.since(0, offset, 99)
    return lives.store.count_matching(0, extents, offset, filters, count_max)


@given(MESSAGES, st.integers(0, 6), FILTERS, st.integers(0, 80), st.integers(1, 30))
def test_it_counts_each_message_that_matches_and_ends_before_the_next(
    generations: list[list[str]], sealed: int, filters: list[str], offset: int, count_max: int
) -> None:
    topics = [topic for one in generations for topic in one]
    if not topics:
        return
    offset = min(offset, len(topics))
    lives = filled(generations, sealed=min(sealed, len(generations) - 1))
    upto, count = counted(lives, offset, filters, count_max)
    wanted = [
        offset + at
        for at, topic in enumerate(topics[offset:])
        if any(matches(one, topic) for one in filters)
    ]
    assert count == min(count_max, len(wanted))
    assert upto == (wanted[count_max] if len(wanted) > count_max else len(topics))
    lives.store.close()


def test_without_its_lists_a_stream_is_read() -> None:
    lives = filled([["a", "b", "b", "a"], ["b", "a"]], sealed=1)
    assert counted(lives, 0, ["a"], 2) == (5, 2)
    lives.disk.remove(f"000/00000001{TOPICS}")
    lives.restart()
    assert counted(lives, 0, ["a"], 2) == (5, 2)
    lives.store.close()


def test_of_what_has_to_be_read_a_piece_is_enough() -> None:
    lives = filled([["a", "b"] * 10, ["b", "a"]], sealed=0)
    lives.restart()
    at, matches, looks = 0, 0, 0
    while at < 22:
        extents = lives.store.since(0, at, 99)
        found = lives.store.count_matching(0, extents, at, ["a"], 99, bytes_max=200)
        assert at < found.upto, "it goes on"
        at, matches, looks = found.upto, matches + found.matches, looks + 1
    assert matches == 11
    assert looks > 1
    lives.store.close()


def test_many_shards_are_looked_at_a_little_each() -> None:
    assert look_of_each(1) == (COUNTED_STREAMS_MAX, COUNTED_BYTES_MAX)
    assert look_of_each(1_024) == (1, COUNTED_BYTES_MAX // 1_024)


@pytest.mark.parametrize("offset", [4, 6])
def test_from_the_end_on_there_is_nothing(offset: int) -> None:
    lives = filled([["a", "b", "b", "a"]], sealed=0)
    assert counted(lives, offset, ["a"], 9) == (offset, 0)
    lives.store.close()
