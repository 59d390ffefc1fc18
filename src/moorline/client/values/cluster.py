"""Room: client. The resolvers of one list, what they are to have, and the clusters that they refer to."""

import asyncio
import logging
from collections.abc import Sequence
from random import Random

from moorline.client.values.entry_exchange import SharedEntries
from moorline.client.values.members import Home, Member
from moorline.config.addresses import Address, listen_address
from moorline.core.directory.path import is_at_or_below
from moorline.core.directory.published import PublishedPaths
from moorline.limits import REFERRALS_MAX
from moorline.wire.resolver import Referral

log = logging.getLogger("moorline.client")


class Cluster:
    """The resolvers of one list, what they are to have, and the clusters that they refer to."""

    def __init__(
        self, addresses: Sequence[Address], home: Home, chance: Random, depth: int = 0
    ) -> None:
        self.published = PublishedPaths()
        self.entries = SharedEntries(self.published)
        self._home = home
        self._chance = chance
        self._depth = depth
        self.members = [Member(self, address, home, chance) for address in addresses]
        self._referred: dict[tuple[str, tuple[str, ...]], Cluster] = {}

    def start(self) -> None:
        for member in self.members:
            member.start()

    def everybody(self) -> list[Member]:
        """Members of this one, and of those that it refers to."""
        found = list(self.members)
        for cluster in self._referred.values():
            found += cluster.everybody()
        return found

    def change(self, wanted: dict[str, int | None]) -> None:
        new = self.published.change(wanted)
        if not new:
            return
        for member in self.members:
            member.changed(new)
        for (root, _), cluster in self._referred.items():
            # What is new there is refused here first, and comes by that; what goes, goes there too.
            gone = {path: None for path, flags in new.items() if flags is None}
            cluster.change({path: None for path in gone if is_at_or_below(path, root)})

    def refer(self, referral: Referral, path: str, flags: int) -> None:
        if self._depth >= REFERRALS_MAX:
            log.error("%s is referred more than %d times: clusters in a ring?", path, REFERRALS_MAX)
            return
        key = (referral.path, referral.addresses)
        cluster = self._referred.get(key)
        if cluster is None:
            try:
                addresses = [listen_address(text) for text in referral.addresses]
            except ValueError as error:
                log.error("the referral for %s names no address: %s", referral.path, error)
                return
            cluster = Cluster(addresses, self._home, self._chance, self._depth + 1)
            self._referred[key] = cluster
            cluster.start()
        cluster.change({path: flags})

    async def close(self) -> None:
        members = self.everybody()
        if members:
            await asyncio.wait([asyncio.create_task(member.close()) for member in members])
