"""Messages as JSON: what a page makes by the shapes is what the node hears."""

import json
import random
from typing import get_args

import msgspec
import pytest
from tests.wire.any_message import Drawing

from moorline.errors import Malformed
from moorline.limits import FRAME_BYTES_MAX
from moorline.wire.json_messages import encode, node_decoder, shapes
from moorline.wire.message import Message
from moorline.wire.node import Echo, Echoed, ListNodes
from moorline.wire.protocol import HeardByClient, HeardByNode

KINDS: list[type[Message]] = list(get_args(HeardByNode))


def test_every_message_has_its_shape() -> None:
    found = shapes()
    for side, heard in (("node", HeardByNode), ("client", HeardByClient)):
        assert set(found[side]) == {kind.__name__ for kind in get_args(heard)}
        for kind in get_args(heard):
            shape = found[side][kind.__name__]
            assert shape["tag"] == kind.__struct_config__.tag
            assert [field["name"] for field in shape["fields"]] == list(kind.__struct_fields__)


def test_parts_that_are_named_are_there_with_their_fields() -> None:
    found = shapes()
    named = {
        field["part"]
        for side in found.values()
        for shape in side.values()
        for field in shape["fields"]
        if "part" in field
    }
    assert named == set(found["parts"])
    nodes = found["client"]["NodesListed"]["fields"][1]
    assert (nodes["part"], nodes["isList"]) == ("NodeFacts", True)
    assert found["parts"]["NodeFacts"]["fields"][0]["name"] == "home"


def test_a_call_that_is_made_of_its_shape_is_heard_with_its_defaults() -> None:
    shape = shapes()["node"]["ListNodes"]
    given_fields = {"call": 7}
    array = [shape["tag"]]
    array += [given_fields.get(field["name"], field.get("default")) for field in shape["fields"]]
    assert node_decoder.decode(memoryview(json.dumps([array]).encode())) == [ListNodes(7)]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_is_heard_as_it_was(seed: int) -> None:
    drawing = Drawing(random.Random(seed), {})
    for kind in KINDS:
        message = msgspec.convert(drawing.message(kind), kind)
        (text,), unsendable = encode([message])
        assert not unsendable
        assert node_decoder.decode(memoryview(text)) == [message]


@pytest.mark.parametrize(
    "text", [b"", b"[", b"{}", b"[[9]]", b"[[999999, 1]]", b'[[9, "one"]]', b"\xff", b"[" * 5_000]
)
def test_what_is_no_message_is_malformed(text: bytes) -> None:
    with pytest.raises(Malformed):
        node_decoder.decode(memoryview(text))


def test_many_messages_are_texts_of_some_size_in_their_order() -> None:
    many = [Echoed(call, bytes(FRAME_BYTES_MAX // 8)) for call in range(20)]
    texts, _ = encode(many)
    assert len(texts) > 1
    assert max(map(len, texts)) < 2 * FRAME_BYTES_MAX
    calls = [array[1] for text in texts for array in msgspec.json.decode(text)]
    assert calls == list(range(20))


def test_bytes_are_base64() -> None:
    (text,), _ = encode([Echo(1, b"\x00\xff")])
    assert json.loads(text) == [[7, 1, "AP8="]]
