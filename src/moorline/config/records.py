"""Room: config. The section `[records]`: where tables of users are, and how long their logs are kept."""

import re
from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from moorline import limits
from moorline.config.problem import Problem, text_setting

DATABASE_FORM: Final = "NAME=FILE, with the postgresql:// address of the database in the file"
OWN_DATABASE: Final = "catalog"
"""The Postgres of the catalog, which needs no file."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class DatabaseFile(NamedTuple):
    """A database whose tables are served, and the file that its address, with its password, is in."""

    name: str
    file: str

    @staticmethod
    def parsed(text: str) -> "DatabaseFile":
        """ValueError says what is wrong with it. The text is not quoted: somebody may have put an address
        there."""
        name, sign, file = text.partition("=")
        if not sign or not file or not _NAME.fullmatch(name) or "://" in file:
            raise ValueError(f"accepted: {DATABASE_FORM}")
        if name == OWN_DATABASE:
            raise ValueError(f'"{OWN_DATABASE}" is the catalog\'s own, and is always served')
        return DatabaseFile(name, file)


class Records(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[records]`."""

    databases: Annotated[
        list[str],
        text_setting(
            "Databases whose registered tables this node serves, beside those of the catalog's own.",
            f"a list of {DATABASE_FORM}",
        ),
    ] = msgspec.field(default_factory=list)
    log_life_s: Annotated[
        int,
        Meta(
            ge=1,
            le=10**7,
            description="Age at which a line of a table's log goes. Who comes back later is reconciled.",
        ),
    ] = limits.RECORDS_LOG_LIFE_S

    def database_files(self) -> tuple[DatabaseFile, ...]:
        return tuple(DatabaseFile.parsed(text) for text in self.databases)

    def problems(self) -> Iterator[Problem]:
        names: set[str] = set()
        for text in self.databases:
            try:
                one = DatabaseFile.parsed(text)
            except ValueError as error:
                yield Problem(("databases",), str(error))
                continue
            if one.name in names:
                yield Problem(("databases",), f'"{one.name}" is listed twice; list it once')
            names.add(one.name)
