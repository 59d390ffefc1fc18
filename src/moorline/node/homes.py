"""Room: node. Where other homes are: for clients that want one by its name, and calls that are about one.

Queues say their home by their ids (`queues/homes.py`). Whoever publishes, or drains a node, knows a name.
Nobody learns more of it here than by a resolver.
"""

from moorline.access.guard import Declarations, demanded
from moorline.catalog import Catalog
from moorline.catalog.homes import Homes
from moorline.core.access.right import SUBSCRIBE
from moorline.errors import Elsewhere, NotFound
from moorline.limits import HOME_ADDRESSES_MAX
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.queues.homes import HOMES
from moorline.wire.cluster import FindHome, HomeFound


class HomeFinder:
    """Asks the catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._homes = Homes(catalog)
        self._turns = Turns()

    def declared(self) -> Declarations:
        return {FindHome: demanded(self._turns.spawned(self._find))}

    def close(self) -> None:
        self._turns.close()

    async def _find(self, session: Session, call: FindHome) -> HomeFound:
        found = await self.where(session, call.home)
        return HomeFound(call.call, call.home, found.addresses)

    async def where(self, session: Session, home: str) -> Elsewhere:
        """The redirect there; raises `NotFound` for a home that is unknown, away, or not for that client."""
        row = next((one for one in (await self._homes.all()).values() if one.name == home), None)
        if row is None or session.rights.denied(SUBSCRIBE, f"{HOMES}/{row.number.hex()}"):
            raise NotFound(f"there is no home {home!r}: `moor node list` shows them")
        if not row.is_alive:
            raise NotFound(f"the node of the home {home!r} does not answer now")
        text = f"the node {row.node!r} has the home {home!r}"
        return Elsewhere(text, home, tuple(row.addresses[:HOME_ADDRESSES_MAX]))
