"""Room: access. The nodes of the cluster and its secret, as the catalog said last; a while also without it.

Two nodes that lose their link while the catalog is away must find each other again: nobody can have left or
joined the cluster then by anything that this node could hear of. So what is known goes on for
`access.stale_ms`, as rights do, and behind that nobody is a node any more.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from moorline.core.access.freshness import Freshness, Knowledge
from moorline.core.access.node_proof import ClusterSecrets
from moorline.limits import PROOF_CATALOG_MS_MAX
from moorline.net.clock import boot_ms

T = TypeVar("T")


class NodeSource(Protocol):
    """The catalog."""

    async def secrets(self) -> ClusterSecrets: ...

    async def node_homes(self) -> frozenset[str]: ...


class KnownNodes:
    """Of one cluster. What it raises is what the catalog raised: nobody can say."""

    def __init__(
        self,
        source: NodeSource,
        *,
        revocation_ms: int,
        stale_ms: int,
        now_ms: Callable[[], int] = boot_ms,
    ) -> None:
        self._source = source
        self._now_ms = now_ms
        self._times = {"revocation_ms": revocation_ms, "stale_ms": stale_ms}
        self._knowledge: Knowledge | None = None
        self._homes: frozenset[str] = frozenset()
        self._secrets = ClusterSecrets(b"")
        self._told_ms = 0
        self._is_silent = False
        """Whether the catalog did not answer when it was last asked: nobody waits for it then."""

    async def secrets(self) -> ClusterSecrets:
        """As they are now: the one before ends also while the catalog is away."""
        await self._hear()
        return self.secrets_known()

    def secrets_known(self) -> ClusterSecrets:
        """As the catalog said last."""
        known = self._secrets
        left_ms = known.before_left_ms - (self._now_ms() - self._told_ms)
        return known if left_ms > 0 else ClusterSecrets(known.current)

    async def homes(self) -> frozenset[str]:
        await self._hear()
        return self._homes

    async def look(self) -> frozenset[str]:
        """The homes as the catalog has them now; raises if it does not answer."""
        asked_ms = self._now_ms()
        try:
            homes, told = await in_time(self._asked())
        except Exception:
            self._is_silent = True
            raise
        self._is_silent = False
        self._homes, self._secrets, self._told_ms = homes, told, asked_ms
        if self._knowledge is None:
            self._knowledge = Knowledge(**self._times, asked_ms=asked_ms)
        self._knowledge.heard(asked_ms)
        return homes

    async def _hear(self) -> None:
        """Returns when what is known may be used."""
        if self._is_silent and self._is_known():
            return
        try:
            await self.look()
        except Exception:
            if not self._is_known():
                raise

    async def _asked(self) -> tuple[frozenset[str], ClusterSecrets]:
        # The homes first: a secret that was changed since they left is not one that they know.
        homes = await self._source.node_homes()
        return homes, await self._source.secrets()

    def _is_known(self) -> bool:
        known = self._knowledge
        return known is not None and known.freshness(self._now_ms()) is not Freshness.EXPIRED


async def in_time(asked: Coroutine[Any, Any, T]) -> T:
    """A catalog that hangs is one that is away: whoever waits is to hear so before its time is over."""
    asking = asyncio.create_task(asked)
    asking.add_done_callback(_forget)
    done, _ = await asyncio.wait([asking], timeout=PROOF_CATALOG_MS_MAX / 1_000)
    if not done:
        # It is not waited for: a statement that is cancelled asks the catalog once more.
        asking.cancel()
        raise TimeoutError("the catalog does not answer")
    return asking.result()


def _forget(asking: "asyncio.Task[Any]") -> None:
    """Whoever asked may be gone by then."""
    if not asking.cancelled():
        asking.exception()
