"""Room: wire. The messages of the native protocol as JSON, for pages: an array of messages is one text.

A message is what it is in msgpack: an array of its tag and its fields in order. Bytes are base64. `shapes`
says which tag and which fields each message has, so that a page needs no list of its own: it is made of the
same classes that decode it here, and cannot be of another version.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, get_args

import msgspec
from msgspec import inspect

from moorline.limits import FRAME_BYTES_MAX, MESSAGES_PER_FRAME_MAX
from moorline.wire.decoder import MessageDecoder
from moorline.wire.message import Message
from moorline.wire.protocol import HeardByClient, HeardByNode

_HEARD: Final = Annotated[list[HeardByNode], msgspec.Meta(max_length=MESSAGES_PER_FRAME_MAX)]
_encoder: Final = msgspec.json.Encoder()


class JsonDecoder(MessageDecoder):
    """Texts to messages: one call into C a text."""

    def __init__(self, heard: Any) -> None:
        self._decoder = msgspec.json.Decoder(heard)


node_decoder: Final = JsonDecoder(_HEARD)
"""What a page says."""


def encode(messages: Sequence[Message]) -> tuple[list[bytes], list[msgspec.Struct]]:
    """Texts for these messages in their order, none much larger than a frame; nothing is too large alone."""
    texts: list[bytes] = []
    gathered: list[bytes] = []
    size = 0
    for message in messages:
        one = _encoder.encode(message)
        if gathered and size + len(one) > FRAME_BYTES_MAX:
            texts.append(b"[" + b",".join(gathered) + b"]")
            gathered, size = [], 0
        gathered.append(one)
        size += len(one)
    if gathered:
        texts.append(b"[" + b",".join(gathered) + b"]")
    return texts, []


Field = dict[str, Any]
Shapes = dict[str, dict[str, Any]]


def shapes() -> dict[str, Shapes]:
    """`node`: what a node hears; `client`: what it says; `parts`: what is in them. Each by its name, with its
    tag if it has one, and its fields in order: their names, the part that they are made of, and what stands
    for them where nothing is given."""
    parts: Shapes = {}
    return {
        "node": _messages(HeardByNode, parts),
        "client": _messages(HeardByClient, parts),
        "parts": parts,
    }


def _messages(heard: Any, parts: Shapes) -> Shapes:
    found = {}
    for kind in get_args(heard):
        described = inspect.type_info(kind)
        assert isinstance(described, inspect.StructType)
        found[kind.__name__] = _shape(described, parts)
    return found


def _shape(described: inspect.StructType, parts: Shapes) -> dict[str, Any]:
    shape: dict[str, Any] = {"fields": [_field(field, parts) for field in described.fields]}
    if described.tag is not None:
        shape["tag"] = described.tag
    return shape


def _field(field: inspect.Field, parts: Shapes) -> Field:
    described: Field = {"name": field.name}
    part, is_list = _part(field.type, parts)
    if part:
        described["part"] = part
        described["isList"] = is_list
    if not field.required:
        default = field.default
        if default is msgspec.NODEFAULT:
            default = field.default_factory()
        described["default"] = msgspec.to_builtins(default)
    return described


def _part(kind: inspect.Type, parts: Shapes) -> tuple[str, bool]:
    """The struct that a field is, or is a list of; empty where it is neither."""
    match kind:
        case inspect.Metadata(type=inner):
            return _part(inner, parts)
        case inspect.StructType() if kind.array_like and kind.tag is None:
            name = kind.cls.__name__
            if name not in parts:
                parts[name] = {}  # while its own fields are looked at: it may be in itself
                parts[name] = _shape(kind, parts)
            return name, False
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return _part(item, parts)[0], True
        case inspect.UnionType(types=types):
            found = {_part(one, parts) for one in types if not isinstance(one, inspect.NoneType)}
            return found.pop() if len(found) == 1 else ("", False)
        case _:
            return "", False
