"""Room: core/group. What the machines of a group hear and ask for, apart from what they say to each other.

    node      ── Led, LeaseHeld, ShardsSeen … ──►  Leader    ── Commit, GapFound, Stopped ──►  node
    session   ── Subscribed, StreamProgress … ──►  Borrower  ── Install, Retire, Remove … ──►  session

Messages between the two are in core/group/message.py: those cross a net that may lose them, these do not.
So every effect here is performed once, in order, and what it brought back is told once.
"""

import msgspec

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect, Event
from moorline.core.ranges import Range
from moorline.core.stream import Extent, Gap, Shard, Stream
from moorline.limits import GROUP_LOAD_LEAST

# Two orders between these times matter. A Borrower gives its Leader up (ping, ping timeout) before the
# Leader gives it up (`borrower_ms`), so that a stream is let go at the one end before it is granted at the
# other; and what is said again (`resend_ms`) is said several times within either.


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
    load_ms: int = 10_000
    """Between two looks at what streams carry; 0 is never."""
    load_least: int = GROUP_LOAD_LEAST


class BorrowerTimes(msgspec.Struct, frozen=True):
    find_leader_ms: int = 500
    ping_ms: int = 1_000
    ping_timeout_ms: int = 3_000
    unsubscribe_ms: int = 5_000


# --- what a Leader hears from its node ------------------------------------------------------------


class Led(Event, frozen=True):
    """The group is ours; begin."""


class LeaseHeld(Event, frozen=True):
    """The catalog has our lease until then, by our own clock."""

    until_ms: int


class ShardsSeen(Event, frozen=True):
    """These shards have these streams now, oldest first; `start` is for a shard never seen before."""

    shard_extents: tuple[tuple[Shard, tuple[Extent, ...], int], ...]


class EndsSeen(Event, frozen=True):
    """So far these shards have come now; it answers `LookAtEnds`."""

    ends: tuple[tuple[Shard, int], ...]


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


# --- what a Leader asks of its node ---------------------------------------------------------------


class Commit(Effect, frozen=True):
    """Store this, fenced by our epoch; answered by `Committed`, `CommitFailed` or `Fenced`."""

    number: int
    cursors: tuple[tuple[Shard, Cursor], ...]


class LookAtEnds(Effect, frozen=True):
    """How far have the shards come? Answered by `EndsSeen`."""


class GapFound(Effect, frozen=True):
    """Messages of a shard were gone before the group had done them, and a member was told: said once."""

    shard: Shard
    first: int
    upto: int
    reason: str


class Stopped(Effect, frozen=True):
    """This Leader is over: IDLE, FENCED, LEASE, DELETED, SOUGHT or STOPPING."""

    reason: str


# --- what a Borrower hears from its session -------------------------------------------------------


class Subscribed(Event, frozen=True):
    """The session has subscribed, or come back with the subscription."""


class Unsubscribed(Event, frozen=True):
    """The session does not want the group's messages any more."""


class Disconnected(Event, frozen=True):
    """The session goes, with what it last reported."""


class StreamProgress(Event, frozen=True):
    """So far the session is with a lease; `final` when nothing of it is out any more.

    `lost` are messages of it that were gone, and that the client knows to be; while `telling` it is about
    to know of more.
    """

    lease: int
    cursor: Cursor
    delivered: int
    final: bool
    returned: tuple[Range, ...] = ()
    lost: tuple[Gap, ...] = ()
    telling: bool = False


# --- what a Borrower asks of its session ----------------------------------------------------------


class Install(Effect, frozen=True):
    """Read this stream from there on, and report."""

    borrower: str
    lease: int
    stream: Stream
    cursor: Cursor
    deliveries_max: int
    ranges: tuple[Range, ...] | None


class Retire(Effect, frozen=True):
    """Deliver nothing more of this lease; report when nothing of it is out."""

    borrower: str
    lease: int


class Remove(Effect, frozen=True):
    """Forget this lease."""

    borrower: str
    lease: int


class Recreate(Effect, frozen=True):
    """This Borrower is over: make another one for its subscription."""

    borrower: str
    reason: str


class Destroyed(Effect, frozen=True):
    """This Borrower is over, as it was asked to be."""

    borrower: str
