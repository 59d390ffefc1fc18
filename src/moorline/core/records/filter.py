"""Room: core/records. Which rows of a table a client asks for, and which of their columns.

    where = {"state": ["NEW", "RUNNING"], "workspace_id": 1, "ended_at": None, "size": {">=": 10, "<": 20}}
    filter = parse_filter(table, where, columns=None)
    for _ in parsed(table, where, columns): ...      the same in steps
    filter.matches(scopes)           of a row's scope columns
    filter.hash                      16 bytes: equal for filters that say the same

A filter is a conjunction of *terms*, one for each column: it is one of some values, or null, or within a
range. Each value has the one form in which values of its column are compared (core/records/value.py), so
that a scan by Postgres and this agree. As in SQL, null is in no range.
"""

import hashlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from moorline.core.records.table import Column, Scopes, ScopeValue, Table
from moorline.core.records.value import asked_value, cast_of, has_order, text_of
from moorline.errors import BadFilter
from moorline.limits import RECORD_COLUMNS_MAX, RECORD_WHERE_COLUMNS_MAX, RECORD_WHERE_VALUES_MAX

HASH_BYTES: Final = 16
SIGNS: Final = (">", ">=", "<", "<=")


class Condition(NamedTuple):
    """A term as SQL needs it: texts, to be cast to `cast`."""

    column: str
    cast: str
    kind: str
    """`in`, `range` or `null`."""
    texts: tuple[str, ...] = ()
    """Of `in`; there may be none, which no row fits."""
    or_null: bool = False
    """Of `in`: null fits too."""
    bounds: tuple[tuple[str, str], ...] = ()
    """Of `range`: sign and text, one or two."""


class OneOf(msgspec.Struct, frozen=True):
    """The column is one of some values; null is one too, if it was asked for."""

    place: int
    """Of the column among the scopes of the table."""
    column: Column
    values: frozenset[ScopeValue]
    texts: tuple[str, ...] = ()
    """Those of the values but null, in their order: made once, since a number may have a thousand digits."""

    def fits(self, value: ScopeValue) -> bool:
        return value in self.values

    def condition(self) -> Condition:
        or_null = None in self.values
        kind = "null" if or_null and not self.texts else "in"
        return Condition(self.column.name, cast_of(self.column), kind, self.texts, or_null)


class Within(msgspec.Struct, frozen=True):
    """The column is within a range, of which an end may be missing."""

    place: int
    column: Column
    low: ScopeValue = None
    has_low: bool = True
    """Whether the end itself is in it."""
    high: ScopeValue = None
    has_high: bool = True

    def fits(self, value: ScopeValue) -> bool:
        # As in SQL: a comparison with null is not true.
        if value is None:
            return False
        if self.low is not None and (value < self.low or (not self.has_low and value == self.low)):  # type: ignore[operator]
            return False
        return self.high is None or not (
            value > self.high or (not self.has_high and value == self.high)  # type: ignore[operator]
        )

    def condition(self) -> Condition:
        bounds = []
        if self.low is not None:
            bounds.append((">=" if self.has_low else ">", text_of(self.column, self.low)))
        if self.high is not None:
            bounds.append(("<=" if self.has_high else "<", text_of(self.column, self.high)))
        return Condition(self.column.name, cast_of(self.column), "range", bounds=tuple(bounds))


Term = OneOf | Within


class Filter(msgspec.Struct, frozen=True):
    """Terms in the order of the table's scopes."""

    terms: tuple[Term, ...]
    columns: tuple[str, ...] | None
    """In the order of the table, with those of the key; None: all that there are."""
    hash: bytes = b""

    def matches(self, scopes: Scopes) -> bool:
        # A loop and not `all`: this is done for each change and each audience that it may be for.
        for term in self.terms:  # noqa: SIM110
            if not term.fits(scopes[term.place]):
                return False
        return True

    def equality(self) -> OneOf | None:
        """The term by which an index finds this filter: that with the fewest values."""
        found = [term for term in self.terms if isinstance(term, OneOf)]
        return min(found, key=lambda term: len(term.values), default=None)


