"""Room: net. Records: what passes a wrapped link in place of frames.

    record    length  u32 big-endian, bytes of the token
              token   wrapped: some of the stream of frames, at most RECORD_DATA_BYTES_MAX of it

A record has the outline of a frame, so one splitter cuts both and there is no byte at which the switch could
be missed: what is cut behind it is unwrapped, or ends the link. What is written together is wrapped together;
a frame that is larger than a record goes into several.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from moorline.limits import RECORD_DATA_BYTES_MAX
from moorline.wire.frame import LENGTH


class Wrapping(Protocol):
    """Keys of one link. Records are numbered: the order of wrapping is the order of sending."""

    def wrap(self, data: bytes, /) -> bytes: ...

    def unwrap(self, token: bytes, /) -> bytes:
        """`Tampered` for anything but the next token of the other end."""
        ...


class Records:
    """Both directions of one wrapped link."""

    def __init__(self, wrapping: Wrapping, feed: Callable[[bytes], Iterator[memoryview]]) -> None:
        """`feed` cuts what was unwrapped into frames."""
        self._wrap, self._unwrap = wrapping.wrap, wrapping.unwrap
        self._feed = feed

    def wrapped(self, frames: Sequence[bytes | bytearray | memoryview]) -> list[bytes]:
        """Records for these frames, in their order."""
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        records: list[bytes] = []
        for start in range(0, len(data), RECORD_DATA_BYTES_MAX):
            token = self._wrap(bytes(data[start : start + RECORD_DATA_BYTES_MAX]))
            records += (LENGTH.pack(len(token)), token)
        return records

    def frames(self, record: memoryview) -> Iterator[memoryview]:
        """The frames that are whole with this record."""
        return self._feed(self._unwrap(bytes(record)))
