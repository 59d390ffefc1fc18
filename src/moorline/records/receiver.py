"""Room: records. One subscription as the host of its table sees it: who hears of it, and what it has
still to be told."""

from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from moorline.core.records.feed_events import How
from moorline.core.records.filter import Filter
from moorline.core.records.known_ids import KnownIds
from moorline.core.records.snapshot import Snapshot
from moorline.core.sets.digest import Digest
from moorline.net.session_rights import SessionRights
from moorline.records.form import Form

if TYPE_CHECKING:
    from moorline.records.offer import Offer


class Hearer(Protocol):
    """A client's connection: `records.session.RecordSession`."""

    @property
    def number(self) -> int: ...
    @property
    def form(self) -> Form: ...
    @property
    def rights(self) -> SessionRights: ...
    @property
    def is_writable(self) -> bool:
        """False while more waits for it than it should."""

    def write(self, packet: Any, /) -> None: ...
    async def writable(self) -> None:
        """Returns when it reads again, or is gone."""

    def refuse(self, table: str, code: str, why: str, return_ms: int = 0) -> None: ...
    def boot(self, why: str) -> None: ...
    def ended(self, receiver: "Receiver") -> None:
        """A sync has ended, which it was told."""


class Resumes(Enum):
    """Whether a replay of nothing may be told in few bytes."""

    NOT = "not"
    WITH_CURSOR = "with cursor"
    WITHOUT_CURSOR = "without cursor"


class Receiver:
    __slots__ = (
        "asked_ms", "can_compare", "digest", "facts", "filter", "hearer", "is_asking", "known", "known_at",
        "needs_full", "number", "offer", "pending", "resumes", "sync", "table", "told",
    )  # fmt: skip

    def __init__(self, number: int, hearer: Hearer, sync: int, table: str, filter_: Filter) -> None:
        self.number = number
        self.hearer = hearer
        self.sync = sync
        self.table = table
        self.filter = filter_
        self.digest: Digest | None = None
        """What the client said that it holds."""
        self.resumes = Resumes.NOT
        self.facts = b""
        """Of who resumes: the hash of what it was told of the table, which may be another one by now."""
        self.known: KnownIds | None = None
        self.known_at: Snapshot | None = None
        """Of who says ids: what has not changed behind it, it holds as it is."""
        self.can_compare = True
        """Whether it can be asked to find out what differs: not by who says ids, and not by requests."""
        self.pending: How | None = None
        """A sync that has begun and of which nothing was said yet: it is told with what comes first."""
        self.told: How | None = None
        """The last sync that it was told of."""
        self.offer: Offer | None = None
        """What its questions are answered from, while it syncs by digest."""
        self.asked_ms = 0
        """When its last question was answered, or the offer was made."""
        self.is_asking = False
        """It was told of a sync by digest that has not ended: questions of it may be on their way."""
        self.needs_full = False
        """The columns are others: rows that have not changed are wanted too."""
