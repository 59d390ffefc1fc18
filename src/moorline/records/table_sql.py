"""Room: records. The statements that read one table, at one version of its columns. Pure: texts in, texts
out."""

import json
from collections.abc import Sequence

from moorline.core.records.snapshot import Snapshot
from moorline.core.records.table import Column, Key, Table
from moorline.core.records.value import base_of
from moorline.limits import RECORD_ROW_BYTES_MAX
from moorline.records.condition import Condition, condition_sql
from moorline.records.naming import filled, literal, quoted, sql
from moorline.records.registration import Registration

STATE = sql("state")
IDENTITY = sql("identity").rstrip().rstrip(";")
HAS_CHANGES_LOG = sql("has_changes_log")
HAS_TRUNCATION = sql("has_truncation")
FIRST_LINES = sql("first_lines")
DELETIONS = sql("deletions")
UPSERTS = sql("upserts")
PUT_THERE = sql("upserts_put_there")
CHANGED = sql("upserts_changed")
SCAN_KEYS = sql("scan_keys")
SCAN_ROWS = sql("scan_rows")
PAGE = sql("page")
ROW_TEXT = sql("row_text")
FUTURE = sql("future")
FUTURE_LINES = sql("future_lines")
KEYS_THERE = sql("keys_there")
ROWS_THERE = sql("rows_there")
IS_ASKED = sql("is_asked")
LOG_LINES = sql("log_lines")

SAFE_INTEGER = (1 << 53) - 1
"""Beyond it JSON of browsers rounds: such numbers are texts."""


