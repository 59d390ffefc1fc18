"""Filters are parsed within bounds, and say the same to Postgres and to the node."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.records.tables import TABLE

from moorline.core.records.filter import Condition, parse_filter
from moorline.core.records.table import NAN, Scopes
from moorline.errors import BadFilter
from moorline.limits import RECORD_WHERE_VALUES_MAX

ROW: Scopes = (1, "NEW", Decimal("10.0"), "b")


@pytest.mark.parametrize(
    ("where", "fits"),
    [
        ({}, True),
        ({"workspace": 1}, True),
        ({"workspace": "1"}, True),
        ({"workspace": 2}, False),
        ({"workspace": [2, 1]}, True),
        ({"workspace": []}, False),
        ({"workspace": None}, False),
        ({"workspace": [None, 1]}, True),
        ({"workspace": 1, "state": "OLD"}, False),
        ({"state": "new"}, False),
        ({"size": 10}, True),
        ({"size": "10.00"}, True),
        ({"size": {">=": 10, "<": "10.01"}}, True),
        ({"size": {">": 10}}, False),
        ({"size": {"<=": 10}}, True),
        ({"size": {"<": 10}}, False),
        ({"size": {"<": "NaN"}}, True),
        ({"name": {">": "B", "<": "c"}}, True),
        ({"name": {">": "c"}}, False),
    ],
)
def test_what_fits(where: dict[str, Any], fits: bool) -> None:
    assert parse_filter(TABLE, where).matches(ROW) is fits


def test_null_and_nan_are_as_in_sql() -> None:
    null: Scopes = (None, None, None, None)
    assert parse_filter(TABLE, {"size": None}).matches(null)
    assert parse_filter(TABLE, {"size": [1, None]}).matches(null)
    assert not parse_filter(TABLE, {"size": {"<": 5}}).matches(null)
    assert not parse_filter(TABLE, {"size": {">": 5}}).matches(null)
    above: Scopes = (1, "", NAN, "")
    assert parse_filter(TABLE, {"size": "NaN"}).matches(above)
    assert parse_filter(TABLE, {"size": {">": "Infinity"}}).matches(above)
    assert not parse_filter(TABLE, {"size": {"<=": "Infinity"}}).matches(above)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"note": "x"}, "accepted are workspace, state, size, name"),
        ({"nothing": 1}, "is no filter of runs"),
        ({"workspace": "x"}, "workspace cannot be 'x': accepted is a whole number"),
        ({"workspace": [[1]]}, "workspace cannot be"),
        ({"state": {">": "a"}}, "only with collation C"),
        ({"size": {}}, "a range of size is"),
        ({"size": {"=": 1}}, "a range of size is"),
        ({"size": {">": 1, ">=": 2}}, "one end of each side"),
        ({"size": {">": None}}, "no end that is null"),
        ({"size": {">": 1, "<": 2, "<=": 2}}, "a range of size is"),
        ({"workspace": [1] * (RECORD_WHERE_VALUES_MAX + 1)}, "at most"),
        ({f"c{n}": 1 for n in range(17)}, "at most 16 columns"),
    ],
)
def test_what_is_refused_is_refused_by_name(where: dict[str, Any], words: str) -> None:
    with pytest.raises(BadFilter, match=words):
        parse_filter(TABLE, where)


def test_columns_have_the_key_and_their_order() -> None:
    assert parse_filter(TABLE, {}, ["note", "state", "note"]).columns == ("id", "state", "note")
    assert parse_filter(TABLE, {}).columns is None
    with pytest.raises(BadFilter, match="is no column of runs"):
        parse_filter(TABLE, {}, ["moor_seq"])


def test_equal_filters_have_one_hash_and_others_another() -> None:
    said: list[tuple[dict[str, Any], list[str] | None]] = [
        ({"workspace": [1, 2], "size": "1.0"}, None),
        ({"size": 1, "workspace": ["2", 1, 1]}, None),
    ]
    assert len({parse_filter(TABLE, where, columns).hash for where, columns in said}) == 1
    others: list[tuple[dict[str, Any], list[str] | None]] = [
        ({}, None), ({}, []), ({}, ["state"]), ({"workspace": 1}, None), ({"workspace": None}, None),
        ({"workspace": []}, None), ({"workspace": [1, None]}, None), ({"state": "1"}, None),
        ({"name": "1"}, None), ({"size": {">": 1}}, None), ({"size": {">=": 1}}, None),
        ({"size": {"<": 1}}, None), ({"size": {"<=": 1}}, None),
    ]  # fmt: skip
    hashes = {parse_filter(TABLE, where, columns).hash for where, columns in others}
    assert len(hashes) == len(others)
    assert {len(one) for one in hashes} == {16}


def test_what_sql_is_told() -> None:
    where = {"workspace": [2, None, 1], "state": None, "size": {">": 1, "<=": 2}, "name": []}
    assert [term.condition() for term in parse_filter(TABLE, where).terms] == [
        Condition("workspace", "integer", "in", ("1", "2"), or_null=True),
        Condition("state", "text", "null", (), or_null=True),
        Condition("size", "numeric", "range", bounds=((">", "1"), ("<=", "2"))),
        Condition("name", "text", "in", ()),
    ]


def test_an_index_takes_the_term_with_the_fewest_values() -> None:
    found = parse_filter(TABLE, {"workspace": [1, 2], "state": "NEW"}).equality()
    assert found is not None
    assert found.place == 1
    assert parse_filter(TABLE, {"size": {">": 1}}).equality() is None


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
)


@given(st.dictionaries(st.sampled_from([*TABLE.scopes, "x"]), json, max_size=4))
def test_whatever_comes_is_a_filter_or_refused(where: dict[str, Any]) -> None:
    try:
        found = parse_filter(TABLE, where)
    except BadFilter:
        return
    found.matches(ROW)
    msgspec.msgpack.encode([term.condition() for term in found.terms])
