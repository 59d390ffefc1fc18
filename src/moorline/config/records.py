"""Room: config. The section `[records]`: which databases are served, how they are looked at, and what clients may cost."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from moorline import limits
from moorline.config.problem import Problem, text_setting

DATABASE_FORM: Final = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


class Records(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[records]`."""

    databases: Annotated[
        list[str],
        text_setting(
            "Databases whose registered tables this node serves, besides that of the catalog. A name that "
            "two have is that of the first.",
            f"a list of {DATABASE_FORM}",
        ),
        Meta(max_length=limits.RECORDS_DATABASES_MAX),
    ] = msgspec.field(default_factory=list)
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
    log_life_s: Annotated[
        int,
        Meta(
            ge=1,
            le=30 * 86_400,
            description="Age at which lines of a table's log go. Who comes back later is reconciled by digest.",
        ),
    ] = limits.RECORDS_LOG_LIFE_S
    prune_ms: Annotated[
        int, Meta(ge=10, le=3_600_000, description="Time between two looks for lines that are old.")
    ] = 10_000
    admitted_per_s: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Scans and replays that begin in a second, of one table; equal ones count once.",
        ),
    ] = limits.RECORD_ADMITTED_PER_S
    connections_max: Annotated[
        int,
        Meta(ge=4, le=1_000, description="Connections of this node to one database of users."),
    ] = 16

    def problems(self) -> Iterator[Problem]:
        for text in self.databases:
            if not text.startswith("postgresql://"):
                yield Problem(("databases",), f"accepted: a list of {DATABASE_FORM}")
        if self.poll_ms_max < self.poll_ms:
            yield Problem(
                ("poll_ms_max", "poll_ms"),
                f"it must not be below records.poll_ms ({self.poll_ms})",
            )
