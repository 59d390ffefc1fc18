"""Room: core/group. What a Borrower and a Leader say to each other: the names are the specification's.

Every message names the Borrower. What a Leader sends carries its epoch, and so does what a Borrower sends to
a Leader that it knows; a lease's number tells one grant of a stream from a later one. So a message that is
repeated, late, or from a Leader that was replaced is known for what it is.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.core.delivery.progress import Cursor, CursorRanges
from moorline.core.sets.digest import DIGEST_BYTES
from moorline.core.stream import Gap, HomeName, Stream
from moorline.limits import (
    BORROWER_LEASES_MAX,
    CODE_LENGTH_MAX,
    DISCONNECT_LOSSES_MAX,
    LEASE_LOSSES_MAX,
    MEMBER_LENGTH_MAX,
)

MemberName = Annotated[str, Meta(max_length=MEMBER_LENGTH_MAX)]
LeasesDigest = Annotated[bytes, Meta(max_length=DIGEST_BYTES)]
Losses = Annotated[tuple[Gap, ...], Meta(max_length=LEASE_LOSSES_MAX)]


# Arrays on the wire, with a number as tag: a group of many members says these all the time. Fields are only
# ever added at the end, with a default, so that nodes of two versions understand each other.
class GroupMessage(msgspec.Struct, frozen=True, array_like=True):
    borrower: MemberName


class FromBorrower(GroupMessage, frozen=True):
    pass


class FromLeader(GroupMessage, frozen=True):
    epoch: int


# --- from the Borrower ----------------------------------------------------------------------------


class LeaderWanted(FromBorrower, frozen=True, tag=1):
    """Who leads this group? `member` is the session's name, `window` how many messages it takes at once."""

    member: MemberName
    window: int


class Ping(FromBorrower, frozen=True, tag=2):
    """I live; `digest` is that of the leases I hold."""

    epoch: int
    number: int
    digest: LeasesDigest


class UpdateProgress(FromBorrower, frozen=True, tag=3):
    """So far I am; `cursor` is None where I never had the lease. `final`: I do nothing more with it.

    Nothing at or above `delivered` was handed out yet. `returned` are messages of a lease of ranges that
    others should have: all that were, so that a report that is lost takes nothing with it. So are `lost`:
    messages that were gone, and that my client was told of; the cursor has passed them.
    """

    epoch: int
    number: int
    lease: int
    cursor: Cursor | None
    delivered: int
    final: bool
    returned: CursorRanges = ()
    lost: Losses = ()


class RevokeFinished(FromBorrower, frozen=True, tag=4):
    """I have nothing of that lease any more; `lost` as in a report: the last one may have come too late."""

    epoch: int
    number: int
    lease: int
    lost: Losses = ()


class Disconnect(FromBorrower, frozen=True, tag=5):
    """I go; so far I was, lease by lease; `lost` as in a report, of those leases that lost anything."""

    epoch: int
    cursors: Annotated[tuple[tuple[int, Cursor], ...], Meta(max_length=BORROWER_LEASES_MAX)]
    lost: Annotated[tuple[tuple[int, Losses], ...], Meta(max_length=DISCONNECT_LOSSES_MAX)] = ()


# --- from the Leader ------------------------------------------------------------------------------


class LeaderConnectResponse(FromLeader, frozen=True, tag=11):
    """I lead, on that node."""

    leader: HomeName


class PingResponse(FromLeader, frozen=True, tag=12):
    """I heard you; `digest` is that of the last report of each lease that I have from you."""

    number: int
    digest: LeasesDigest


class Grant(FromLeader, frozen=True, tag=13):
    """That stream is yours from that cursor on; of a queue only these ranges of it."""

    lease: int
    stream: Stream
    cursor: Cursor
    deliveries_max: int
    ranges: CursorRanges | None = None


class Revoke(FromLeader, frozen=True, tag=14):
    """Finish what is out of that lease and tell me."""

    lease: int


class Revoked(FromLeader, frozen=True, tag=15):
    """I have your last word on that lease: forget it."""

    lease: int


class Invalidate(FromLeader, frozen=True, tag=16):
    """I do not know you (any more): begin anew."""

    reason: Annotated[str, Meta(max_length=CODE_LENGTH_MAX)]


# LeaderWanted has no epoch: whoever asks does not know a Leader yet.
BorrowerMessage = LeaderWanted | Ping | UpdateProgress | RevokeFinished | Disconnect
LeaderMessage = LeaderConnectResponse | PingResponse | Grant | Revoke | Revoked | Invalidate


def lease_item(lease: int, stream: Stream) -> bytes:
    """What the digest of held leases is made of."""
    # With the stream: after a change of Leaders the same number may be another stream's, and a digest of
    # numbers alone would agree.
    return f"{lease} {stream}".encode()


def report_item(lease: int, number: int) -> bytes:
    """What the digest of reports is made of."""
    return f"{lease} {number}".encode()
