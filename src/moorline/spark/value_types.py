"""Room: spark. The types that values have as a column, by the option `valueType`.

    valueType   column       which values fit
    json        string       all of them: a map as an object, bytes as base64, a time as ISO 8601, NaN as null
    string      string       texts
    double      double       numbers; whole ones that a double has exactly
    long        bigint       whole numbers of 64 bits with a sign
    boolean     boolean      true and false
    binary      binary       bytes
    timestamp   timestamp    times

A null fits every type, and is null.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from moorline.errors import BadValue, ConfigError

NO_FIT: Final = object()
"""What a conversion returns for a value of another type."""

_EXACT_MAX: Final = 1 << 53
_LONGS: Final = range(-(1 << 63), 1 << 63)
_SHOWN_MAX: Final = 80


def _json(value: Any) -> Any:
    return msgspec.json.encode(value).decode()


def _double(value: Any) -> Any:
    if type(value) is int:
        return float(value) if -_EXACT_MAX <= value <= _EXACT_MAX else NO_FIT
    return value if type(value) is float else NO_FIT


def _long(value: Any) -> Any:
    return value if type(value) is int and value in _LONGS else NO_FIT


def _only(kind: type) -> Callable[[Any], Any]:
    return lambda value: value if type(value) is kind else NO_FIT


class ValueType(NamedTuple):
    name: str
    column: str
    convert: Callable[[Any], Any]


TYPES: Final = {
    one.name: one
    for one in (
        ValueType("json", "string", _json),
        ValueType("string", "string", _only(str)),
        ValueType("double", "double", _double),
        ValueType("long", "bigint", _long),
        ValueType("boolean", "boolean", _only(bool)),
        ValueType("binary", "binary", _only(bytes)),
        ValueType("timestamp", "timestamp", _only(datetime)),
    )
}


def value_type_of(options: Mapping[str, str]) -> ValueType:
    name = {one.lower(): text for one, text in options.items()}.get("valuetype", "json")
    if name not in TYPES:
        raise ConfigError(f"valueType: {name!r}; accepted: {', '.join(TYPES)}")
    return TYPES[name]


def converted(
    type_name: str, rows: Iterable[tuple[str, Any]], *, fail_on_misfit: bool
) -> tuple[list[Any], int]:
    """The values of (path, value) as a column has them, and how many became null since they do not fit."""
    convert = TYPES[type_name].convert
    found: list[Any] = []
    misfits = 0
    for path, value in rows:
        made = None if value is None else convert(value)
        if made is NO_FIT:
            if fail_on_misfit:
                raise BadValue(
                    f"{path}: {repr(value)[:_SHOWN_MAX]} is no {type_name}: choose another valueType, or "
                    "failOnMisfit=false for null in its place"
                )
            misfits += 1
            made = None
        found.append(made)
    return found, misfits
