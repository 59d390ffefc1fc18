"""Room: core/records. What happens to the feed of a table, and what it has done.

Subscriptions, connections, audiences, scans and steps go by numbers. `to` is a tuple that is made once
and shared: what goes to thousands is one effect and is encoded once.
"""

from enum import Enum

import msgspec

from moorline.core.effects import Effect, Event
from moorline.core.records.cursor import TableCursor
from moorline.core.records.filter import Filter
from moorline.core.records.permit import Permit
from moorline.core.records.scan_room import ScanRoom
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.table import After, Change, Key, Table
from moorline.core.sets.digest import Digest

To = tuple[int, ...]


class How(Enum):
    """How a subscription is synced."""

    REPLAY = "replay"
    DIGEST = "digest"
    IDS = "ids"
    FULL = "full"
    LIVE = "live"


class Wanted(msgspec.Struct, frozen=True):
    """A subscription as it came: its cursor is of this filter and permit, or it has none."""

    filter: Filter
    permit: Permit
    rights_version: int
    cursor: TableCursor | None = None
    otherwise: How = How.FULL
    """Where there is no replay: by what the client says it knows."""


# --- events ---------------------------------------------------------------------------------------


class Subscribed(Event, frozen=True):
    subscription: int
    connection: int
    wanted: Wanted
    principal: str = ""


class Unsubscribed(Event, frozen=True):
    subscription: int


class ConnectionGone(Event, frozen=True):
    connection: int


class StepBegun(Event, frozen=True):
    """`TakeStep` has a snapshot; the table is as it is there."""

    until: Snapshot
    table: Table


class ChangesRead(Event, frozen=True):
    changes: tuple[Change, ...]


class StepEnded(Event, frozen=True):
    """All were read. Its snapshot can be shared until the effects of this are done."""

    room: ScanRoom = ScanRoom()


class StepFailed(Event, frozen=True):
    pass


class Resync(Event, frozen=True):
    """In a step: what came before says nothing of it (another epoch, TRUNCATE, the bound of the log)."""

    why: str


class ScanRead(Event, frozen=True):
    """Rows of a full scan."""

    scan: int
    rows: tuple[tuple[Key, After], ...]


class ScanEnded(Event, frozen=True):
    """The digest of all that it saw. A full scan is over with it; of others each subscription by itself."""

    scan: int
    digest: Digest


class SyncDone(Event, frozen=True):
    """A replay (with the digest rolled forward), or the questions of one client, are over.

    It names its scan: the subscription may have been put into another one meanwhile.
    """

    scan: int
    subscription: int
    digest: Digest


class ScanFailed(Event, frozen=True):
    scan: int


class RightsHeard(Event, frozen=True):
    """There is a newer version of rights: nothing more is sent by the older one."""

    version: int


class PermitsLooked(Event, frozen=True):
    """What each subscription may see by a version of rights."""

    version: int
    permits: dict[int, Permit]


class BufferFull(Event, frozen=True):
    subscription: int


class Drained(Event, frozen=True):
    subscription: int


class Tick(Event, frozen=True):
    pass


# --- effects --------------------------------------------------------------------------------------


class TakeStep(Effect, frozen=True):
    """Read what changed behind a snapshot; None: there is none yet, and nothing to be read."""

    since: Snapshot | None


class BeginScan(Effect, frozen=True):
    """At the snapshot of the step that has just ended. A replay is of one subscription, from its cursor."""

    scan: int
    how: How
    audience: int
    step: int
    snapshot: Snapshot
    to: To
    since: Snapshot | None = None
    digest: Digest | None = None
    principal: str = ""
    """Of the first of them: whose place it takes."""


class CancelScan(Effect, frozen=True):
    scan: int


class StartSync(Effect, frozen=True):
    to: To
    how: How


class SendRows(Effect, frozen=True):
    """Deletions, then records: one encoding for all of `to`, with the columns of their audience."""

    to: To
    audience: int
    deletions: tuple[Key, ...]
    records: tuple[tuple[Key, After], ...]


class EndSync(Effect, frozen=True):
    """With a cursor at this snapshot, which is the same for all of `to`."""

    to: To
    audience: int
    snapshot: Snapshot
    digest: Digest


class LookAtPermits(Effect, frozen=True):
    version: int
    to: To


class Boot(Effect, frozen=True):
    """Cut, like by any fault; it may return behind that time."""

    subscription: int
    why: str
    return_ms: int


class Refuse(Effect, frozen=True):
    """This subscription and no other of its connection."""

    subscription: int
    why: str
    return_ms: int
