"""Records: what is written is read, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.queue.queue import MESSAGE, QUOTA_MARKER, Entry
from moorline.journal.queues.record import (
    HEADER_BYTES,
    DamagedRecord,
    decode,
    encode,
    id_in,
    record_bytes,
    seed_of,
)

ENTRY = Entry(7, 1_700_000_000_123, MESSAGE, b"ahoy")
SEED = seed_of(b"a queue, and not another")
ENTRY_BYTES = encode(ENTRY, SEED)

entries = st.builds(
    Entry,
    lsn=st.integers(0, 2**64 - 1),
    time_ms=st.integers(0, 2**64 - 1),
    kind=st.sampled_from([MESSAGE, QUOTA_MARKER]),
    body=st.binary(max_size=200),
)


def test_the_bytes_are_those_of_the_drawing() -> None:
    data = encode(ENTRY, SEED)
    assert HEADER_BYTES == 29
    assert data[8:12] == (4).to_bytes(4, "big")
    assert data[12] == MESSAGE
    assert data[13:21] == (7).to_bytes(8, "big")
    assert data[21:29] == (1_700_000_000_123).to_bytes(8, "big")
    assert data[29:] == b"ahoy"
    assert len(data) == record_bytes(ENTRY)


@given(st.lists(entries, max_size=8), st.binary(max_size=5))
def test_records_stand_one_after_another(written: list[Entry], before: bytes) -> None:
    data, start = before + b"".join(encode(entry, SEED) for entry in written), len(before)
    for entry in written:
        assert decode(data, start, 0, SEED) == entry
        start += record_bytes(entry)
    assert decode(data, start, 0, SEED) is None


def test_a_cut_record_is_not_there_yet() -> None:
    data = encode(ENTRY, SEED)
    assert [decode(data[:end], 0, 0, SEED) for end in range(len(data))] == [None] * len(data)


@pytest.mark.parametrize("place", range(HEADER_BYTES + 4))
@pytest.mark.parametrize("bit", [0, 7])
def test_a_changed_bit_is_never_taken_for_a_record(place: int, bit: int) -> None:
    """A larger length asks for more data; everything else is damage, with its place named."""
    data = bytearray(ENTRY_BYTES)
    data[place] ^= 1 << bit
    if 8 <= place < 12 and data[place] > ENTRY_BYTES[place]:
        assert decode(bytes(data), 0, 1_000, SEED) is None
        return
    with pytest.raises(DamagedRecord, match="at byte 1000") as caught:
        decode(bytes(data), 0, 1_000, SEED)
    assert caught.value.offset == 1_000


def test_a_record_of_another_queue_is_none() -> None:
    with pytest.raises(DamagedRecord):
        decode(ENTRY_BYTES, 0, 0, seed_of(b"another queue, not the one"))


def test_the_id_is_read_without_the_body() -> None:
    assert id_in(ENTRY_BYTES[:HEADER_BYTES]) == ENTRY.lsn
    assert id_in(ENTRY_BYTES[: HEADER_BYTES - 1]) == 0
