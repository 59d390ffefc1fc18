"""Room: wire. Frames.

    frame    length  u32 big-endian, bytes of the payload
             payload one msgpack array of messages
    message  one msgpack array: [tag, field, field, ...]

The splitter cuts what was read into payloads without looking at any byte but the lengths. A read
that holds only whole frames is not copied at all.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from moorline.errors import FrameTooLarge, Malformed
from moorline.limits import FRAME_BYTES_MAX, MESSAGES_PER_FRAME_MAX

LENGTH = struct.Struct(">I")

Check = Callable[[memoryview], object]
"""Raises `Malformed` for a payload that the other end would not take."""

_encoder = msgspec.msgpack.Encoder()


class Splitter:
    """Takes bytes as they come, gives back the payloads that are whole."""

    def __init__(self, payload_bytes_max: int) -> None:
        self.payload_bytes_max = payload_bytes_max
        self._tail = bytearray()
        self._wanted = LENGTH.size

    @property
    def waiting_bytes(self) -> int:
        """Bytes held of a frame that is not whole yet."""
        return len(self._tail)

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """Each payload that is whole now; raises as soon as a length breaks the bound.

        One by one, because a payload may raise the bound for the next: a welcome does.
        """
        if self._tail:
            self._tail += data
            if len(self._tail) < self._wanted:
                return
            data = bytes(self._tail)
            self._tail.clear()
        view = memoryview(data)
        start, end = 0, len(data)
        while end - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(data, start)
            if length > self.payload_bytes_max:
                if data[start : start + LENGTH.size] == b"HTTP":
                    raise FrameTooLarge("this is the port of HTTP: `listen` has the others")
                raise FrameTooLarge(
                    f"a frame of {length} bytes; at most {self.payload_bytes_max} are taken"
                )
            frame_end = start + LENGTH.size + length
            if frame_end > end:
                self._wanted = LENGTH.size + length
                break
            yield view[start + LENGTH.size : frame_end]
            start = frame_end
        else:
            self._wanted = LENGTH.size
        self._tail += view[start:]


def frame(messages: Sequence[msgspec.Struct]) -> bytearray:
    """One frame of these messages; `FrameTooLarge` if they do not fit."""
    buffer = bytearray(LENGTH.size)
    _encoder.encode_into(messages, buffer, LENGTH.size)
    length = len(buffer) - LENGTH.size
    if length > FRAME_BYTES_MAX:
        raise FrameTooLarge(f"{len(messages)} messages of {length} bytes do not fit a frame")
    LENGTH.pack_into(buffer, 0, length)
    return buffer


def frames(
    messages: Sequence[msgspec.Struct], check: Check | None = None
) -> tuple[list[bytearray], list[msgspec.Struct]]:
    """As few frames as hold these messages in their order, and those that fit none, have no bytes, or do not
    pass the check."""
    if len(messages) > MESSAGES_PER_FRAME_MAX:
        chunks = (
            messages[start : start + MESSAGES_PER_FRAME_MAX]
            for start in range(0, len(messages), MESSAGES_PER_FRAME_MAX)
        )
        return _join(chunks, check)
    try:
        made = frame(messages)
        if check is not None:
            check(memoryview(made)[LENGTH.size :])
        return [made], []
    except (FrameTooLarge, Malformed, OverflowError, TypeError, ValueError):
        # A number above 64 bits or half a character is as unsendable as a message that is too large.
        if len(messages) == 1:
            return [], [messages[0]]
        half = len(messages) // 2
        return _join([messages[:half], messages[half:]], check)


def _join(
    chunks: Iterable[Sequence[msgspec.Struct]], check: Check | None
) -> tuple[list[bytearray], list[msgspec.Struct]]:
    made: list[bytearray] = []
    unsendable: list[msgspec.Struct] = []
    for chunk in chunks:
        some, others = frames(chunk, check)
        made += some
        unsendable += others
    return made, unsendable
