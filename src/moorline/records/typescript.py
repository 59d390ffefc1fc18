"""Room: records. The TypeScript types of a table's rows, as clients get them in JSON. Pure."""

import json
import re
from collections.abc import Iterable

from moorline.core.records.value import base_of
from moorline.records.naming import HIDDEN_COLUMNS
from moorline.records.table_facts import ColumnFacts

TYPES = {
    "smallint": "number",
    "integer": "number",
    # Beyond 2^53 a number would be rounded: those are texts.
    "bigint": "number | string",
    "real": 'number | "NaN" | "Infinity" | "-Infinity"',
    "double precision": 'number | "NaN" | "Infinity" | "-Infinity"',
    "boolean": "boolean",
    "json": "unknown",
    "jsonb": "unknown",
}
"""All others are texts."""

_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def typescript(name: str, columns: Iterable[ColumnFacts]) -> str:
    lines = [
        f"/** A row of {name}, as Moorline sends it. */",
        f"export interface {interface_name(name)} {{",
    ]
    for column in columns:
        if column.name not in HIDDEN_COLUMNS:
            written = (
                column.name
                if _NAME.fullmatch(column.name)
                else json.dumps(column.name, ensure_ascii=True)
            )
            null = "" if column.is_not_null else " | null"
            lines.append(f"  {written}: {_type(column.base_type)}{null};")
    return "\n".join([*lines, "}"]) + "\n"


def interface_name(name: str) -> str:
    words = [word for word in re.split(r"[^A-Za-z0-9]+", name) if word]
    joined = "".join(word[0].upper() + word[1:] for word in words) or "Row"
    return joined if joined[0].isalpha() else f"Table{joined}"


def _type(base_type: str) -> str:
    # Arrays of any depth are written alike by Postgres.
    if base_type.endswith("[]"):
        return "unknown[]"
    return TYPES.get(base_of(base_type), "string")
