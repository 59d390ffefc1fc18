"""Frames that were picked out of a stream: their columns are those of the frames."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.frames.frame import Stored, frame_of
from moorline.core.frames.picked import picked_of


@given(
    st.lists(st.integers(0, 1 << 40), min_size=1, max_size=20, unique=True).map(sorted),
    st.lists(st.text(max_size=8), min_size=20, max_size=20),
)
def test_what_was_picked_knows_its_offsets_and_topics(
    offsets: list[int], topics: list[str]
) -> None:
    messages = [
        Stored(offset, 1, 0, 0, topic, None, b"", 0, 0, b"body")
        for offset, topic in zip(offsets, topics, strict=False)
    ]
    frames = [frame_of(one, 0) for one in messages]
    positions = np.cumsum([0, *map(len, frames[:-1])], dtype=np.int64)
    first, upto = offsets[0], offsets[-1] + 1
    picked = picked_of(first, upto, b"".join(frames), positions)
    assert (picked.first, picked.upto) == (first, upto)
    assert picked.offsets.tolist() == offsets
    assert [picked.names[n] for n in picked.topics.tolist()] == [one.topic for one in messages]
    assert len(set(picked.names)) == len(picked.names)
