"""Room: config. The section `[records]`: where tables of users are, how often they are looked at, and
what clients may
cost."""

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, NamedTuple

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
    prune_ms: Annotated[
        int, Meta(ge=10, le=3_600_000, description="Time between two looks for such lines.")
    ] = 10_000
    poll_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=60_000,
            description="Pause between two looks at a table that changes. Without subscribers nobody looks.",
        ),
    ] = 5
    poll_ms_max: Annotated[
        int,
        Meta(ge=1, le=60_000, description="The longest pause, at a table that does not change."),
    ] = 50
    boot: Annotated[
        Literal["changed", "all"],
        Meta(
            description="Who is cut at a change of rights: those who may see other rows since, or everybody."
        ),
    ] = "changed"
    admitted_per_s: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Scans and replays of one table that begin in a second; equal ones count once.",
        ),
    ] = limits.RECORD_ADMITTED_PER_S
    connections_max: Annotated[
        int,
        Meta(ge=4, le=1_000, description="Connections of this node to one database of users."),
    ] = 16

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
        if self.poll_ms_max < self.poll_ms:
            yield Problem(
                ("poll_ms_max", "poll_ms"),
                f"it must not be below records.poll_ms ({self.poll_ms})",
            )
