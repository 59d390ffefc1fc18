"""Room: core/frames. The numbers in many frames (core.frames.frame) at once, read and written with numpy.

Frames begin at any byte. So a buffer is looked at as numbers that begin at every byte, of which those at the
places of frames are taken: no frame is copied, and no loop is in Python.
"""

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from moorline.core.frames.byte_columns import Buffer, ByteColumn, Numbers, words_at
from moorline.core.frames.frame import FRAME, PRODUCER

FramePositions = npt.NDArray[np.uint32]
Positions = Numbers | FramePositions
"""Where frames begin, as they are found or as a block has them."""

# Where the fields of core/frames/frame.py stand, counted from the beginning of a frame. A test compares
# them with its struct.
OFFSET_AT, TIME_AT, TTL_AT = 8, 16, 24
TOPIC_AT, KEY_AT, HEADERS_AT, FLAGS_AT = 28, 30, 32, 34


_ttl_of = struct.Struct("<I").unpack_from


class Sizes(NamedTuple):
    """Of every frame: the bytes of its topic, key and headers, and its flags."""

    topics: Numbers
    keys: Numbers
    headers: Numbers
    flags: Numbers

    @staticmethod
    def of(frames: Buffer, positions: Numbers) -> "Sizes":
        """The four stand side by side, two bytes each."""
        # One gather in place of four: this is done for every frame that is published or read.
        together = words_at(frames, "<i8")[positions + TOPIC_AT]
        return Sizes(*(together >> shift & 0xFFFF for shift in (0, 16, 32, 48)))


def field(data: bytes, positions: Positions, at: int, kind: str) -> Numbers:
    """A number of each frame's fixed part."""
    # Wider before the sum: a position near the end of four gigabytes would wrap.
    places = np.asarray(positions, np.int64) + at
    return words_at(data, kind)[places].astype(np.int64)


def any_expires(data: bytes, positions: Positions) -> bool:
    """Whether one of the frames has a time to live: of a few, for which a column takes longer to set up."""
    return any(_ttl_of(data, place + TTL_AT)[0] for place in positions.tolist())


def times_of(data: bytes, positions: Positions) -> Numbers:
    return field(data, positions, TIME_AT, "<u8")


def flags_of(data: bytes, positions: Positions) -> Numbers:
    return field(data, positions, FLAGS_AT, "<u2")


def topics_of(data: bytes, positions: Numbers) -> ByteColumn:
    return ByteColumn(data, positions + FRAME.size, field(data, positions, TOPIC_AT, "<u2"))


def published_by(data: bytes, positions: Positions, producer: int) -> npt.NDArray[np.bool_]:
    """Which of the frames name that producer."""
    starts = np.asarray(positions, np.int64)
    sizes = Sizes.of(data, starts)
    found: npt.NDArray[np.bool_] = sizes.flags & PRODUCER != 0
    # Only of those that have one: in the others the bytes of the body stand there, and could pass for the
    # producer.
    some = np.flatnonzero(found)
    behind = (starts + FRAME.size + sizes.topics + sizes.keys + sizes.headers)[some]
    found[some] = words_at(data, "<u8")[behind] == np.uint64(producer)
    return found
