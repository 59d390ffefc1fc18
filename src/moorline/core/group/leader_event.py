"""Room: core/group. What a Leader hears and what it asks for, apart from the messages of Borrowers."""

import msgspec

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect, Event
from moorline.core.stream import Extent, Shard


class LeaderOptions(msgspec.Struct, frozen=True):
    tick_ms: int = 500
    resend_ms: int = 1_000
    replan_ms: int = 50
    commit_ms: int = 20
    commit_retry_ms: int = 500
    borrower_ms: int = 5_000
    revoke_ms: int = 10_000
    idle_ms: int = 30_000
    deliveries_max: int = 5
    lock_ms: int = 30_000


# --- what it hears --------------------------------------------------------------------------------


class Led(Event, frozen=True):
    """The group is ours; begin."""


class LeaseHeld(Event, frozen=True):
    """The catalog has our lease until then, by our own clock."""

    until_ms: int


class ShardsSeen(Event, frozen=True):
    """These shards have these streams now, oldest first; `start` is for a shard never seen before."""

    shard_extents: tuple[tuple[Shard, tuple[Extent, ...], int], ...]


class Committed(Event, frozen=True):
    number: int


class CommitFailed(Event, frozen=True):
    """The catalog did not answer."""

    number: int


class Fenced(Event, frozen=True):
    """Another one leads."""


class Kick(Event, frozen=True):
    """The operator removes a member, by its name or its Borrower's id."""

    member: str


class Change(Event, frozen=True):
    """The operator has changed the limits of the group."""

    deliveries_max: int


class End(Event, frozen=True):
    """The group is deleted (DELETED) or was moved (SOUGHT), or the node stops (STOPPING)."""

    reason: str


# --- what it asks for -----------------------------------------------------------------------------


class Commit(Effect, frozen=True):
    """Store this, fenced by our epoch; answered by `Committed`, `CommitFailed` or `Fenced`."""

    number: int
    cursors: tuple[tuple[Shard, Cursor], ...]


class GapFound(Effect, frozen=True):
    """Messages of a shard were gone before the group had done them, and a member was told: said once."""

    shard: Shard
    first: int
    upto: int
    reason: str


class Stopped(Effect, frozen=True):
    """This Leader is over: IDLE, FENCED, LEASE, DELETED, SOUGHT or STOPPING."""

    reason: str
