"""Small parts of a commit are framed without numpy: the same bytes, places and topics as all at once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.frames.frame import CONTENT, all_stored
from moorline.journal.streams.framing import Contents, block_of, small_block, small_piece
from moorline.limits import STREAM_FRAMED_ONE_BY_ONE_MAX

TOPICS = ["a", "a/b", "orders/eu", "ümläut"]


def content(offset: int, topic: str, body: bytes) -> bytes:
    name = topic.encode()
    return CONTENT.pack(offset, 1_000 + offset, 0, len(name), 0, 0, 0) + name + body


@given(
    st.lists(st.tuples(st.sampled_from(TOPICS), st.binary(max_size=300)), min_size=1, max_size=80),
    st.integers(0, 2**40),
    st.integers(0, 2**64 - 1),
)
def test_a_small_block_is_the_block(
    messages: list[tuple[str, bytes]], first: int, seed: int
) -> None:
    contents = [content(first + at, *one) for at, one in enumerate(messages)]
    piece = Contents(contents, [topic for topic, _ in messages])
    # In two pieces, so that they are joined by the other way.
    half = len(messages) // 2
    pieces = [Contents(piece.contents[:half], piece.topics[:half])] if half else []
    pieces.append(Contents(piece.contents[half:], piece.topics[half:]))
    expected = block_of(first, pieces, seed)
    block, counts = small_block(first, piece, seed)
    assert block.data == expected.data
    assert (block.first, block.upto, block.names) == (first, expected.upto, expected.names)
    for ours, theirs in ((block.positions, expected.positions), (block.topics, expected.topics)):
        assert ours.dtype == theirs.dtype == np.uint32
        assert ours.tolist() == theirs.tolist()
    assert list(counts) == block.names
    assert [one.body for one in all_stored(block.data)] == [body for _, body in messages]
    assert sum(counts.values()) == len(messages)
    assert all(counts[topic] == piece.topics.count(topic) for topic in counts)


def test_what_is_large_or_has_runs_goes_the_other_way() -> None:
    few = Contents([content(0, "a", b"")], ["a"])
    many = Contents(
        few.contents * (STREAM_FRAMED_ONE_BY_ONE_MAX + 1),
        few.topics * (STREAM_FRAMED_ONE_BY_ONE_MAX + 1),
    )
    assert small_piece([few]) is few
    assert small_piece([many]) is None
    assert small_piece([few, few]) is None
    assert small_piece([Contents([], [])]) is None
