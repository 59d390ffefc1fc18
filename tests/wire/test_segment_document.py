"""The page on segments says what the code does: its dump is a real segment."""

import re
from pathlib import Path

from moorline.core.frames.frame import KEYED, Stored, encode_headers, frame_of, stored_at
from moorline.journal.streams.segment import SEGMENT_HEAD, SegmentHead

PAGE = (Path(__file__).parents[2] / "docs/protocols/segment.md").read_text(encoding="utf-8")
DUMP_LINE = re.compile(r"^[0-9a-f]{8}  ([0-9a-f ]+?) +\|", re.MULTILINE)
SEED = 0x0102030405060708


def test_the_dump_is_a_real_segment() -> None:
    dump = bytes.fromhex("".join(DUMP_LINE.findall(PAGE)))
    head = SegmentHead(3, 7, 1_200, 1_794_787_461_000_000, SEED, b"node-1's own id.")
    assert dump[: SEGMENT_HEAD.size] == bytes(head)
    frame = dump[SEGMENT_HEAD.size :]
    stored = Stored(
        1_200,
        1_794_787_461_354_724,
        0,
        KEYED,
        "orders/eu",
        b"42",
        encode_headers([("a", b"b")]),
        0,
        0,
        b"ahoy",
    )
    assert stored_at(frame, 0) == stored
    assert frame_of(stored, SEED) == frame
