"""Room: client/records. A witness of a table: it hears the digest of its rows, and holds none of them.

    async with moor.witness("experiments") as witness:
        await witness.begun()
        print(witness.latest, witness.has_seen(digest))

It subscribes with a digest that is nobody's, asks the node for its own in the sync by digest that follows,
fetches nothing, and then hears the digest of each step. So a state of a table that was made elsewhere can be
compared with the table at any of the moments that the witness was there, for some hundred bytes. Rows that
change pass by. It sees what its principal may see, as every client does.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from moorline.client.records.listening import Listening
from moorline.client.records.settings import RecordSettings
from moorline.config.addresses import Address
from moorline.core.records.feed_events import How
from moorline.core.records.row_hash import NAME
from moorline.core.sets.digest import Digest
from moorline.errors import Malformed
from moorline.limits import RECORD_WITNESSED_MAX
from moorline.net.caller import Caller
from moorline.wire.records import (
    Fetch,
    FromNode,
    SyncEnd,
    SyncStart,
    TableSubscription,
    Told,
    Verify,
)

NOBODYS = Digest(1, b"\xa5" * 16)
"""What it says that it holds. Of a table with that digest it would hear so, which is as good."""


class TableWitness(Listening):
    """Made by `Moor.witness`; it comes back by itself, like a copy."""

    def __init__(
        self,
        dial: Callable[[], Awaitable[tuple[Caller, Address]]],
        table: str,
        settings: RecordSettings | None = None,
    ) -> None:
        super().__init__(dial, table, settings)
        self.salt: int | None = None
        """Of the hashes; another one behind a new registration."""
        self.latest: Digest | None = None
        self._seen: OrderedDict[Digest, None] = OrderedDict()

    def has_seen(self, digest: Digest) -> bool:
        """Whether the table had it at one of the last moments."""
        return digest in self._seen

    def wanted(self) -> TableSubscription:
        return TableSubscription(self.table, digest=bytes(NOBODYS))

    def hear(self, message: FromNode) -> None:
        match message:
            case SyncStart():
                self._start(message)
            case Told(sync, _, digest) if sync == self.sync and digest is not None:
                self._note(Digest.from_bytes(digest))
                self.say(Fetch(self.sync, self.table, []))
            case SyncEnd():
                self._note(Digest.from_bytes(message.digest))
                self.conclude(None)
            case _:
                pass  # a row that passes by

    def _start(self, start: SyncStart) -> None:
        if start.how == How.LIVE.value:
            return
        if start.hash != NAME or not start.salt:
            raise Malformed(f"a digest of {start.hash[:40]!r}, and we know {NAME}")
        salt = int(start.salt, 16)
        if salt != self.salt:
            # Digests with another salt say nothing about those with this one.
            self._seen.clear()
            self.salt, self.latest = salt, None
        if start.how == How.DIGEST.value:
            self.say(Verify(self.sync, self.table, bytes(NOBODYS), sketches=False))

    def _note(self, digest: Digest) -> None:
        self.latest = digest
        self._seen[digest] = None
        self._seen.move_to_end(digest)
        if len(self._seen) > RECORD_WITNESSED_MAX:
            self._seen.popitem(last=False)
