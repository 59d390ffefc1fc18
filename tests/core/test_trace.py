"""Which messages are traced, and how a collector is told of them."""

import json

import pytest
from tests.journal.streams.lives import BYTES_MAX, Lives, one_shard

from moorline.core.frames.block import Block
from moorline.core.frames.frame import encode_headers
from moorline.core.trace import (
    COMMIT,
    PUBLISH,
    SEND,
    QueueTraced,
    Span,
    encoded,
    is_chosen,
    may_have_chosen,
    may_have_traced,
    traced_in,
    traced_of_block,
)
from moorline.ids import text_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def block_with(lives: Lives, *headers: str | bytes | None) -> Block:
    for one in headers:
        stored = b""
        if one is not None:
            value = one if isinstance(one, bytes) else one.encode()
            stored = encode_headers([("other", b"x"), ("traceparent", value)])
        lives.store.append("t", b"body", None, stored, 0, 0)
    lives.commit()
    block = lives.store.read(0, 1, lives.store.end(0) - len(headers), BYTES_MAX)
    assert isinstance(block, Block)
    return block


def both(block: Block, one_in: int) -> list[tuple[int, str, str]]:
    """The same whether it is looked for in a block or frame by frame."""
    found = list(traced_of_block(block, "n1", 0, one_in))
    assert found == list(traced_in(block.data, "n1", 0, one_in))
    if found:
        assert may_have_traced(block.data, block.first, block.upto, one_in)
    return [(one.offset, one.trace, one.parent) for one in found]


def test_a_message_is_traced_as_its_publisher_says() -> None:
    block = block_with(one_shard(), None, PARENT, PARENT[:-2] + "00", None, PARENT[:-2] + "03")
    assert both(block, 0) == [(1, TRACE, SPAN), (4, TRACE, SPAN)]


@pytest.mark.parametrize(
    "wrong",
    [
        PARENT.upper(),
        PARENT[:-3],
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        PARENT.replace("-", "_"),
        b"\xff" * 55,
        "",
    ],
)
def test_a_header_that_is_none_traces_nothing(wrong: str | bytes) -> None:
    assert both(block_with(one_shard(), wrong), 0) == []


def test_a_body_that_looks_like_a_header_traces_nothing() -> None:
    lives = one_shard()
    lives.store.append("t", encode_headers([("traceparent", PARENT.encode())]), None, b"", 0, 0)
    lives.commit()
    block = lives.store.read(0, 1, 0, BYTES_MAX)
    assert isinstance(block, Block)
    assert both(block, 0) == []


def test_one_in_so_many_is_traced_wherever_a_block_begins() -> None:
    lives = one_shard()
    block_with(lives, *[None] * 4)
    assert [one for one, _, _ in both(block_with(lives, *[None] * 17), 5)] == [5, 10, 15, 20]
    assert [one for one, _, _ in both(block_with(lives, *[None] * 3), 1)] == [21, 22, 23]
    assert both(block_with(lives, *[None] * 3), 100) == []
    assert both(block_with(lives, *[None] * 3), 0) == []


def test_every_node_finds_the_same_ids_and_no_two_messages_share_one() -> None:
    lives = one_shard()
    block = block_with(lives, None, None)
    first, second = traced_of_block(block, "n1", 0, 1)
    assert first.trace != second.trace
    assert len({first.span(PUBLISH), first.span(COMMIT), second.span(COMMIT)}) == 3
    (again, _) = traced_in(block.data, "n1", 0, 1)
    assert (again.trace, again.span(COMMIT)) == (first.trace, first.span(COMMIT))
    (elsewhere, _) = traced_in(block.data, "n2", 0, 1)
    assert elsewhere.trace != first.trace


@pytest.mark.parametrize("one_in", [1, 2, 7, 100])
def test_one_in_so_many_of_the_changes_to_queues_is_chosen_odd_and_even_ones(one_in: int) -> None:
    chosen = [number for number in range(2_000 * one_in) if is_chosen(number, one_in)]
    assert len(chosen) == 2_000
    odd = sum(number % 2 for number in chosen)
    assert 900 < odd < 1_100, "who sends and acknowledges in turn is met"
    for first in range(0, 50 * one_in, 13):
        for upto in (first + 1, first + one_in // 2 + 1, first + 3 * one_in):
            found = any(first <= number < upto for number in chosen)
            assert may_have_chosen(first, upto, one_in) == found


def test_of_queues_nothing_is_chosen_where_nothing_is_wanted() -> None:
    assert not any(is_chosen(number, 0) for number in range(100))
    assert not may_have_chosen(0, 1_000, 0)


def test_a_message_of_a_queue_has_ids_of_its_own_and_no_id_to_send_to() -> None:
    queue = bytes(range(24))
    first, second = QueueTraced(queue, 7, 1_000), QueueTraced(queue, 8, 1_000)
    assert len({first.trace, second.trace, QueueTraced(bytes(24), 7, 1_000).trace}) == 3
    assert len({first.span(SEND), first.span(COMMIT), second.span(SEND)}) == 3
    assert first.span(SEND) == QueueTraced(queue, 7, 1_000).span(SEND)
    assert (len(first.trace), len(first.span(SEND))) == (32, 16)
    assert text_of(queue).startswith(first.name)
    assert len(first.name) == 8


def test_a_collector_is_told_in_the_words_of_otlp() -> None:
    span = Span(TRACE, SPAN, "", "publish t", PUBLISH, 1_000_000, 1_000_020, {"a": "b", "n": 7})
    told = json.loads(encoded([span], {"service.name": "moorline"}, "0.2.0"))
    (resource,) = told["resourceSpans"]
    assert resource["resource"]["attributes"] == [
        {"key": "service.name", "value": {"stringValue": "moorline"}}
    ]
    (scope,) = resource["scopeSpans"]
    assert scope["scope"] == {"name": "moorline", "version": "0.2.0"}
    assert scope["spans"] == [
        {
            "traceId": TRACE,
            "spanId": SPAN,
            "name": "publish t",
            "kind": 4,
            "startTimeUnixNano": "1000000000",
            "endTimeUnixNano": "1000020000",
            "attributes": [
                {"key": "a", "value": {"stringValue": "b"}},
                {"key": "n", "value": {"intValue": "7"}},
            ],
        }
    ]
