"""Which messages of a block are for a reader: the same as if each were looked at by itself."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.delivery.selection import select
from moorline.core.frames.block import Block, block_of
from moorline.core.frames.frame import PRODUCER, Stored, all_stored, frame_of
from moorline.core.topic import Matcher

SECOND_US = 1_000_000
NOW_US = 100 * SECOND_US
FIRST = 40

Message = tuple[str, int, int]
"""Topic, time to live in seconds, producer."""

messages = st.lists(
    st.tuples(
        st.sampled_from(["a", "b/c", "a"]), st.sampled_from([0, 50, 100, 101]), st.integers(0, 2)
    ),
    min_size=1,
    max_size=30,
)


def block(said: list[Message]) -> Block:
    frames = [
        frame_of(
            Stored(
                FIRST + n,
                0,
                ttl_s,
                PRODUCER if producer else 0,
                topic,
                None,
                b"",
                producer,
                n,
                b"x" * n,
            ),
            0,
        )
        for n, (topic, ttl_s, producer) in enumerate(said)
    ]
    starts = np.cumsum([0, *map(len, frames[:-1])], dtype=np.int64)
    return block_of(FIRST, b"".join(frames), starts)


@given(
    messages,
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from(["a", "#", "b/+", "z"]),
    st.integers(0, 2),
)
def test_a_selection_is_what_one_by_one_would_choose(
    said: list[Message], limit: int, room: int, text: str, own: int
) -> None:
    upto = FIRST + limit
    matcher = Matcher(text)
    wanted = [
        FIRST + n
        for n, (topic, ttl_s, producer) in enumerate(said)
        if FIRST + n < upto
        and matcher(topic)
        and (ttl_s == 0 or ttl_s * SECOND_US > NOW_US)
        and not (own and producer == own)
    ]
    found = select(block(said), upto, room, matcher, NOW_US, own)
    assert [one.offset for one in all_stored(found.frames)] == wanted[:room]
    assert found.taken == len(wanted[:room])
    assert [n for start, stop in found.runs for n in range(start, stop)] == wanted[:room]
    # All below was looked at: nothing that is wanted stands between the last that fits and there.
    end = min(FIRST + len(said), upto)
    assert found.upto == (wanted[room] if len(wanted) > room else end)


def test_where_all_are_wanted_the_bytes_are_those_of_the_block() -> None:
    one = block([("a", 0, 0)] * 5)
    assert select(one, FIRST + 99, 99, Matcher("a"), NOW_US).frames is one.data


def test_runs_are_as_few_as_can_be() -> None:
    one = block([("a", 0, 0), ("a", 0, 0), ("b", 0, 0), ("a", 0, 0)])
    assert select(one, FIRST + 9, 9, Matcher("a"), NOW_US).runs == [(40, 42), (43, 44)]
