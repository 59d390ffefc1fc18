"""Nodes that are in the catalog, and nowhere else."""

from collections.abc import Sequence

from moorline.catalog import Catalog
from moorline.catalog.identity import Granted, Identities
from moorline.core.identity import Claim

LEASE_MS = 60_000


async def pretend(
    catalog: Catalog,
    name: str,
    *,
    node_id: bytes = b"",
    addresses: Sequence[str] = (),
    roles: Sequence[str] = ("broker",),
    http: str | None = None,
) -> Identities:
    """A node that serves; the same id again is the same node, started again in its folder."""
    node_id = node_id or name.encode()
    identities = Identities(catalog, node_id, b"incarnation of " + name.encode())
    claim = Claim((), f"lock of {node_id.hex()}")
    granted = await identities.claim(claim, name=name, home_wanted="", lease_ms=LEASE_MS)
    assert isinstance(granted, Granted)
    assert await identities.register(roles=roles, addresses=addresses, http=http, version="0.1.0")
    return identities
