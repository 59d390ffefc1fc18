"""Room: records. SQL that names tables of users: every name is quoted, whatever is in it."""

import re
from collections.abc import Iterable

from moorline.catalog.statements import statement

SCHEMA = "moorline_records"
OWN_COLUMNS = frozenset({"moor_seq", "moor_xid", "moor_made", "moor_owner"})
"""What a registered table has of ours."""

HIDDEN_COLUMNS = frozenset({"moor_seq", "moor_xid", "moor_made"})
"""Those that are no column of a row for clients; its owner is one, like any owner."""

_PLACE = re.compile(r"\{([a-z_]+)\}")


def sql(name: str) -> str:
    """The text of `sql/NAME.sql` of this room."""
    return statement(name, "moorline.records")


def filled(template: str, **parts: object) -> str:
    """The template with each `{name}` replaced. A name that is not given is a mistake of ours."""
    return _PLACE.sub(lambda match: str(parts[match[1]]), template)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text in SQL, for statements that take no parameters: definitions, and COPY."""
    escaped = text.replace("'", "''")
    if "\\" in escaped:
        return " E'" + escaped.replace("\\", "\\\\") + "'"
    return f"'{escaped}'"


def listed(names: Iterable[str], prefix: str = "") -> str:
    return ", ".join(prefix + quoted(name) for name in names)


def full_name(schema: str, table: str) -> str:
    return f"{quoted(schema)}.{quoted(table)}"
