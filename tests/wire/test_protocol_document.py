"""The page on the native protocol says what the code does: every message, its tag, its fields."""

import re
from pathlib import Path
from typing import get_args

from moorline.wire.frame import LENGTH, frame
from moorline.wire.link import Hello, Welcome
from moorline.wire.message import Message
from moorline.wire.protocol import HeardByClient, HeardByNode, client_decoder, node_decoder
from moorline.wire.value import HeardByPublisher, HeardBySubscriber

PAGE = (Path(__file__).parents[2] / "docs/protocols/native.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\d+) \| `(\w+)` \| (node|client|both) \| ([^|]*) \|", re.MULTILINE)
VALUE_ROW = re.compile(
    r"^\| (\d+) \| `(\w+)` \| (publisher|subscriber) \| ([^|]*) \|", re.MULTILINE
)
DUMP_LINE = re.compile(r"^[0-9a-f]{8}  ([0-9a-f ]+?) +\|", re.MULTILINE)


def described(kind: type[Message]) -> tuple[int, str, str, list[str]]:
    """A message as a row of the table has it: tag, name, who hears it, fields in order."""
    heard_by = [
        end
        for end, heard in (("node", HeardByNode), ("client", HeardByClient))
        if kind in get_args(heard)
    ]
    end = "both" if len(heard_by) == 2 else heard_by[0]
    tag = kind.__struct_config__.tag
    assert isinstance(tag, int)
    return tag, kind.__name__, end, list(kind.__struct_fields__)


def dumps() -> list[bytes]:
    """The hexdumps of the page, as bytes."""
    blocks = re.findall(r"^```\n(0{8}  .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [bytes.fromhex("".join(DUMP_LINE.findall(block))) for block in blocks]


def test_every_message_has_its_row_and_every_row_its_message() -> None:
    rows = [
        (int(tag), name, end, re.findall(r"`(\w+)`", fields))
        for tag, name, end, fields in ROW.findall(PAGE)
    ]
    kinds = {*get_args(HeardByNode), *get_args(HeardByClient)}
    assert rows == sorted(described(kind) for kind in kinds)


def test_every_message_of_publishers_and_subscribers_has_its_row() -> None:
    rows = [
        (int(tag), name, end, re.findall(r"`(\w+)`", fields))
        for tag, name, end, fields in VALUE_ROW.findall(PAGE)
    ]
    shared = {*get_args(HeardByNode), *get_args(HeardByClient)}
    ends = {"publisher": HeardByPublisher, "subscriber": HeardBySubscriber}
    kinds = [
        (kind.__struct_config__.tag, kind.__name__, end, list(kind.__struct_fields__))
        for end, heard in ends.items()
        for kind in get_args(heard)
        if kind not in shared
    ]
    assert rows == sorted(kinds)


def test_no_tag_has_two_messages() -> None:
    kinds = {*get_args(HeardByNode), *get_args(HeardByClient)}
    assert len({described(kind)[0] for kind in kinds}) == len(kinds)


def test_the_dumps_are_real_frames() -> None:
    hello, welcome = dumps()
    (said,) = node_decoder.decode(memoryview(hello)[LENGTH.size :])
    assert said == Hello("moorline", 1, 1, "moorline/0.1.0 python")
    assert bytes(frame([said])) == hello
    (answered,) = client_decoder.decode(memoryview(welcome)[LENGTH.size :])
    assert answered == Welcome(
        1, "node-1", "moorline/0.1.0", ("broker", "console"), 15_000, "node-1"
    )
    assert bytes(frame([answered])) == welcome
