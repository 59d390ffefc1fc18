"""For tests of one room behind a listener: a table of rights with given rows, and the guard."""

from collections.abc import Iterable

from tests.access.world import World

from moorline.access.guard import Declarations, Guard
from moorline.access.rights import Rights
from moorline.core.access.principal import LOOPBACK, Proof
from moorline.core.access.right import EVERYTHING, PUBLISH
from moorline.core.access.row import Row
from moorline.net.session import Handlers, Session

FIRST_ROWS = (
    Row("/", LOOPBACK, grants=EVERYTHING),
    Row("/queues", "@authenticated", grants=PUBLISH),
    Row("/services", "@authenticated", grants=PUBLISH),
)
"""Those of a fresh catalog, as far as queues and services go."""


def operator(name: str) -> Row:
    return Row("/", name, grants=EVERYTHING)


class Rowed:
    """The table of a node in a test, and what was refused by it."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.world = World(*FIRST_ROWS, *rows)
        self.refusals: list[tuple[str, str, str]] = []
        self.principals: dict[bytes, str] = {}
        """Of fingerprints whose principal is not the name in the certificate."""
        self.fingerprints: set[bytes] = set()
        """Of all certificates that came."""

    async def open(self) -> None:
        await self.world.table.refresh()

    async def change(self, *rows: Row) -> None:
        """Puts rows over what was there, and lets the table hear of it."""
        for row in rows:
            self.world.source.put(row)
        await self.world.table.refresh()

    def rights_of(self, session: Session) -> Rights:
        identity = session.identity
        if identity.proof is Proof.NOTHING:
            return self.world.table.rights("anonymous", Proof.NOTHING, is_local=True)
        self.fingerprints.add(identity.fingerprint)
        name = self.principals.get(identity.fingerprint, identity.name)
        return self.world.table.rights(name, Proof.CERTIFICATE, is_local=False)

    def guarded(self, *declared: Declarations) -> Handlers:
        together = {kind: one for part in declared for kind, one in part.items()}
        return Guard(self).guarded(together)

    def refused(self, _: object, /, act: str, path: str, code: str) -> None:
        self.refusals.append((act, path, code))
