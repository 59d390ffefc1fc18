"""Values are equal and in order here as they are in Postgres."""

import itertools
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.records.table import NAN, Column
from moorline.core.records.value import (
    ENDLESS,
    asked_value,
    base_of,
    cast_of,
    has_order,
    is_key_type,
    is_scope_type,
    key_text,
    text_of,
    value_of,
)
from moorline.errors import BadFilter
from moorline.limits import RECORD_VALUE_CHARACTERS_MAX


def column(type_: str, *, has_c: bool = False) -> Column:
    return Column("c", type_, has_c)


NUMERIC, DOUBLE, UUIDS = column("numeric(10,2)"), column("double precision"), column("uuid")
DATE, PLAIN = column("date"), column("timestamp without time zone")
ZONED, TEXT = column("timestamp(3) with time zone"), column("text", has_c=True)

SAMPLES: dict[Column, list[Any]] = {
    column("smallint"): [-32768, -1, 0, 1, "7", 32767],
    column("bigint"): [-(1 << 63), 0, "9223372036854775807", 12],
    column("boolean"): [True, False],
    column("numeric"): [
        0, -0.0, "1.0", 1, "1.00", "-1e-3", "0.1", 0.1, "1e300", "123456789012345678901234567890.5",
        "NaN", "nan", "Infinity", "-infinity", "1e131071", "0e50", ".5", "5.", "-0.10",
        "123456789012345678901234567890.50", 10, 100,
    ],
    DOUBLE: [0, -0.0, 1, 1.0, "1e300", 0.1, "NaN", "Infinity", "-Infinity", 5e-324, "1.5", -2],
    UUIDS: [
        "c0ffee00-0000-4000-8000-000000000001",
        "C0FFEE00-0000-4000-8000-000000000001",
        "c0ffee00000040008000000000000001",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    ],
    DATE: [
        "2024-02-29", "1970-01-01", "0001-01-01", "0001-12-31 BC", "4714-12-31 BC", "10000-01-01",
        "5874897-12-31", "infinity", "-infinity", "9999-12-31", "1999-12-31", "0004-02-29",
    ],
    PLAIN: [
        "2024-02-29T12:00:00.5", "2024-02-29 12:00:00.500000", "2024-02-29 12:00", "infinity",
        "-infinity", "0044-03-15 12:00:00 BC", "294276-12-31 23:59:59.999999", "1969-12-31 23:59:59",
    ],
    ZONED: [
        "2024-02-29T12:00:00Z", "2024-02-29T14:00:00+02:00", "2024-02-29 07:00:00.000-05",
        "2024-02-29 17:30:00.001+0530", "infinity", "-infinity", "0044-03-15 12:00:00+00 BC",
        "10000-01-01 00:00:00+00", "1890-01-01 00:00:00+05:53:28",
    ],
    TEXT: ["", "a", "A", "ä", "Z", "\U0001f600", "\uffff", "a ", "ab", "%", "a/b", "..", "\u00e9", "e\u0301"],
}  # fmt: skip


@pytest.mark.process
async def test_equality_and_order_are_those_of_postgres(dsn: str) -> None:
    """Each pair of samples, compared by both; and each text leads to the value that it was made of."""
    connection = await asyncpg.connect(dsn)
    try:
        for kind, samples in SAMPLES.items():
            values = [asked_value(kind, one) for one in samples]
            texts = [text_of(kind, one) for one in values]
            cast = cast_of(kind) + (' collate "C"' if base_of(kind.type) == "text" else "")
            rows = await connection.fetch(
                f"select (a.t::{cast} = b.t::{cast}) as is_equal, (a.t::{cast} < b.t::{cast}) as is_below"
                " from unnest($1::text[]) with ordinality as a (t, n),"
                " unnest($1::text[]) with ordinality as b (t, n) order by a.n, b.n",
                texts,
            )
            for (one, other), row in zip(itertools.product(values, repeat=2), rows, strict=True):
                assert (one == other) == row["is_equal"], (kind, one, other)
                assert (one < other) == row["is_below"], (kind, one, other)  # type: ignore[operator]
            # The samples as they were said mean the same to Postgres.
            said = [str(one).lower() if isinstance(one, bool) else str(one) for one in samples]
            is_same = await connection.fetchval(
                f"select bool_and(a::{cast} = b::{cast}) from unnest($1::text[], $2::text[]) as u (a, b)",
                said,
                texts,
            )
            assert is_same, kind
    finally:
        await connection.close()