class TableSql:
    """`scopes` describes the scope columns, our own among them; `table.columns` what clients may read."""

    def __init__(
        self,
        registration: Registration,
        table: Table,
        scopes: Sequence[Column],
        base_types: dict[str, str],
        made: str,
    ) -> None:
        """`made` is the column of who put a row there: `moor_made`, or, where that is not kept,
        `moor_xid`, of who wrote it last. Either is right; with the second an update writes to all
        indexes."""
        self.registration = registration
        self.table = table
        self.scopes = tuple(scopes)
        self._name = registration.table
        self._key = [quoted(name) for name in table.key]
        self._key_types = [base_types[name] for name in table.key]
        self._base_types = base_types
        self._made = made
        keys = range(1, len(table.key) + 1)
        self._log_keys = [f"key_{at}" for at in keys]
        self._log_scopes = [f"old_{at}" for at in range(1, len(self.scopes) + 1)]

    def state(self, since: Snapshot | None) -> str:
        number, has_log = self.registration.n, self.registration.capture == "log"
        parts = {"n": number, "table": self._name, "made": self._made}
        parts |= self._behind(since) if since else {}
        return filled(
            STATE,
            n=number,
            name=literal(self.registration.name),
            identity=IDENTITY,
            log_n=filled(LOG_LINES, n=number) if has_log else "null::bigint",
            has_truncation=filled(HAS_TRUNCATION, **parts) if since and has_log else "false",
            has_changes=filled(HAS_CHANGES_LOG, **parts) if since and has_log else "false",
        )

    def future(self, now: Snapshot) -> str:
        has_log = self.registration.capture == "log"
        lines = filled(FUTURE_LINES, n=self.registration.n, xmax=now.xmax) if has_log else "false"
        return filled(FUTURE, table=self._name, made=self._made, xmax=now.xmax, has_lines=lines)

    def deletions(self, since: Snapshot, condition: Condition, upto: Key = ()) -> str:
        """Of all keys, or of those up to one."""
        return filled(
            DELETIONS,
            first_values=", ".join(
                f"f.{name}::text" for name in (*self._log_keys, *self._log_scopes)
            ),
            first_lines=self._first_lines(since, upto),
            was_meant=self._was_meant(condition),
            table=self._name,
            same_key=self._same_key(),
        )

    def upserts(self, since: Snapshot, condition: Condition, upto: Key = ()) -> str:
        is_meant, was_meant = self._is_meant(condition), self._was_meant(condition)
        told = [self._row_values(), "t.moor_seq", f"({is_meant})"]
        told += [f"coalesce(f.was and ({was_meant}), false)", "f.prev_seq"]
        told += [f"f.{name}::text" for name in self._log_scopes]
        parts = {
            "row_told": ", ".join([*told, "told.text", "told.whole_bytes"]),
            "table": self._name,
            "row_text": self._row_text(None),
            "same_key": self._same_key(),
            "made": self._made,
            "made_behind": self._behind(since)["made_behind"],
            "row_upto": self._compared([f"t.{name}" for name in self._key], "<=", upto),
            "is_meant": is_meant,
            "was_meant": was_meant,
        }
        return filled(
            UPSERTS,
            first_lines=self._first_lines(since, upto),
            put_there=filled(PUT_THERE, **parts),
            changed=filled(CHANGED, **parts),
        )

    def scan_keys(self, condition: Condition, since: Snapshot | None) -> str:
        is_meant = self._is_meant(condition)
        if since is not None:
            is_meant = f"({is_meant}) and ({self._behind(since)['row_behind']})"
        return filled(SCAN_KEYS, key_values=self._key_values(), table=self._name, is_meant=is_meant)

    def scan_rows(
        self, condition: Condition, keys: Sequence[Key] | None, columns: Sequence[str] | None
    ) -> str:
        return filled(
            SCAN_ROWS,
            key_values=self._key_values(),
            table=self._name,
            row_text=self._row_text(columns),
            is_meant=self._is_meant(condition),
            is_asked="true" if keys is None else self._is_asked(keys),
        )

    def page(
        self, condition: Condition, columns: Sequence[str] | None, after: Key, rows_max: int
    ) -> str:
        names = [f"t.{name}" for name in self._key]
        return filled(
            PAGE,
            key_values=self._key_values(),
            table=self._name,
            row_text=self._row_text(columns),
            is_meant=self._is_meant(condition),
            is_after=self._compared(names, ">", after),
            key_names=", ".join(names),
            rows_max=rows_max,
        )

    def keys_there(self, keys: Sequence[Key]) -> str:
        return filled(
            KEYS_THERE,
            key_values=self._key_values(),
            table=self._name,
            is_asked=self._is_asked(keys),
        )

    def rows_there(self, keys: Sequence[Key]) -> str:
        """Like `upserts`, of rows whose keys are known, without what they were."""
        return filled(
            ROWS_THERE,
            row_values=self._row_values(),
            row_text=self._row_text(None),
            table=self._name,
            is_asked=self._is_asked(keys),
        )

    def _compared(self, names: Sequence[str], operator: str, key: Key) -> str:
        """As Postgres orders keys, column by column. True of no key."""
        if not key:
            return "true"
        values = [
            f"{literal(text)}::{_cast(type_)}"
            for text, type_ in zip(key, self._key_types, strict=True)
        ]
        return f"({', '.join(names)}) {operator} ({', '.join(values)})"

    def _first_lines(self, since: Snapshot, upto: Key = ()) -> str:
        return filled(
            FIRST_LINES,
            n=self.registration.n,
            key_names=", ".join(f"l.{name}" for name in self._log_keys),
            log_names=", ".join(f"l.{name}" for name in (*self._log_keys, *self._log_scopes)),
            line_meant=self._compared([f"l.{name}" for name in self._log_keys], "<=", upto),
            **self._behind(since),
        )

    def _behind(self, since: Snapshot) -> dict[str, str]:
        return {
            "line_behind": _is_behind("l.xid", since),
            "prev_behind": _is_behind("l.prev_xid", since),
            "row_behind": _is_behind("t.moor_xid", since),
            "made_behind": _is_behind(f"t.{self._made}", since),
        }

    def _scope_names(self) -> list[str]:
        return [quoted(column.name) for column in self.scopes]

    def _row_values(self) -> str:
        return ", ".join(f"t.{name}::text" for name in (*self._key, *self._scope_names()))

    def _key_values(self) -> str:
        return ", ".join(f"t.{name}::text" for name in self._key)

    def _same_key(self) -> str:
        return " and ".join(
            f"t.{name} = f.{line}" for name, line in zip(self._key, self._log_keys, strict=True)
        )

    def _is_meant(self, condition: Condition) -> str:
        return condition_sql(
            condition, {one.name: (one, f"t.{quoted(one.name)}") for one in self.scopes}
        )

    def _was_meant(self, condition: Condition) -> str:
        names = zip(self.scopes, self._log_scopes, strict=True)
        return condition_sql(condition, {one.name: (one, f"f.{name}") for one, name in names})

    def _is_asked(self, keys: Sequence[Key]) -> str:
        arrays = ", ".join(
            f"array[{', '.join(literal(key[at]) for key in keys)}]::text[]::{_cast(type_)}[]"
            for at, type_ in enumerate(self._key_types)
        )
        names = ", ".join(f"t.{name}" for name in self._key)
        return filled(IS_ASKED, key_names=names, arrays=arrays)

    def _row_text(self, names: Sequence[str] | None) -> str:
        columns = [column.name for column in self.table.columns] if names is None else names
        return filled(
            ROW_TEXT,
            json_columns=self._json_columns(columns),
            named_values=", ".join(map(_named_value, columns)) or "(null, null)",
            row_bytes_max=RECORD_ROW_BYTES_MAX,
        )

    def _json_columns(self, names: Sequence[str]) -> str:
        return ", ".join(
            f"{_json_value(f't.{quoted(name)}', self._base_types[name])} as {quoted(name)}"
            for name in names
        )


def _json_value(name: str, base_type: str) -> str:
    """As JSON carries it without loss, in browsers too. All else as `row_to_json` has it: bytea as text in
    hex."""
    match base_of(base_type):
        case "numeric":
            return f"{name}::text"
        case "bigint":
            safe = f"{name} between -{SAFE_INTEGER} and {SAFE_INTEGER}"
            return f"case when {safe} then to_json({name}) else to_json({name}::text) end"
        case _:
            return name


def _named_value(name: str) -> str:
    """A name in JSON, and the value of that column."""
    shown = literal(json.dumps(name, ensure_ascii=False))
    return f"({shown}, coalesce(to_json(r.{quoted(name)})::text, 'null'))"


def _cast(type_: str) -> str:
    base = base_of(type_)
    return "text" if base == "character varying" else base


def _is_behind(name: str, since: Snapshot) -> str:
    text = f"{name} >= '{since.xmax}'::xid8"
    if since.open:
        numbers = ",".join(map(str, since.open))
        text += f" or {name} = any ('{{{numbers}}}'::xid8[])"
    return text
