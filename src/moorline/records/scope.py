"""Room: records. What a subscription may see and asked for, as a condition of Postgres."""

from moorline.core.records.filter import Filter, OneOf
from moorline.core.records.filter import Term as FilterTerm
from moorline.core.records.permit import Permit
from moorline.core.records.table import ScopeValue, Table
from moorline.records.condition import Condition, Term


def condition_of(table: Table, filter_: Filter, permit: Permit) -> Condition:
    terms = [_term(term) for term in filter_.terms]
    if not permit.is_everything:
        assert not permit.is_nothing, "whoever may see nothing does not subscribe"
        owners: tuple[ScopeValue, ...] = tuple(permit.owners)
        # Rows without an owner are among all but some, and not among some: so is null here.
        terms.append(Term(table.scopes[0], "not_in" if permit.is_all else "in", owners))
    return terms


def _term(term: FilterTerm) -> Term:
    name = term.column.name
    if isinstance(term, OneOf):
        nulls = (None,) if None in term.values else ()
        return Term(name, "in", nulls, term.texts)
    bounds: list[ScopeValue] = []
    if term.low is not None:
        bounds += [">=" if term.has_low else ">", term.low]
    if term.high is not None:
        bounds += ["<=" if term.has_high else "<", term.high]
    return Term(name, "range", tuple(bounds))
