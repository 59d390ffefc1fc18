"""Messages of deleted topics: in their block, and for no reader."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.delivery.selection import select
from moorline.core.frames.block import Block, block_of_frames
from moorline.core.frames.frame import Stored, all_stored, frame_of
from moorline.core.frames.hidden import HIDDEN, hidden, hidden_ranges, with_hidden
from moorline.core.topic import Matcher, matches

FIRST = 100


def block_with(topics: list[str]) -> Block:
    frames = b"".join(
        frame_of(Stored(FIRST + at, 1, 0, 0, topic, None, b"", 0, 0, b"%d" % at), 7)
        for at, topic in enumerate(topics)
    )
    return block_of_frames(FIRST, frames)


@given(st.lists(st.tuples(st.sampled_from(["a", "a/b", "$x"]), st.booleans()), min_size=1))
def test_what_is_hidden_is_left_out_and_nothing_else(messages: list[tuple[str, bool]]) -> None:
    block = block_with([topic for topic, _ in messages])
    mask = np.array([is_hidden for _, is_hidden in messages])
    ours = hidden(block, mask)
    theirs = with_hidden(block, hidden_ranges(ours))
    for one in (ours, theirs):
        for text in ("#", "a", "a/#", "+", "$x"):
            frames = select(one, one.upto, 1 << 30, Matcher(text), 0).frames
            assert [stored.offset for stored in all_stored(frames)] == [
                FIRST + at
                for at, (topic, is_hidden) in enumerate(messages)
                if not is_hidden and matches(text, topic)
            ]
        assert one.data is block.data
    assert HIDDEN not in block.names


def test_ranges_are_as_few_as_they_can_be() -> None:
    block = block_with(["a"] * 6)
    ours = hidden(block, np.array([True, True, False, True, False, True]))
    assert hidden_ranges(ours) == [(100, 102), (103, 104), (105, 106)]
    assert hidden_ranges(block) == []
    assert with_hidden(block, []) is block
    assert hidden(block, np.zeros(6, np.bool_)) is block


def test_ranges_that_reach_beyond_the_block_hide_its_part_of_them() -> None:
    block = block_with(["a"] * 3)
    assert hidden_ranges(with_hidden(block, [(0, 101), (102, 999)])) == [(100, 101), (102, 103)]


def test_no_filter_takes_what_is_hidden() -> None:
    for text in ("#", "+", "+/#", "$", "$/#", "$+", "/#", HIDDEN[:1]):
        assert not Matcher(text)(HIDDEN)
        assert not matches(text, HIDDEN)
