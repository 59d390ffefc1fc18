"""Room: wire. The numbers in many frames (wire.segment) at once, read and written with numpy.

Frames begin at any byte. So a buffer is looked at as numbers that begin at every byte, of which those at the
places of frames are taken: no frame is copied, and no loop is in Python.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

OFFSET_AT, TIME_AT, TTL_AT = 8, 16, 24
TOPIC_AT, KEY_AT, HEADERS_AT, FLAGS_AT = 28, 30, 32, 34


def words_at(data: bytes | bytearray | memoryview, kind: str) -> npt.NDArray[Any]:
    """The buffer as numbers of that kind, one beginning at every byte."""
    count = max(len(data) - np.dtype(kind).itemsize + 1, 0)
    return np.ndarray((count,), kind, data, 0, (1,))


class Sizes(NamedTuple):
    """Of every frame: the bytes of its topic, key and headers, and its flags."""

    topics: Numbers
    keys: Numbers
    headers: Numbers
    flags: Numbers

    @staticmethod
    def of(frames: bytes | bytearray | memoryview, positions: Numbers) -> "Sizes":
        """The four stand side by side, two bytes each."""
        together = words_at(frames, "<i8")[positions + TOPIC_AT]
        return Sizes(*(together >> shift & 0xFFFF for shift in (0, 16, 32, 48)))
