"""Room: records. The statements that make a table a registered one. Pure: nothing is asked here."""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from moorline.errors import TableRefused
from moorline.limits import RECORDS_LOG_ROWS_MAX, RECORDS_NAME_CHARACTERS_MAX
from moorline.records.naming import filled, literal, quoted, sql
from moorline.records.table_facts import TableFacts

TABLE_COLUMNS = sql("table_columns")
STAMP = sql("stamp")
STAMP_MADE = sql("stamp_made")
STAMP_LINE = sql("stamp_line")
STAMP_DECLARED = sql("stamp_declared")
LOG = sql("log")
NOTIFY = sql("notify")
TRUNCATE = sql("truncate")
OWNER = sql("owner")
REGISTRATION_ADD = sql("registration_add")
GRANTS = sql("grants")
GRANTS_LOG = sql("grants_log")

OWNER_COLUMN = "moor_owner"
MADE_COLUMN = ",\n    add column moor_made xid8 not null default '0'"
LOG_LIMIT = (
    "pg_catalog.pg_sequence_last_value('moorline_records.log_limit_{n}'::pg_catalog.regclass)"
)
LOCK_CLASS = int.from_bytes(b"moor")
"""The first number of our advisory locks; the number of the table is added."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class Parent(msgspec.Struct, frozen=True):
    """A table that owns rows of another one."""

    facts: TableFacts
    column: str
    """Who owns it, and with it its children."""
    child_columns: tuple[str, ...]
    """By which its children name it."""
    own_columns: tuple[str, ...]
    """Those that they name."""

    @property
    def shown(self) -> str:
        """As it is kept: the quoted name of the table, and the bare one of the column."""
        return f"{self.facts.name}.{self.column}"

    @property
    def owner_type(self) -> str:
        column = self.facts.column(self.column)
        assert column is not None, "it was checked"
        return column.type + (f" collate {column.collation}" if column.collation else "")


class Wanted(msgspec.Struct, frozen=True):
    """What `moor records add` was asked for."""

    table: str
    """As in SQL: with quotes where a name needs them."""
    key: tuple[str, ...]
    owner: str | None = None
    owner_from: str | None = None
    """`parent.column`, in place of an owner."""
    filters: tuple[str, ...] = ()
    capture: Literal["log", "notify"] = "log"
    name: str = ""
    """That under which it is served; empty is its own."""
    log_rows_max: int = RECORDS_LOG_ROWS_MAX
    reader: str = ""
    """The role of the nodes, if it is another one: it gets what it needs."""


def definition(
    wanted: Wanted,
    facts: TableFacts,
    parent: Parent | None,
    number: int,
    *,
    salt: bytes,
    epoch: str,
    cluster: str,
) -> list[str]:
    name = _checked_name(wanted, facts)
    owner = OWNER_COLUMN if parent else wanted.owner
    scopes = _scopes(owner, wanted.filters)
    statements = []
    if parent is not None:
        statements.append(_owner(facts, parent, number))
    has_log = wanted.capture == "log"
    statements += [
        filled(
            TABLE_COLUMNS, table=facts.name, n=number, made_column=MADE_COLUMN if has_log else ""
        ),
        *_triggers(wanted, facts, parent, number, scopes),
        *(filled(TRUNCATE, leaf=leaf, n=number) for _, _, leaf in facts.leaves),
        filled(
            REGISTRATION_ADD,
            n=number,
            name=literal(name),
            relation=facts.oid,
            schema_name=literal(facts.schema_name),
            table_name=literal(facts.table_name),
            key=_literals(wanted.key),
            owner=literal(owner) if owner else "null",
            owner_from=literal(parent.shown) if parent else "null",
            parent=parent.facts.oid if parent else "null",
            filters=_literals(wanted.filters),
            capture=literal(wanted.capture),
            salt=salt.hex(),
            epoch=epoch,
            cluster=literal(cluster),
            log_rows_max=wanted.log_rows_max,
        ),
    ]
    if wanted.reader:
        statements.append(filled(GRANTS, role=quoted(wanted.reader), n=number, table=facts.name))
        if wanted.capture == "log":
            statements.append(filled(GRANTS_LOG, role=quoted(wanted.reader), n=number))
    return statements


def _checked_name(wanted: Wanted, facts: TableFacts) -> str:
    name = wanted.name or facts.table_name
    if not NAME.fullmatch(name) or len(name) > RECORDS_NAME_CHARACTERS_MAX:
        raise TableRefused(
            f"{name} cannot be the name that a table is served under: give it one of letters, "
            f"digits, _ . - with --name."
        )
    return name


def _scopes(owner: str | None, filters: Sequence[str]) -> list[str]:
    first = [owner] if owner else []
    return [*first, *(name for name in filters if name != owner)]


def _is_same(facts: TableFacts) -> str:
    generated = [column.name for column in facts.columns if column.generated == "s"]
    if not generated:
        return "new operator(pg_catalog.*=) old"
    # Before an update they are not there yet, so the rows are compared without them. By name: the function
    # must
    # not fail when one of them is dropped.
    without = (
        f"operator(pg_catalog.-) array[{_literals(generated)}]::pg_catalog.text[])::pg_catalog.text"
    )
    return f"(pg_catalog.to_jsonb(new) {without} operator(pg_catalog.=) (pg_catalog.to_jsonb(old) {without}"


def _triggers(
    wanted: Wanted, facts: TableFacts, parent: Parent | None, number: int, scopes: Sequence[str]
) -> list[str]:
    key = [quoted(name) for name in wanted.key]
    shared = {
        "n": number,
        "table": facts.name,
        "is_same": _is_same(facts),
        "is_same_key": _is_same_key(key),
        "named_columns": _named("old", (*wanted.key, *scopes)),
    }
    if wanted.capture == "notify":
        notify = filled(
            NOTIFY,
            **shared,
            named_new_columns=_named("new", wanted.key),
            new_keys=_each(key, "new.", "::text"),
            old_keys=_each(key, "old.", "::text"),
            old_scopes=_each([quoted(name) for name in scopes], "old.", "::text"),
        )
        return [filled(STAMP, **shared, declared="", stamp_made="", stamp_line=""), notify]
    columns = (*wanted.key, *scopes)
    names = [
        *(f"key_{at}" for at in range(1, len(key) + 1)),
        *(f"old_{at}" for at in range(1, len(scopes) + 1)),
    ]
    types = [_type(facts, parent, name) for name in columns]
    lines = shared | {
        "log_limit": filled(LOG_LIMIT, n=number),
        "log_names": ", ".join(names),
        "line_names": _each(names, "line."),
        "line_values": _assigned("line", names, "old", columns),
        "key_names": ", ".join(names[: len(key)]),
        "came_names": _each(names[: len(key)], "came."),
        "came_values": _assigned("came", names[: len(key)], "new", wanted.key),
    }
    log = filled(
        LOG,
        **lines,
        log_rows_max=wanted.log_rows_max,
        log_columns=",\n    ".join(
            f"{name} {type_}" for name, type_ in zip(names, types, strict=True)
        ),
    )
    stamp = filled(
        STAMP,
        **shared,
        declared=filled(STAMP_DECLARED, n=number),
        stamp_made=STAMP_MADE,
        stamp_line=filled(STAMP_LINE, **lines),
    )
    return [log, stamp]


def _assigned(to: str, names: Sequence[str], row: str, columns: Sequence[str]) -> str:
    pairs = zip(names, columns, strict=True)
    return " ".join(f"{to}.{name} := {row}.{quoted(column)};" for name, column in pairs)


def _type(facts: TableFacts, parent: Parent | None, name: str) -> str:
    if parent is not None and name == OWNER_COLUMN:
        return parent.owner_type
    column = facts.column(name)
    assert column is not None, f"{name} was checked"
    return column.type + (f" collate {column.collation}" if column.collation else "")


def _owner(facts: TableFacts, parent: Parent, number: int) -> str:
    pairs = [
        (quoted(child), quoted(own))
        for child, own in zip(parent.child_columns, parent.own_columns, strict=True)
    ]

    def text(of: str, names: Sequence[str]) -> str:
        """One text for one parent, on both sides: it chooses the lock."""
        return " || '/' || ".join(f"coalesce({of}.{name}::text, '')" for name in names)

    return filled(
        OWNER,
        n=number,
        table=facts.name,
        parent=parent.facts.name,
        owner_type=parent.owner_type,
        owner_column=quoted(parent.column),
        named_columns=" or ".join(f"new.{child} is null" for child, _ in pairs),
        lock_class=LOCK_CLASS + number,
        child_text=text("new", [child for child, _ in pairs]),
        parent_text=text("new", [own for _, own in pairs]),
        new_matches=" and ".join(f"parent.{own} = new.{child}" for child, own in pairs),
        child_matches=" and ".join(f"child.{child} = new.{own}" for child, own in pairs),
        fill_matches=" and ".join(f"child.{child} = parent.{own}" for child, own in pairs),
    )


def _is_same_key(key: Sequence[str]) -> str:
    return " and ".join(f"old.{name} operator(pg_catalog.=) new.{name}" for name in key)


def _named(row: str, names: Sequence[str]) -> str:
    """False whatever they are; what counts is that they are named."""
    return "false and " + " and ".join(f"{row}.{quoted(name)} is null" for name in names)


def _each(names: Sequence[str], prefix: str, suffix: str = "") -> str:
    return ", ".join(f"{prefix}{name}{suffix}" for name in names)


def _literals(names: Sequence[str]) -> str:
    return ", ".join(literal(name) for name in names)
