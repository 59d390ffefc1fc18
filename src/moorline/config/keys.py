"""Room: config. The keys of a settings Struct: their names, what each accepts, and text to value.

field          key            file                    variable
data           data           data = "…"              MOOR_DATA
queues.sync    queues.sync    [queues] sync = "…"     MOOR_QUEUES_SYNC
"""

from dataclasses import dataclass
from typing import Any, get_args

import msgspec
from msgspec import NODEFAULT
from msgspec.inspect import (
    BoolType,
    FloatType,
    IntType,
    ListType,
    LiteralType,
    Metadata,
    StrType,
    Type,
    type_info,
)

VARIABLE_PREFIX = "MOOR_"


@dataclass(frozen=True)
class Key:
    name: str
    annotation: Any
    kind: Type
    default: object
    help: str
    accepted: str

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + self.name.replace(".", "_").upper()

    def parsed(self, text: str) -> object:
        """The value of a text from a flag or a variable; ValueError where it cannot be one."""
        return _parsed(self.kind, text)

    def checked(self, value: object) -> object:
        """The value, if it is of the key's type and range; ValueError where it is not."""
        if not _is_text_clean(value):
            raise ValueError("not UTF-8")
        return msgspec.convert(value, self.annotation)


def keys_of(kind: type[msgspec.Struct]) -> dict[str, Key]:
    """All keys of a Struct and of the Structs nested in it, in the order they are written."""
    keys = {key.name: key for key in _keys(kind, "")}
    assert len({key.variable for key in keys.values()}) == len(keys), "two keys, one variable"
    return keys


def sections_of(keys: dict[str, Key]) -> set[str]:
    """The names that are not keys but tables of keys."""
    return {name[:at] for name in keys for at, char in enumerate(name) if char == "."}


def _keys(kind: type[msgspec.Struct], prefix: str) -> list[Key]:
    found: list[Key] = []
    for field in msgspec.structs.fields(kind):
        name = prefix + field.name
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            found += _keys(field.type, name + ".")
            continue
        info = type_info(field.type)
        assert isinstance(info, Metadata), (
            f"{name} has no help: annotate it with Meta(description=)"
        )
        default = field.default if field.default_factory is NODEFAULT else field.default_factory()
        assert default is not NODEFAULT, f"{name} has no default"
        description = (info.extra_json_schema or {})["description"]
        # What a type cannot say, Meta(extra={"accepted": …}) does.
        accepted = (info.extra or {}).get("accepted") or _accepted(info.type, field.type)
        found.append(Key(name, field.type, info.type, default, description, accepted))
    return found


def _accepted(kind: Type, annotation: Any) -> str:
    match kind:
        case LiteralType():
            # Read from the annotation: msgspec sorts the values, we list them as they are written.
            return "one of " + ", ".join(str(value) for value in get_args(get_args(annotation)[0]))
        case IntType(ge=None, le=None):
            return "a whole number"
        case IntType(ge=low, le=None):
            return f"a whole number from {low:_}"
        case IntType(ge=None, le=high):
            return f"a whole number up to {high:_}"
        case IntType(ge=low, le=high):
            return f"a whole number from {low:_} to {high:_}"
        case FloatType():
            return "a number"
        case BoolType():
            return "true or false"
        case ListType(min_length=1):
            return "a list of texts with at least one entry"
        case ListType():
            return "a list of texts"
        case StrType(min_length=1):
            return "a text that is not empty"
        case StrType():
            return "a text"
        case _:
            raise NotImplementedError(f"a setting cannot be of type {kind}")


def _parsed(kind: Type, text: str) -> object:
    match kind:
        case IntType():
            return int(text)
        case FloatType():
            return float(text)
        case BoolType():
            return {"true": True, "false": False}.get(text.lower(), text)
        case ListType():
            return [item.strip() for item in text.split(",") if item.strip()]
        case _:
            return text


def _is_text_clean(value: object) -> bool:
    """Bytes of the command line or of a variable that are not UTF-8 arrive as lone surrogates."""
    texts = value if isinstance(value, list) else [value]
    return not any(
        isinstance(text, str) and any("\ud800" <= char <= "\udfff" for char in text)
        for text in texts
    )
