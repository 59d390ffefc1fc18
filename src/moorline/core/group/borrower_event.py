"""Room: core/group. What a Borrower hears from its session and asks of it, apart from what Leaders say."""

import msgspec

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect, Event
from moorline.core.ranges import Range
from moorline.core.stream import Gap, Stream


class BorrowerTimes(msgspec.Struct, frozen=True):
    find_leader_ms: int = 500
    ping_ms: int = 1_000
    ping_timeout_ms: int = 3_000
    unsubscribe_ms: int = 5_000


# --- what the session tells it --------------------------------------------------------------------


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


# --- what it asks of the session ------------------------------------------------------------------


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
