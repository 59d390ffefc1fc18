"""Blocks of frames, and parts of them that fit into so many bytes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.frames.block import Block, block_of, part_of
from moorline.core.frames.frame import Stored, all_stored, frame_of

FIRST = 7


def block(lengths: list[int]) -> Block:
    frames = [
        frame_of(Stored(FIRST + n, 0, 0, 0, "ab"[n % 2], None, b"", 0, 0, bytes(length)), 0)
        for n, length in enumerate(lengths)
    ]
    starts = np.cumsum([0, *map(len, frames[:-1])], dtype=np.int64)
    return block_of(FIRST, b"".join(frames), starts)


def test_a_block_knows_its_topics_and_where_it_ends() -> None:
    one = block([1, 2, 3])
    assert (one.first, one.upto, one.names) == (7, 10, ["a", "b"])
    assert one.topics.tolist() == [0, 1, 0]
    assert one.positions.tolist() == [0, 38, 77]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.data())
def test_a_part_is_as_much_as_fits_and_at_least_one_message(
    lengths: list[int], data: st.DataObject
) -> None:
    whole = block(lengths)
    offset = data.draw(st.integers(FIRST, whole.upto - 1))
    bytes_max = data.draw(st.integers(1, len(whole.data) + 50))
    part = part_of(whole, offset, bytes_max)
    messages = list(all_stored(part.data))
    assert [one.offset for one in messages] == list(range(offset, part.upto))
    assert [part.names[n] for n in part.topics.tolist()] == [one.topic for one in messages]
    assert part.positions[0] == 0
    sizes = [len(frame_of(one, 0)) for one in all_stored(whole.data)][offset - FIRST :]
    fits = sum(bool(np.sum(sizes[: n + 1]) <= bytes_max) for n in range(len(sizes)))
    assert len(messages) == max(1, fits)


def test_a_block_that_fits_is_not_copied() -> None:
    whole = block([1, 2, 3])
    assert part_of(whole, FIRST, 1_000) is whole