@pytest.mark.process
async def test_what_asyncpg_gives_has_the_form_of_its_text(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    beyond = ("BC", "10000", "5874897", "294276", "9999", "1890", "0001")
    try:
        await connection.execute("set timezone = 'Asia/Kolkata'")
        for kind, samples in SAMPLES.items():
            # Python's calendar ends where that of Postgres goes on: those come as texts.
            texts = [str(one) for one in samples if not any(part in str(one) for part in beyond)]
            cast = cast_of(kind)
            rows = await connection.fetch(
                f"select t::{cast} as given, (t::{cast})::text as text, to_json(t::{cast}) #>> '{{}}' as json"
                " from unnest($1::text[]) as t",
                texts,
            )
            for row in rows:
                assert value_of(kind, row["given"]) == value_of(kind, row["text"]), (kind, row)
                assert value_of(kind, row["given"]) == value_of(kind, row["json"]), (kind, row)
    finally:
        await connection.close()


@pytest.mark.process
async def test_a_key_is_written_as_postgres_writes_it(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for kind, samples in SAMPLES.items():
            if not is_key_type(kind):
                continue
            texts = [key_text(kind, one) for one in samples]
            cast = cast_of(kind)
            written = await connection.fetch(
                f"select (t::{cast})::text as w from unnest($1::text[]) as t",
                [str(s) for s in samples],
            )
            assert texts == [row["w"] for row in written], kind
    finally:
        await connection.close()


def test_one_is_one_and_nan_is_nan() -> None:
    assert (
        asked_value(NUMERIC, "1.00") == asked_value(NUMERIC, 1) == value_of(NUMERIC, Decimal("1.0"))
    )
    assert value_of(NUMERIC, Decimal("NaN")) == value_of(DOUBLE, float("nan")) == NAN
    assert value_of(NUMERIC, 0.1) == asked_value(NUMERIC, "0.1")
    assert str(value_of(DOUBLE, -0.0)) == "0.0"
    assert value_of(DATE, date.max) == ENDLESS == value_of(ZONED, datetime.max.replace(tzinfo=UTC))
    assert value_of(DATE, date.min) == -ENDLESS == value_of(PLAIN, datetime.min)
    assert value_of(UUIDS, UUID("C0FFEE00-0000-4000-8000-000000000001")) == asked_value(
        UUIDS, "c0ffee00-0000-4000-8000-000000000001"
    )
    assert value_of(TEXT, None) is None
    assert asked_value(TEXT, None) is None


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4), st.integers(0, 3))
def test_equal_numbers_have_one_text(number: Decimal, zeros: int) -> None:
    longer = Decimal(f"{number:f}" + ("0" * zeros if "." in f"{number:f}" else ""))
    one, other = value_of(NUMERIC, number), value_of(NUMERIC, longer)
    assert one == other
    assert hash(one) == hash(other)
    assert text_of(NUMERIC, one) == text_of(NUMERIC, other)
    assert asked_value(column("numeric"), text_of(NUMERIC, one)) == one


@given(st.datetimes(timezones=st.timezones()))
def test_a_time_is_the_same_in_every_zone(at: datetime) -> None:
    value = value_of(ZONED, at)
    assert value == value_of(ZONED, at.astimezone(UTC)) or at.year in (1, 9999)
    assert isinstance(value, int)


