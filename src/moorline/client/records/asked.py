"""Room: client/records. What a copy asks for (table, filter, columns), and how values of Python travel."""

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from moorline.errors import BadFilter
from moorline.limits import (
    RECORD_COLUMNS_MAX,
    RECORD_IDENTIFIER_CHARACTERS_MAX,
    RECORD_WHERE_COLUMNS_MAX,
    RECORD_WHERE_VALUES_MAX,
)

_SIGNS = (">", ">=", "<", "<=")


class Asked(msgspec.Struct, frozen=True):
    table: str
    where: dict[str, Any]
    columns: list[str] | None

    @staticmethod
    def of(
        table: str, where: Mapping[str, Any] | None, columns: Sequence[str] | None = None
    ) -> "Asked":
        """BadFilter for what could not travel, or is none. Types are judged by the node, which knows them."""
        if not table or len(table) > RECORD_IDENTIFIER_CHARACTERS_MAX:
            raise BadFilter(
                f"a table has a name of 1 to {RECORD_IDENTIFIER_CHARACTERS_MAX} characters"
            )
        given = dict(where or {})
        if len(given) > RECORD_WHERE_COLUMNS_MAX:
            raise BadFilter(f"a filter has at most {RECORD_WHERE_COLUMNS_MAX} columns")
        if isinstance(columns, str):
            raise BadFilter(f"columns is a list of names, and not the text {columns[:64]!r}")
        if columns is not None and len(columns) > RECORD_COLUMNS_MAX:
            raise BadFilter(f"at most {RECORD_COLUMNS_MAX} columns")
        for name in [*given, *(columns or ())]:
            _check_name(name)
        chosen = None if columns is None else sorted(set(columns))
        return Asked(table, {name: _term(name, given[name]) for name in sorted(given)}, chosen)

    def __bytes__(self) -> bytes:
        """Equal for what is equal: by it a cache knows whose it is."""
        return msgspec.msgpack.encode(self)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= RECORD_IDENTIFIER_CHARACTERS_MAX:
        raise BadFilter(f"{str(name)[:64]!r} is no name of a column")


def _term(name: str, given: Any) -> Any:
    if isinstance(given, Mapping):
        if not given or any(sign not in _SIGNS for sign in given):
            raise BadFilter(f'a range of {name} is {{">=": a, "<": b}}, of {", ".join(_SIGNS)}')
        return {sign: _value(name, given[sign]) for sign in sorted(given)}
    if isinstance(given, list | tuple | set | frozenset):
        if len(given) > RECORD_WHERE_VALUES_MAX:
            raise BadFilter(f"{name} has at most {RECORD_WHERE_VALUES_MAX} values in a filter")
        # In one order, for the cache: the filter is the same in any.
        return sorted(
            (_value(name, one) for one in given),
            key=lambda one: (str(type(one)), one is None or one),
        )
    return _value(name, given)


def _value(name: str, given: Any) -> Any:
    match given:
        case None | bool() | str() | float():
            return given
        case int() if -(1 << 63) <= given < 1 << 63:
            return given
        case Decimal() | UUID() | int():
            return str(given)
        case date():  # and datetime, which is one
            return given.isoformat()
        case _:
            raise BadFilter(
                f"{name} is compared with {type(given).__name__}: accepted are None, bool, int, float, str, "
                "Decimal, UUID, date and datetime"
            )
