"""Room: access. A page of owners: those of the catalog, and old certificates with queues at this node."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from moorline.catalog.access import OwnerEntry
from moorline.wire.access import OwnerFacts


class OldOwner(NamedTuple):
    """A certificate that made queues before there were principals."""

    principal: str
    """Whose they are by now; empty if nobody claimed them and no operator mapped them."""
    queues: int


def owner_page(
    found: Sequence[OwnerEntry], old: Mapping[str, OldOwner], after: str, count: int
) -> tuple[OwnerFacts, ...]:
    """By name: `found` is the catalog's page behind `after`, `old` all that this node has."""
    entries = {one.name: one for one in found}
    # Behind a full page the catalog may have more: what comes later of ours is of the next one.
    last = found[-1].name if len(found) >= count else None
    here = {name for name in old if name > after and (last is None or name <= last)}
    page: list[OwnerFacts] = []
    for name in sorted(entries.keys() | here)[:count]:
        principal, queues = old.get(name, OldOwner("", 0))
        one = entries.get(name) or OwnerEntry(name, principal, 0, 0)
        page.append(OwnerFacts(name, one.principal or principal, one.sessions, one.groups, queues))
    return tuple(page)
