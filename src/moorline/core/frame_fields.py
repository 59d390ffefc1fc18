"""Room: core. The numbers in many frames (core.frame) at once, read and written with numpy.

Frames begin at any byte. So a buffer is looked at as numbers that begin at every byte, of which those at the
places of frames are taken: no frame is copied, and no loop is in Python.
"""

from typing import NamedTuple

from moorline.core.parts import Buffer, Numbers, words_at

OFFSET_AT, TIME_AT, TTL_AT = 8, 16, 24
TOPIC_AT, KEY_AT, HEADERS_AT, FLAGS_AT = 28, 30, 32, 34


class Sizes(NamedTuple):
    """Of every frame: the bytes of its topic, key and headers, and its flags."""

    topics: Numbers
    keys: Numbers
    headers: Numbers
    flags: Numbers

    @staticmethod
    def of(frames: Buffer, positions: Numbers) -> "Sizes":
        """The four stand side by side, two bytes each."""
        together = words_at(frames, "<i8")[positions + TOPIC_AT]
        return Sizes(*(together >> shift & 0xFFFF for shift in (0, 16, 32, 48)))
