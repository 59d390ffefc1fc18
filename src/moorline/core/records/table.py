"""Room: core/records. What a node knows of a registered table, and what one of its rows did."""

from decimal import Decimal
from typing import Final, NamedTuple

import msgspec

from moorline.core.records.log_reach import LogReach
from moorline.core.records.snapshot import Snapshot


class NotANumber:
    """NaN as Postgres has it: equal to itself, and above all numbers. Python's is neither."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NotANumber)

    def __hash__(self) -> int:
        return 0x4E614E

    def __lt__(self, other: object) -> bool:
        return False

    def __le__(self, other: object) -> bool:
        return isinstance(other, NotANumber)

    def __gt__(self, other: object) -> bool:
        return not isinstance(other, NotANumber)

    def __ge__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "NaN"


NAN: Final = NotANumber()

ScopeValue = None | bool | int | float | str | Decimal | NotANumber
"""A value of a filter or owner column, in the one form in which values of its type are compared
(core/records/value.py makes it): equal in Postgres is equal here."""

Key = tuple[str, ...]
"""The text of each key column, as Postgres writes it."""

Scopes = tuple[ScopeValue, ...]
"""The values of a row in the scope columns, in their order."""


class Column(msgspec.Struct, frozen=True):
    name: str
    type: str
    """As `format_type` writes it: `bigint`, `text`, `numeric`."""
    has_c_collation: bool = False


class Table(msgspec.Struct, frozen=True):
    """A registered table, at one version of its schema."""

    name: str
    """That under which it is served, and of its paths: `/records/NAME`."""
    columns: tuple[Column, ...]
    """All that clients may read, in the order of the table; ours are not among them."""
    key: tuple[str, ...]
    scopes: tuple[str, ...]
    """The owner column, if there is one, and then those that may be filtered by."""
    has_owner: bool
    salt: int
    """64 bits: the seed of its row hashes."""
    epoch: str
    """Registration, cluster and timeline: of another one no snapshot says anything."""
    reach: LogReach = LogReach()
    """From which snapshots on its log tells all that is behind them."""
    rewritten: frozenset[tuple[str, str]] = frozenset()
    """Columns that were given other values by a statement that no trigger sees, and by which."""
    written: tuple[tuple[str, str], ...] = ()
    """Each column, and the transaction that described it last: one that gives it other values does so too."""
    attached: str = ""
    """Partitions that were tables of their own before, and since when: what happened there has no number."""


class Before(NamedTuple):
    """What a row was at the beginning of a step."""

    seq: int
    scopes: Scopes


class After(NamedTuple):
    """What it is at the end of it."""

    seq: int
    scopes: Scopes
    row: bytes
    """A JSON object of all columns, as Postgres writes it."""
    whole_bytes: int = 0
    """Of one that is more than any client takes: how long it is. Its longest columns are not in `row`."""


class Change(NamedTuple):
    """Net, for one key, over one step; never without both."""

    key: Key
    before: Before | None
    after: After | None


class Step(NamedTuple):
    """From one snapshot to the next; what changed comes with it, in parts, deletions first."""

    since: Snapshot
    until: Snapshot
