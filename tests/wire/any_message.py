"""Messages drawn by their types: any field at the edge of what its type takes, or a value that is known.

A message that is added later is drawn like the others, since only the types are looked at.
"""

import random
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect

from moorline.wire.message import Message

NUMBERS = (0, 1, 2, 3, 7, 128, 4_096, 65_535, 1 << 31, (1 << 32) - 1, 1 << 53, (1 << 62) - 1)
FAR_NUMBERS = (-1, -(1 << 31), -(1 << 63), (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
TEXTS = (
    "",
    "x",
    "a/b",
    "#",
    "+/x",
    "$share/g/#",
    "$queue/g/x",
    "$share//",
    "/",
    "\0",
    "ä\U0001f6a2",
    "x" * 300,
)
DATA = (
    b"",
    b"\0",
    bytes(16),
    bytes(24),
    b"\xff" * 24,
    bytes(32),
    b"\x90",
    b"\x91\xc0",
    b"\xc1",
    bytes(1_000),
)


class Drawing:
    """Draws values; `known` are those that mean something at the node, by the names of fields."""

    def __init__(self, chance: random.Random, known: Mapping[str, Sequence[Any]]) -> None:
        self._chance = chance
        self._by_field = known
        self._known = [value for values in known.values() for value in values]

    def message(self, kind: type[Message]) -> Message:
        """One whose every field is within what its type takes."""
        fields = [self._field(field) for field in _fields(kind)]
        # Through its own bytes, so that it is what a decoder would have made of them.
        return msgspec.convert([kind.__struct_config__.tag, *fields], kind)

    def wrong(self, kind: type[Message], call: int) -> list[Any]:
        """The same as a bare array, with one field that its type does not take, or one too few."""
        fields = [self._field(field) for field in _fields(kind)]
        if "call" in kind.__struct_fields__:
            fields[kind.__struct_fields__.index("call")] = call
        if fields and self._chance.random() < 0.8:
            place = self._chance.randrange(len(fields))
            fields[place] = self._chance.choice(
                [None, -1, 1 << 64 - 1, "no", b"no", [], [[]], {}, {"a": 1}, 1.5, True, "y" * 2_000]
            )
        else:
            fields = fields[: self._chance.randrange(len(fields) + 1)]
        return [kind.__struct_config__.tag, *fields]

    def _field(self, field: inspect.Field) -> Any:
        known = self._by_field.get(field.name)
        if known and self._chance.random() < 0.6:
            return self._chance.choice(known)
        return self._value(field.type)

    def _value(self, info: inspect.Type) -> Any:
        match info:
            case inspect.Metadata():
                return self._value(info.type)
            case inspect.IntType():
                return self._number(info)
            case inspect.FloatType():
                return self._chance.choice([0.0, -1.0, 1e308, 1.5])
            case inspect.BoolType():
                return self._chance.random() < 0.5
            case inspect.AnyType():
                return self._chance.choice([None, True, 7, 1.5, "x", b"y", [1, "a"]])
            case inspect.NoneType():
                return None
            case inspect.StrType():
                return self._sized(TEXTS, str, info.min_length, info.max_length, "s", info.pattern)
            case inspect.BytesType():
                return self._sized(DATA, bytes, info.min_length, info.max_length, b"\x07")
            case inspect.LiteralType():
                return self._chance.choice(info.values)
            case inspect.UnionType():
                return self._value(self._chance.choice(info.types))
            case inspect.TupleType():
                return [self._value(item) for item in info.item_types]
            case inspect.ListType() | inspect.VarTupleType():
                return [self._value(info.item_type) for _ in range(self._count(info))]
            case inspect.DictType():
                return {
                    self._value(info.key_type): self._value(info.value_type)
                    for _ in range(self._chance.choice([0, 1, 3]))
                }
            case inspect.StructType():
                tag = [] if info.tag is None else [info.tag]
                return [*tag, *map(self._field, info.fields)]
            case inspect.NamedTupleType():
                return [self._field(field) for field in info.fields]
            case inspect.EnumType():
                return self._chance.choice(list(info.cls)).value
            case _:
                raise AssertionError(f"no values for {info}: teach this how to draw them")

    def _number(self, info: inspect.IntType) -> int:
        least = -(1 << 63) if info.ge is None else info.ge
        most = (1 << 64) - 1 if info.le is None else info.le
        if info.gt is not None:
            least = info.gt + 1
        if info.lt is not None:
            most = info.lt - 1
        known = [one for one in self._known if type(one) is int]
        near = [one for one in (*NUMBERS, *known) if least <= one <= most]
        far = [
            one for one in (*FAR_NUMBERS, least, most, least + 1, most - 1) if least <= one <= most
        ]
        return self._chance.choice(self._chance.choice([near or far, far]))

    def _count(self, info: inspect.ListType | inspect.VarTupleType) -> int:
        least, most = info.min_length or 0, info.max_length
        return self._chance.choice(
            [count for count in (0, 1, 2, 5, least) if least <= count <= (most or sys.maxsize)]
        )

    def _sized(
        self,
        usual: Sequence[Any],
        kind: type[str | bytes],
        least: int | None,
        most: int | None,
        filler: Any,
        pattern: str | None = None,
    ) -> Any:
        longest = min(most or 5_000, 5_000)
        edges = [filler * (least or 0), filler * longest]
        fitting, known = (
            [
                one
                for one in some
                if isinstance(one, kind)
                and (least or 0) <= len(one) <= (most or sys.maxsize)
                and (pattern is None or re.search(pattern, str(one)))
            ]
            for some in ((*usual, *edges), self._known)
        )
        return self._chance.choice(
            self._chance.choice([fitting, known or fitting, known or fitting])
        )


def _fields(kind: type[Message]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return info.fields
