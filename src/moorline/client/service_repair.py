"""Room: client. What a difference between a service's list and its node leads to.

The list decides: what the node lacks is associated, what it has besides is dissociated. What the node refuses
leaves the list. A list that failed its own check takes nothing away: what it lacks comes back from the node.
What is asked next, and after how many tries it is `Drifting`, is decided in `core/sets/asker.py`.
"""

from collections.abc import Callable, Sequence

from moorline.client.list_check import ListCheck
from moorline.client.list_thread import ListThread
from moorline.client.own_list import OwnPart, Refusal, can_be_id
from moorline.client.service_exchange import Report, ServiceExchange
from moorline.core.sets.digest import Digest
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.prefix import ALL, Prefix
from moorline.core.sets.sketch import Words
from moorline.net.reconcile import reconcile

Seen = Callable[[int, int], None]
"""Hears how many of how many queues are associated."""


def unseen(_done: int, _total: int) -> None:
    """For whoever shows no progress."""


class ServiceRepair:
    """A part of a service's list and its node, and how they come to agree."""

    def __init__(
        self,
        exchange: ServiceExchange,
        part: OwnPart,
        thread: ListThread,
        seen: Seen = unseen,
    ) -> None:
        self.list = part
        self.sent_home: set[bytes] = set()
        """The homes of queues that are not of this part, as its node has found: theirs are to agree anew."""
        self._thread = thread
        self._exchange = exchange
        self._seen = seen
        self._entered: IdSet | None = None
        """What entering has read, until the first comparison takes it."""
        self._is_restoring = False

    async def enter(self, found: ListCheck) -> IdSet:
        """The part of a list that was just checked."""
        own = await self.list.enter(found)
        self._entered, self._is_restoring = own, self.list.is_doubtful
        return own

    async def agree(self) -> Report:
        """Verifies that both sides mean the same queues, and repairs what differs."""
        exchange = self._exchange
        exchange.absent = 0
        digest = await self._reconciled()
        if exchange.absent:
            # The digests say nothing about queues that are gone: refusing them, the node names them.
            self._is_restoring = False
            own = await self.own_set()
            await self._associate(own, own.highs(ALL))
            digest = await self._reconciled()
        exchange.report.lost = await self.list.settle()
        exchange.report.digest = digest
        return exchange.report

    async def associate(self, queues: Sequence[bytes]) -> list[bytes]:
        """Those that the node refused; they have left the list."""
        refused = [queue for queue, _ in await self._exchange.associate(queues)]
        if refused:
            await self.list.forget(refused)
        await self._send_home()
        return refused

    async def _send_home(self) -> bool:
        elsewhere, self._exchange.elsewhere = self._exchange.elsewhere, []
        self.sent_home |= await self.list.send_home(elsewhere)
        return bool(elsewhere)

    async def _reconciled(self) -> Digest:
        exchange = self._exchange
        return await reconcile("service", exchange, self, exchange.salt, exchange.theirs)

    # --- as a reconciliation asks for it ----------------------------------------------------------

    async def own_set(self) -> IdSet:
        own, self._entered = self._entered, None
        if own is None:
            own = await self.list.id_set()
        return own

    async def repair(self, own: IdSet, missing: Words, extra: list[Prefix]) -> Digest | None:
        if extra and self._is_restoring:
            self._is_restoring = await self._restore() > 0
            return None
        if extra:
            await self._exchange.dissociate(extra)
        if len(missing) and await self._associate(own, missing):
            return None
        return self._exchange.theirs

    async def _associate(self, own: IdSet, highs: Words) -> bool:
        """Whether some have left the part: refused by the node, or of another home."""
        refused: list[Refusal] = []
        pages, done = iter(self.list.pages(own, highs)), 0
        while queues := await self._thread.run(next, pages, None):
            refused += await self._exchange.associate(queues)
            done += len(queues)
            self._seen(done, len(highs))
        if refused:
            await self.list.let_go(refused)
        return await self._send_home() or bool(refused)

    async def _restore(self) -> int:
        """Takes over what the node has, page by page; how many queues our list lacked."""
        self.list.check_restorable()
        report, before, after = self._exchange.report, self._exchange.report.restored, b""
        while page := await self._exchange.queues_behind(after):
            report.restored += await self.list.add([one for one in page if can_be_id(one)])
            after = page[-1]
        return report.restored - before
