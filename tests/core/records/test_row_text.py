"""Rows as Postgres writes them, taken apart and put into msgpack: whatever Postgres takes for JSON."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.records.row_text import columns_of, packed
from moorline.limits import RECORD_LEVELS_MAX

# Texts of values that Postgres has in json, jsonb, arrays or composites, and others cannot hold.
ODD = (
    b"123456789012345678901234567890",
    b'{"a":-9223372036854775809}',
    b"[18446744073709551616]",
    b"1e400",
    b'"\\ud800"',
    b'{"\\udc00":[1]}',
    b"[" * (RECORD_LEVELS_MAX + 1) + b"]" * (RECORD_LEVELS_MAX + 1),
    b'{"a":' * 3_000 + b"1" + b"}" * 3_000,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
names = st.text('ab"\\,:{}[] ä', max_size=4)


def _text(columns: dict[str, bytes]) -> bytes:
    parts = (msgspec.json.encode(name) + b":" + text for name, text in columns.items())
    return b"{" + b",".join(parts) + b"}"


@given(st.dictionaries(names, values, max_size=6), st.sampled_from([None, 1]))
def test_what_msgpack_can_hold_is_the_value_itself(row: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(row, indent=indent, ensure_ascii=False).encode()
    assert msgspec.msgpack.decode(packed(text)) == row
    assert {name: json.loads(value) for name, value in columns_of(text).items()} == row


@given(st.dictionaries(names, values, max_size=4), st.sampled_from(ODD), names)
def test_what_it_cannot_hold_is_its_text_and_touches_no_other_column(
    row: dict[str, Any], odd: bytes, name: str
) -> None:
    """Every column is there, as its value or as its text."""
    texts = {one: json.dumps(value, ensure_ascii=False).encode() for one, value in row.items()}
    texts[name] = odd
    found = msgspec.msgpack.decode(packed(_text(texts)))
    assert found == {**row, name: odd.decode()}
    assert columns_of(_text(texts)) == texts


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_value_among_others_as_they_come(odd: bytes) -> None:
    row = b'{"id":1, "config" : ' + odd + b' ,"note":"a \\"{[,:]}\\\\"}'
    found = msgspec.msgpack.decode(packed(row))
    assert found == {"id": 1, "config": odd.decode(), "note": 'a "{[,:]}\\'}


def test_brackets_in_texts_are_no_levels() -> None:
    row = {"note": "[" * 5_000, "list": [[]] * 5_000}
    assert msgspec.msgpack.decode(packed(msgspec.json.encode(row))) == row


def test_as_many_levels_as_may_be_are_the_value_and_one_more_is_text() -> None:
    for levels, is_text in ((RECORD_LEVELS_MAX, False), (RECORD_LEVELS_MAX + 1, True)):
        row = b'{"a":' + b"[" * levels + b"]" * levels + b"}"
        assert isinstance(msgspec.msgpack.decode(packed(row))["a"], str) == is_text


def test_a_row_of_very_many_columns() -> None:
    row = {f"c{number}": number for number in range(1_600)}
    odd = msgspec.json.encode(row)[:-1] + b',"odd":1e999}'
    assert msgspec.msgpack.decode(packed(odd)) == {**row, "odd": "1e999"}
    assert packed(b"{}") == msgspec.msgpack.encode({})
