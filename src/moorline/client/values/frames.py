"""Room: client. Values as bytes: what can be one, and batches of updates as frames."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from moorline.core.values.batch import Batch
from moorline.errors import BadValue, FrameTooLarge
from moorline.limits import VALUE_DEPTH_MAX, VALUE_ROOM_BYTES, VALUES_PER_MESSAGE_MAX
from moorline.wire.frame import frame
from moorline.wire.value import ValuesChanged

WHOLE_NUMBERS: Final = range(-(1 << 63), 1 << 64)

_SIMPLE: Final = frozenset({type(None), bool, float, str, bytes})
"""Types that are values whatever they hold; text is seen by the encoder."""

_PLAIN: Final = _SIMPLE | {int}

_HEAD_BYTES, _SIMPLE_BYTES = 20, 32
"""Of a value with its id in an answer."""

_ROOM: Final = bytes(VALUE_ROOM_BYTES)

END: Final = bytes(frame([ValuesChanged([], [], is_end=True)]))
"""Behind the parts of a batch that came apart."""


def check_value(value: Any, depth: int = 0) -> None:
    """Refuses what a subscriber could not be given as it is."""
    kind = type(value)
    if kind in _SIMPLE:
        return
    if depth > VALUE_DEPTH_MAX:
        raise BadValue(f"a value has at most {VALUE_DEPTH_MAX} levels of lists and maps")
    match value:
        case int():
            if value not in WHOLE_NUMBERS:
                raise BadValue(
                    f"{value} is no value: whole numbers have 64 bits, use a float or a text"
                )
        case datetime():
            if value.tzinfo is None:
                raise BadValue(f"{value} has no zone: give it one, as datetime.now(UTC) does")
        case list() | tuple():
            for one in value:
                check_value(one, depth + 1)
        case dict():
            for key, one in value.items():
                if not isinstance(key, str):
                    raise BadValue(f"a map has texts as keys, not {key!r}")
                check_value(one, depth + 1)
        case str() | float() | bytes():
            return
        case _:
            raise BadValue(
                f"a {kind.__name__} is no value; accepted: null, bool, int, float, str, bytes, datetime, "
                "list, map"
            )


def check_values(values: Sequence[Any]) -> None:
    """The same for many, of which most are simple: their types are looked at together."""
    # A number of too many bits is found by the encoder.
    if not set(map(type, values)) <= _PLAIN:
        for value in values:
            check_value(value)


def encode(batch: Batch, *, is_whole: bool = True) -> None:
    """Makes the frames of a batch, once. Not `is_whole`: another part of the same batch follows, or `END`."""
    if batch.frames is None:
        batch.frames = _frames(batch.ids, batch.values, is_end=is_whole)
        batch.size_bytes = sum(map(len, batch.frames))


def check_length(value: Any) -> None:
    """Refuses a value that fits no frame beside what an answer says of others."""
    try:
        frame([ValuesChanged([1 << 62], [value, _ROOM])])
    except FrameTooLarge as error:
        raise BadValue(f"a value must fit a frame: {error}") from error
    except (UnicodeEncodeError, ValueError, RecursionError) as error:
        raise BadValue(f"it cannot be sent: {error}") from error


def size_of(value: Any) -> int:
    """About how many bytes it takes; never many fewer."""
    match value:
        case bytes():
            return len(value) + _HEAD_BYTES
        case str():
            return (len(value) if value.isascii() else len(value.encode())) + _HEAD_BYTES
        case list() | tuple() | dict():
            return len(msgspec.msgpack.encode(value)) + _HEAD_BYTES
        case _:
            return _SIMPLE_BYTES


def _frames(ids: list[int], values: list[Any], *, is_end: bool) -> list[bytearray]:
    if len(ids) <= VALUES_PER_MESSAGE_MAX:
        try:
            return [frame([ValuesChanged(ids, values, is_end)])]
        except FrameTooLarge:
            if len(ids) == 1:
                raise
    half = min(len(ids) // 2, VALUES_PER_MESSAGE_MAX)
    return [
        *_frames(ids[:half], values[:half], is_end=False),
        *_frames(ids[half:], values[half:], is_end=is_end),
    ]