def parse_filter(
    table: Table, where: Mapping[str, Any], columns: Sequence[str] | None = None
) -> Filter:
    """BadFilter names what is not accepted, and what is instead."""
    steps = parsed(table, where, columns)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Filter = end.value
            return found


def parsed(
    table: Table, where: Mapping[str, Any], columns: Sequence[str] | None = None
) -> Generator[None, None, Filter]:
    """The same in steps: a client may ask for thousands of values, each of a thousand digits."""
    if len(where) > RECORD_WHERE_COLUMNS_MAX:
        raise BadFilter(f"a filter has at most {RECORD_WHERE_COLUMNS_MAX} columns")
    by_name = {column.name: column for column in table.columns}
    terms: list[Term] = []
    for name, asked in where.items():
        if name not in table.scopes or name not in by_name:
            accepted = ", ".join(table.scopes) or "none"
            raise BadFilter(f"{name[:64]!r} is no filter of {table.name}: accepted are {accepted}")
        terms.append((yield from _term(table.scopes.index(name), by_name[name], asked)))
    terms.sort(key=lambda term: term.place)
    chosen = None if columns is None else _chosen(table, columns)
    said = [[list(term.condition()) for term in terms], chosen]
    yield
    return Filter(tuple(terms), chosen, _hash(said))


def _term(place: int, column: Column, asked: Any) -> Generator[None, None, Term]:
    if isinstance(asked, Mapping):
        return _within(place, column, asked)
    if not isinstance(asked, list | tuple):
        asked = [asked]
    if len(asked) > RECORD_WHERE_VALUES_MAX:
        raise BadFilter(f"{column.name} has at most {RECORD_WHERE_VALUES_MAX} values in a filter")
    # A list of none is a filter that nothing fits: a page whose user has chosen nothing asks so.
    texts: dict[ScopeValue, str] = {}
    for one in asked:
        value = asked_value(column, one)
        if value not in texts:
            texts[value] = "" if value is None else text_of(column, value)
        yield
    ordered = sorted(text for value, text in texts.items() if value is not None)
    return OneOf(place, column, frozenset(texts), tuple(ordered))


def _within(place: int, column: Column, asked: Mapping[Any, Any]) -> Within:
    if not has_order(column):
        raise BadFilter(
            f"{column.name} has no ranges: text is compared by its bytes only with collation C"
        )
    if not 1 <= len(asked) <= 2 or any(sign not in SIGNS for sign in asked):
        raise BadFilter(f'a range of {column.name} is {{">=": a, "<": b}}, of {", ".join(SIGNS)}')
    lows = [sign for sign in asked if sign[0] == ">"]
    highs = [sign for sign in asked if sign[0] == "<"]
    if len(lows) > 1 or len(highs) > 1:
        raise BadFilter(f"a range of {column.name} has one end of each side")
    low = asked_value(column, asked[lows[0]]) if lows else None
    high = asked_value(column, asked[highs[0]]) if highs else None
    if (lows and low is None) or (highs and high is None):
        raise BadFilter(f"a range of {column.name} has no end that is null")
    return Within(place, column, low, lows != [">"], high, highs != ["<"])


def _chosen(table: Table, columns: Sequence[str]) -> tuple[str, ...]:
    if len(columns) > RECORD_COLUMNS_MAX:
        raise BadFilter(f"at most {RECORD_COLUMNS_MAX} columns")
    there = [column.name for column in table.columns]
    for name in columns:
        if name not in there:
            raise BadFilter(f"{name[:64]!r} is no column of {table.name}")
    # The key always: a record without it could not be applied.
    wanted = {*columns, *table.key}
    return tuple(name for name in there if name in wanted)


def _hash(said: Any) -> bytes:
    # Not XXH3: whoever chose a filter could make one that a cursor takes for another.
    return hashlib.blake2b(msgspec.msgpack.encode(said), digest_size=HASH_BYTES).digest()