@given(st.integers(-2_440_588, 2_145_042_905))
def test_days_go_to_text_and_back(days: int) -> None:
    assert asked_value(DATE, text_of(DATE, days)) == days
    assert value_of(DATE, text_of(DATE, days)) == days


@given(st.sampled_from(sorted(SAMPLES, key=str)), st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.integers()),
    st.dictionaries(st.text(), st.integers()), st.from_regex(r"[0-9:TZ+. -]{0,30}"),
))  # fmt: skip
def test_whatever_is_asked_is_a_value_or_refused_by_name(kind: Column, given_: object) -> None:
    try:
        value = asked_value(kind, given_)
    except BadFilter as error:
        refused = str(error)
    else:
        said = text_of(kind, value) if value is not None and kind.type != "boolean" else value
        assert asked_value(kind, said) == value
        return
    assert refused.startswith("c cannot be ")
    assert ": accepted is " in refused


@pytest.mark.parametrize(
    ("kind", "given_"),
    [
        (column("smallint"), 32768),
        (column("integer"), True),
        (column("integer"), 1.0),
        (column("bigint"), "1_000"),
        (column("bigint"), "\u0661"),
        (column("boolean"), "true"),
        (column("boolean"), 1),
        (DOUBLE, 10**400),
        (DOUBLE, "1e999"),
        (DOUBLE, float("nan")),
        (column("numeric"), "1e131072"),
        (column("numeric"), "1e-16384"),
        (column("numeric"), "0x10"),
        (UUIDS, "c0ffee"),
        (DATE, "2023-02-29"),
        (DATE, "0000-01-01"),
        (DATE, "tomorrow"),
        (PLAIN, "2024-01-01T00:00:00Z"),
        (ZONED, "2024-01-01T00:00:00"),
        (ZONED, "2024-01-01T24:00:00Z"),
        (ZONED, "2024-01-01T00:00:00.1234567Z"),
        (ZONED, "2024-01-01T00:00:00+16"),
        (TEXT, "a\0b"),
        (TEXT, "\ud800"),
        (TEXT, "x" * (RECORD_VALUE_CHARACTERS_MAX + 1)),
        (TEXT, 5),
        (TEXT, ["a"]),
    ],
)
def test_what_is_not_accepted_says_what_is(kind: Column, given_: object) -> None:
    with pytest.raises(BadFilter, match="accepted is"):
        asked_value(kind, given_)


@pytest.mark.parametrize(
    "type_", ["character(3)", "json", "integer[]", "real", '"char"', "interval"]
)
def test_types_that_compare_otherwise_are_no_filters(type_: str) -> None:
    assert not is_scope_type(column(type_))
    assert not is_key_type(column(type_))
    with pytest.raises(BadFilter, match="nothing is filtered"):
        asked_value(column(type_), "x")


def test_text_has_an_order_by_bytes_only() -> None:
    assert has_order(TEXT)
    assert not has_order(column("text"))
    assert not has_order(column("character varying(20)"))
    assert has_order(ZONED)
    assert not has_order(column("json"))
    assert cast_of(column("character varying(20)")) == "text"


def test_what_cannot_come_from_a_column_is_a_mistake() -> None:
    for kind, given_ in ((TEXT, 1), (column("integer"), True), (DATE, b"x"), (TEXT, [])):
        with pytest.raises(ValueError, match="for c, which is"):
            value_of(kind, given_)


def test_keys_have_bounds() -> None:
    assert key_text(UUIDS, UUID(int=1)) == "00000000-0000-0000-0000-000000000001"
    assert key_text(DATE, date(2024, 2, 29)) == "2024-02-29"
    for given_ in (None, "x" * 2_000, 1.5):
        with pytest.raises(BadFilter):
            key_text(TEXT, given_)
    with pytest.raises(BadFilter, match="which is no key"):
        key_text(NUMERIC, 1)
