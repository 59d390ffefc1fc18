"""Numbers of many frames at once: the same as those of each frame by itself."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.frames.fields import (
    OFFSET_AT,
    TTL_AT,
    Sizes,
    field,
    flags_of,
    published_by,
    times_of,
    topics_of,
)
from moorline.core.frames.frame import KEYED, PRODUCER, Stored, frame_of

U63 = st.integers(0, (1 << 63) - 1)
shapes = st.lists(
    st.builds(
        Stored,
        U63,
        U63,
        st.integers(0, (1 << 32) - 1),
        st.just(KEYED | PRODUCER),
        st.text(max_size=12),
        st.binary(max_size=12),
        st.binary(max_size=12),
        st.integers(0, 3),
        U63,
        st.binary(max_size=40),
    ),
    min_size=1,
    max_size=12,
)


@given(shapes, st.lists(st.booleans(), min_size=12, max_size=12))
def test_every_column_is_that_of_the_frames(drawn: list[Stored], named: list[bool]) -> None:
    messages = [
        one if is_named else one._replace(flags=KEYED, producer=0, sequence=0)
        for one, is_named in zip(drawn, named, strict=False)
    ]
    frames = [frame_of(one, 0) for one in messages]
    data = b"".join(frames)
    positions = np.cumsum([0, *map(len, frames[:-1])], dtype=np.int64)
    assert field(data, positions, OFFSET_AT, "<u8").tolist() == [one.offset for one in messages]
    assert field(data, positions, TTL_AT, "<u4").tolist() == [one.ttl_s for one in messages]
    assert times_of(data, positions).tolist() == [one.time_us for one in messages]
    assert flags_of(data, positions).tolist() == [one.flags for one in messages]
    sizes = Sizes.of(data, positions)
    assert sizes.topics.tolist() == [len(one.topic.encode()) for one in messages]
    assert sizes.keys.tolist() == [len(one.key or b"") for one in messages]
    assert sizes.headers.tolist() == [len(one.headers) for one in messages]
    assert sizes.flags.tolist() == [one.flags for one in messages]
    names, numbers = topics_of(data, positions).distinct()
    assert [names[n].decode() for n in numbers.tolist()] == [one.topic for one in messages]
    # As a block has them: smaller numbers, which must not overflow when the fields are added.
    found = published_by(data, positions.astype(np.uint32), 2)
    is_theirs = [bool(one.flags & PRODUCER) and one.producer == 2 for one in messages]
    assert found.tolist() == is_theirs
