"""Every text, bytes, list and map that travels has a bound, and a frame that breaks one is not taken."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect

from moorline.core.delivery.progress import Cursor
from moorline.core.frames import frame as stored_frame
from moorline.core.group.message import Disconnect
from moorline.errors import Malformed
from moorline.limits import (
    CURSOR_RANGES_MAX,
    FRAME_BYTES_MAX,
    MEMBER_LENGTH_MAX,
    RECORDS_PER_CALL_MAX,
    TEXT_LENGTH_MAX,
)
from moorline.wire import packed_rows, staging
from moorline.wire.bounds import fault_of
from moorline.wire.frame import LENGTH, frame
from moorline.wire.group import ForLeader
from moorline.wire.link import Goodbye
from moorline.wire.message import Failed
from moorline.wire.protocol import HeardByClient, HeardByNode, client_decoder, node_decoder
from moorline.wire.queue import Send
from moorline.wire.topic import ListTopics, Publish, Record

KINDS = sorted({*get_args(HeardByNode), *get_args(HeardByClient)}, key=lambda kind: kind.__name__)
INSIDE = {
    "packed names": packed_rows.Names,
    "headers": stored_frame.StoredHeaders,
    "queue rows": staging.QueueRows,
}
"""What is decoded out of the bytes of a field."""
VALUES = {"ValuesSubscribed.values[].value", "ValuesChanged.values[]"}
"""Whatever a publisher has, or a node shows: a client hears it, and the frame is its bound."""


def unbounded(found: Any, path: str, above: tuple[type, ...] = ()) -> Iterator[str]:
    """The paths below a type that have no bound; `above` are the structs on the way to it."""
    match found:
        case inspect.StrType() | inspect.BytesType():
            if found.max_length is None:
                yield path
        case inspect.ListType() | inspect.VarTupleType():
            if found.max_length is None:
                yield path
            yield from unbounded(found.item_type, f"{path}[]", above)
        case inspect.DictType():
            if found.max_length is None:
                yield path
            yield from unbounded(found.key_type, f"{path} (key)", above)
            yield from unbounded(found.value_type, f"{path} (value)", above)
        case inspect.TupleType():
            for place, item in enumerate(found.item_types):
                yield from unbounded(item, f"{path}[{place}]", above)
        case inspect.UnionType():
            for one in found.types:
                yield from unbounded(one, path, above)
        case inspect.StructType() | inspect.NamedTupleType():
            assert found.cls not in above, f"{path} holds itself"
            for field in found.fields:
                yield from unbounded(field.type, f"{path}.{field.name}", (*above, found.cls))
        case inspect.IntType() | inspect.FloatType() | inspect.BoolType():
            pass
        case inspect.LiteralType() | inspect.NoneType():
            pass
        case inspect.AnyType() if path in VALUES:
            pass
        case _:
            yield f"{path}: nobody knows how long {found} may be"


def test_every_field_of_a_message_has_a_bound() -> None:
    """A32."""
    found = [path for kind in KINDS for path in unbounded(inspect.type_info(kind), kind.__name__)]
    assert found == []


@pytest.mark.parametrize("name", INSIDE)
def test_what_is_inside_of_bytes_has_bounds_too(name: str) -> None:
    assert list(unbounded(inspect.type_info(INSIDE[name]), name)) == []


def test_the_walk_finds_what_has_no_bound() -> None:
    class Inner(msgspec.Struct, array_like=True):
        names: dict[str, bytes]

    class Outer(msgspec.Struct, array_like=True):
        rows: list[tuple[int, Inner]]
        word: str | None = None

    assert list(unbounded(inspect.type_info(Outer), "Outer")) == [
        "Outer.rows",
        "Outer.rows[][1].names",
        "Outer.rows[][1].names (key)",
        "Outer.rows[][1].names (value)",
        "Outer.word",
    ]


LONG = "x" * (MEMBER_LENGTH_MAX + 1)
FORGED: dict[str, tuple[msgspec.Struct, str]] = {
    "a name inside of a message": (
        ForLeader(1, Disconnect(LONG, 1, ())),
        "ForLeader.message.borrower",
    ),
    "ranges": (
        ForLeader(1, Disconnect("b", 1, ((1, Cursor(0, ((1, 2),) * (CURSOR_RANGES_MAX + 1))),))),
        "ForLeader.message.cursors[0][1].acked",
    ),
    "records": (
        Publish(1, [Record("t", b"")] * (RECORDS_PER_CALL_MAX + 1)),
        "Publish.records",
    ),
    "a header": (
        Publish(1, [Record("t", b""), Record("t", b"", None, [("h" * 70_000, b"")])]),
        "Publish.records[1].headers[0][0]",
    ),
    "a cursor": (ListTopics(1, "x" * 2_000), "ListTopics.after"),
    "an id": (Send(1, b"short", b""), "Send.queue"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_frame_with_a_field_that_is_too_long_is_not_taken(name: str) -> None:
    message, _ = FORGED[name]
    with pytest.raises(Malformed):
        node_decoder.decode(memoryview(frame([message]))[LENGTH.size :])


@pytest.mark.parametrize("name", FORGED)
def test_the_field_is_named(name: str) -> None:
    message, field = FORGED[name]
    fault = fault_of(message, node_decoder)
    assert fault is not None
    assert fault.startswith(f"{field}: ")


def test_a_message_within_its_bounds_has_no_fault() -> None:
    assert fault_of(Publish(1, [Record("t", b"body")]), node_decoder) is None


@pytest.mark.parametrize("kind", [Failed, Goodbye])
def test_a_text_for_people_is_cut_where_it_is_made(kind: type) -> None:
    long = "y" * (TEXT_LENGTH_MAX + 1)
    said = Failed(1, "INTERNAL", long) if kind is Failed else Goodbye("DONE", long)
    assert len(said.text) == TEXT_LENGTH_MAX
    assert client_decoder.decode(memoryview(frame([said]))[LENGTH.size :]) == [said]


# --- at the bound, and one above ------------------------------------------------------------------


def least(found: Any) -> Any:
    """The shortest value of a type, as it travels."""
    match found:
        case inspect.StrType():
            return text_of(found, found.min_length or 0)
        case inspect.BytesType():
            return bytes(found.min_length or 0)
        case inspect.ListType() | inspect.VarTupleType():
            return [least(found.item_type)] * (found.min_length or 0)
        case inspect.DictType():
            return {}
        case inspect.TupleType():
            return [least(item) for item in found.item_types]
        case inspect.UnionType():
            return least(found.types[0])
        case inspect.StructType():
            return _array(found, [least(field.type) for field in found.fields])
        case inspect.NamedTupleType():
            return [least(field.type) for field in found.fields]
        case inspect.IntType() | inspect.FloatType():
            return found.ge or 0
        case inspect.LiteralType():
            return found.values[0]
        case inspect.BoolType():
            return False
        case _:
            return None


def text_of(found: inspect.StrType, count: int) -> str:
    """Of so many characters; what has a form is a path."""
    if found.pattern is None or re.search(found.pattern, "x" * count):
        return "x" * count
    return "/" + "x" * (count - 1)


def _array(found: inspect.StructType, values: list[Any]) -> list[Any]:
    return values if found.tag is None else [found.tag, *values]


def stretched(found: Any, path: str) -> Iterator[tuple[str, int, Callable[[int], Any]]]:
    """Every field below a type that has a bound: its path, the bound, and the value with so much in it."""
    match found:
        case inspect.StrType():
            yield path, found.max_length or 0, lambda count: text_of(found, count)
        case inspect.BytesType():
            yield path, found.max_length or 0, bytes
        case inspect.ListType() | inspect.VarTupleType():
            item = least(found.item_type)
            yield path, found.max_length or 0, lambda count: [item] * count
            for below, bound, make in stretched(found.item_type, f"{path}[]"):
                yield below, bound, lambda count, make=make: [make(count)]  # type: ignore[misc]
        case inspect.DictType():
            item = least(found.value_type)
            yield path, found.max_length or 0, lambda count: {str(n): item for n in range(count)}
        case inspect.UnionType():
            for one in found.types:
                yield from stretched(one, path)
        case inspect.TupleType():
            yield from _placed(found.item_types, lambda values: values, path)
        case inspect.NamedTupleType():
            yield from _placed([field.type for field in found.fields], lambda values: values, path)
        case inspect.StructType():
            types = [field.type for field in found.fields]
            names = [field.name for field in found.fields]
            yield from _placed(types, lambda values: _array(found, values), path, names)


def _placed(
    types: Sequence[Any],
    whole: Callable[[list[Any]], list[Any]],
    path: str,
    names: Sequence[str] = (),
) -> Iterator[tuple[str, int, Callable[[int], Any]]]:
    others = [least(one) for one in types]
    for place, one in enumerate(types):
        name = f"{path}.{names[place]}" if names else f"{path}[{place}]"
        for below, bound, make in stretched(one, name):
            yield (
                below,
                bound,
                lambda count, place=place, make=make: whole(  # type: ignore[misc]
                    [*others[:place], make(count), *others[place + 1 :]]
                ),
            )


def test_each_field_at_its_bound_is_taken_and_one_above_is_not() -> None:
    """A32: every text, bytes, list and map, wherever it is in a message."""
    refused, taken, looked_at = [], [], 0
    for kind in KINDS:
        for path, bound, make in stretched(inspect.type_info(kind), kind.__name__):
            looked_at += 1
            payload = msgspec.msgpack.encode([make(bound)])
            # A field that may fill a frame has the frame for its bound.
            if len(payload) <= FRAME_BYTES_MAX and not is_taken(kind, payload):
                refused.append(path)
            if is_taken(kind, msgspec.msgpack.encode([make(bound + 1)])):
                taken.append(path)
    assert refused == []
    assert taken == []
    assert looked_at > len(KINDS)


def is_taken(kind: type, payload: bytes) -> bool:
    decoder = node_decoder if kind in get_args(HeardByNode) else client_decoder
    try:
        return len(decoder.decode(memoryview(payload))) == 1
    except Malformed:
        return False
