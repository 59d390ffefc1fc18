"""The lists of a sealed stream: no filter ever passes over a message that it takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.frames import topic_lists
from moorline.core.frames.topic_lists import TopicLists, candidates, read_table
from moorline.core.topic import matches

SEED, FIRST = 77, 1_200
LEVELS = st.sampled_from(["a", "b", "", "$s", "ä"])
TOPIC = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTER = st.builds(
    lambda levels, tail: "/".join([*levels, *tail]),
    st.lists(LEVELS | st.just("+"), min_size=1, max_size=4),
    st.sampled_from([[], ["#"]]),
).filter(bool) | st.just("#")
MESSAGES = st.lists(TOPIC | st.none(), max_size=60)
"""None is a message that cannot be read."""


def built(messages: list[str | None], piece: int = 7) -> bytes:
    lists = TopicLists()
    for at in range(0, len(messages), piece):
        for one in messages[at : at + piece]:
            if one is None:
                lists.skip(1)
            else:
                lists.add(["unused", one], np.array([1]))
    return lists.encoded(SEED, FIRST, FIRST + len(messages))


def found(data: bytes, count: int, filters: list[str]) -> set[int] | None:
    def read_at(position: int, length: int) -> bytes:
        return data[position : position + length]

    table = read_table(read_at, SEED, FIRST, FIRST + count)
    if table is None:
        return None
    offsets = candidates(table, read_at, filters)
    return None if offsets is None else set(offsets.tolist())


def taken(messages: list[str | None], filters: list[str]) -> set[int]:
    return {
        FIRST + at
        for at, topic in enumerate(messages)
        if topic is None or any(matches(one, topic) for one in filters)
    }


@given(MESSAGES, st.lists(FILTER, min_size=1, max_size=3))
def test_what_a_filter_takes_is_in_its_lists_and_nothing_else(
    messages: list[str | None], filters: list[str]
) -> None:
    assert found(built(messages), len(messages), filters) == taken(messages, filters)


@given(MESSAGES, st.lists(FILTER, min_size=1, max_size=3), st.integers(0, 4))
def test_topics_beyond_the_bound_are_passed_over_by_nobody(
    messages: list[str | None], filters: list[str], listed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_lists, "TOPICS_WITH_LIST_MAX", listed)
        offsets = found(built(messages), len(messages), filters)
    assert offsets is not None
    assert offsets >= taken(messages, filters)


@given(MESSAGES.filter(bool), FILTER, st.data())
def test_damage_never_makes_a_reader_skip(
    messages: list[str | None], text: str, data: st.DataObject
) -> None:
    """Wherever a byte is wrong or the file ends: all that matches is found, or the lists say nothing."""
    whole = bytearray(built(messages))
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole[at] ^= data.draw(st.integers(1, 255))
    else:
        del whole[at:]
    offsets = found(bytes(whole), len(messages), [text])
    assert offsets is None or offsets == taken(messages, [text])


@pytest.mark.parametrize(
    ("seed", "first", "end"), [(SEED + 1, FIRST, FIRST + 2), (SEED, FIRST, FIRST + 3)]
)
def test_the_lists_of_another_segment_say_nothing(seed: int, first: int, end: int) -> None:
    data = built(["a", "b"])
    assert read_table(lambda at, size: data[at : at + size], seed, first, end) is None
