"""Room: records. Which rows are meant, as SQL.

    Term("workspace_id", "in", (1, 2, None))        one of these, or null
    Term("workspace_id", "not_in", (7,))            none of these; null is none of these
    Term("created", "range", (">=", 10, "<", 20))   between bounds; null is outside
    Term("state", "null")                           null

A condition is a sequence of terms that all hold. Values are in their one form (core/records/value.py).
They are written into the text, quoted: COPY takes no parameters.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from moorline.core.records.table import Column, ScopeValue
from moorline.core.records.value import cast_of, text_of
from moorline.records.naming import literal

COMPARISONS = frozenset({">=", ">", "<=", "<"})


class Term(NamedTuple):
    column: str
    kind: Literal["in", "not_in", "range", "null"]
    values: tuple[ScopeValue, ...] = ()
    texts: Sequence[str] = ()
    """Of `in` and `not_in`: values that are texts already."""


Condition = Sequence[Term]


def condition_sql(condition: Condition, columns: Mapping[str, tuple[Column, str]]) -> str:
    """Never null. `columns` has the description of each column, and how the statement names it."""
    return " and ".join(f"({_term(term, *columns[term.column])})" for term in condition) or "true"


def _term(term: Term, column: Column, name: str) -> str:
    match term.kind:
        case "null":
            return f"{name} is null"
        case "in":
            return _in(term, column, name)
        case "not_in":
            return f"not ({_in(term, column, name)})"
        case "range":
            pairs = list(zip(term.values[::2], term.values[1::2], strict=True))
            assert pairs, "a range has a bound"
            assert all(operator in COMPARISONS for operator, _ in pairs)
            bounds = " and ".join(
                f"{name} {operator} {_value(column, value)}" for operator, value in pairs
            )
            return f"{name} is not null and {bounds}"


def _in(term: Term, column: Column, name: str) -> str:
    texts = [text_of(column, value) for value in term.values if value is not None]
    texts += term.texts
    parts = []
    if texts:
        array = ", ".join(map(literal, texts))
        # Never null, so that its opposite is not either.
        parts.append(
            f"{name} is not null and {name} = any (array[{array}]::text[]::{cast_of(column)}[])"
        )
    if None in term.values:
        parts.append(f"{name} is null")
    return " or ".join(f"({part})" for part in parts) or "false"


def _value(column: Column, value: ScopeValue) -> str:
    return f"{literal(text_of(column, value))}::{cast_of(column)}"
