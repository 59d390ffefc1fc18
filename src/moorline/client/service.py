"""Room: client. A service as a user of the library sees it: all its queues in one subscription, and no drift.

    async with moor.service("service.sqlite") as service:
        await service.associate([queue.id])
        async for message in service:
            await message.ack()

Entering verifies that this side and the node mean the same queues, and repairs whatever differs, before any
other command of the service is sent. `service.report` says what was found and what it cost.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from types import TracebackType

import numpy as np

from moorline.client.associations import Associations
from moorline.client.own_list import OwnList, Refusal, can_be_id
from moorline.client.queue import Message
from moorline.client.service_exchange import Exchange, Report, made
from moorline.core.effects import Effect, Event
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.prefix import Prefix
from moorline.core.sets.reconcile import (
    Agreed,
    Asker,
    Begin,
    GiveUp,
    ListsAnswered,
    RangesAnswered,
    Repair,
    Repaired,
)
from moorline.core.sets.reconcile import AskLists as ListsWanted
from moorline.core.sets.reconcile import AskRanges as RangesWanted
from moorline.core.sets.reconcile import AskVerify as VerifyWanted
from moorline.core.sets.sketch import Salt, Words
from moorline.errors import Drifting, SubscriptionEnded
from moorline.ids import text_of
from moorline.net.caller import Caller
from moorline.net.clock import monotonic_ms
from moorline.wire.message import Message as WireMessage
from moorline.wire.queue import Delivery
from moorline.wire.service import (
    AllDelivered,
    CloseService,
    OpenService,
    PayloadBlock,
    ServiceEnded,
    ServiceOpened,
)
from moorline.wire.service_operator import ListServiceQueues, ServiceQueuesListed


class Service(Exchange):
    """A service on one node, and this side's list of its queues."""

    def __init__(
        self, caller: Caller, associations: Associations, *, window: int, bind: bool = False
    ) -> None:
        super().__init__(caller, window)
        self.all_delivered = asyncio.Event()
        """Set when of every queue in which messages waited the first `window` have come (ALLS)."""
        self.is_closed = False
        self._associations = associations
        self._list = OwnList(associations, is_bound=bind)
        self._is_opening = self._is_open = False
        self._deliveries: deque[Delivery] = deque()
        self._refused: list[Refusal] = []
        # The lock of the specification: no other command of the service until the two sides agree.
        self._agreement = asyncio.Lock()
        self.settled = asyncio.Event()
        """Set unless an agreement is under way; acknowledgements wait for it."""
        self.settled.set()

    async def __aenter__(self) -> "Service":
        try:
            await self.agree()
        except BaseException:
            await self._leave()
            raise
        return self

    def close(self) -> None:
        """Closes our list, after what is under way. The connection is a plain one again.

        What was not acknowledged comes again, to whoever subscribes next.
        """
        if self._is_opening and not self.is_closed and self._caller.is_open:
            self._caller.cast(CloseService)
        self.is_closed = True
        self._list.thread.close()

    async def _leave(self) -> None:
        self._caller.check_loop()
        self.close()
        await self._list.thread.closed()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._leave()

    # --- what users do ----------------------------------------------------------------------------

    async def associate(self, queues: Sequence[bytes]) -> list[bytes]:
        """These queues are the service's from now on; returns those that the node refused.

        They are in our list before the node is asked: if the reply is lost, or we are, or this is
        cancelled, the next agreement repeats it.
        """
        async with self._agreement:
            await self._list.add(queues)
            refused = [queue for queue, _ in await self._associate(queues)]
            if refused:
                await self._list.remove(refused)
            return refused

    async def dissociate(self, queues: Sequence[bytes]) -> None:
        """These queues are the service's no longer."""
        async with self._agreement:
            await self._list.remove(queues)
            hashes = await asyncio.to_thread(_highs, queues)
            await self._dissociate([Prefix(64, high) for high in hashes])

    async def agree(self) -> Report:
        """Verifies that both sides mean the same queues; repairs what differs. Others wait meanwhile."""
        self._caller.check_loop()
        async with self._agreement:
            self.settled.clear()
            try:
                return await self._agree()
            finally:
                # Also where it failed: whoever waits is to hear why from the node, not to hang.
                self.settled.set()

    @contextlib.asynccontextmanager
    async def subscribing(self, queue: bytes) -> AsyncIterator[None]:
        """A SUB of our connection: the node associates the queue, so our list has it first."""
        async with self._agreement, contextlib.AsyncExitStack() as stack:
            if self._is_open and not self.is_closed:
                self._check_ended()
                await stack.enter_async_context(self._list.added(queue))
            yield

    @contextlib.asynccontextmanager
    async def freeing(self, queue: bytes) -> AsyncIterator[None]:
        """A DEL or BLOCK of our connection takes the association away: when it is done, our list follows."""
        async with self._agreement:
            yield
            if self._is_open and not self.is_closed:
                await self._list.remove([queue])

    async def _open(self) -> ServiceOpened:
        self._is_opening = True
        opened = await self._call(OpenService, ServiceOpened)
        # What was pushed before is of a service that this connection has closed; it comes again.
        self._is_open = True
        self._salt = Salt(opened.salt)
        self._theirs = Digest(opened.count, opened.hash)
        return opened

    async def _agree(self) -> Report:
        self.report = Report()
        # Of an agreement that was cancelled: the node may think otherwise by now.
        self._refused = []
        opened = await self._open()
        name = self._caller.node.node if self._caller.node is not None else ""
        own, self.report.mended = await self._list.enter(opened.node, name)
        asker, is_restoring = Asker("service", own, self._salt), self._list.is_doubtful
        has_named, self._absent = False, 0
        event: Event = Begin()
        while True:
            (effect,) = await asyncio.to_thread(asker.handle, event, monotonic_ms())
            match effect:
                case Agreed() if self._absent and not has_named:
                    # The digests say nothing about queues that are gone: refusing them, the node names them.
                    has_named, is_restoring = True, False
                    await self._ask_for_all(own)
                case Agreed(digest):
                    self.report.lost = await self._list.settle(digest.count)
                    self.report.digest = digest
                    return self.report
                case GiveUp(why):
                    raise Drifting(why)
                case Repair(missing, extra) if extra and is_restoring:
                    # A list that failed its check takes nothing away: what it lacks comes back.
                    is_restoring = await self._restore(opened.service, len(missing), extra) > 0
                case _:
                    event = await self._perform(effect, own)
                    if not self._refused:
                        continue
            refused, self._refused = self._refused, []
            await self._list.let_go(refused)
            # Our own list has changed: what the asker knows of it is old.
            own = await self._list.thread.run(self._associations.id_set)
            asker, event = Asker("service", own, self._salt), Begin()

    async def _ask_for_all(self, own: IdSet) -> None:
        """Associates all of our queues once more."""
        await self._repair(own, np.arange(len(own), dtype=np.uint64), [])

    async def _restore(self, service: bytes, missing: int, extra: list[Prefix]) -> int:  # noqa: ARG002
        """Takes over what the node has, page by page; how many queues our list lacked."""
        self._list.check_restorable()
        name, after, before = text_of(service), b"", self.report.restored
        while True:
            make = made(ListServiceQueues, name, after)
            page = (await self._call(make, ServiceQueuesListed)).queues
            if not page:
                return self.report.restored - before
            self.report.restored += await self._list.add([one for one in page if can_be_id(one)])
            self.report.bytes_received += sum(map(len, page))
            after = page[-1]

    async def __aiter__(self) -> AsyncIterator[Message]:
        self._caller.check_loop()
        while True:
            while not self._deliveries:
                if self._ended is not None:
                    raise SubscriptionEnded("TAKEN_OVER")
                if self._caller.lost.done():
                    raise self._caller.lost.result()
                self._news.clear()
                await self._news.wait()
            yield Message(self._caller, self._deliveries.popleft(), self.settled)

    # --- what the node pushes ---------------------------------------------------------------------

    def hear(self, message: WireMessage) -> bool:
        """Takes what is meant for the service; False if it is not."""
        if not self._is_open:
            return isinstance(message, Delivery | PayloadBlock | AllDelivered | ServiceEnded)
        match message:
            case Delivery():
                self._deliveries.append(message)
            case PayloadBlock():
                self._blocks.append(message)
            case AllDelivered():
                self.all_delivered.set()
            case ServiceEnded(count, digest):
                self._ended = Digest(count, digest)
            case _:
                return False
        self._news.set()
        return True

    def connection_lost(self) -> None:
        self._news.set()

    # --- the reconciliation over the wire ---------------------------------------------------------

    async def _perform(self, effect: Effect, own: IdSet) -> Event:
        match effect:
            case VerifyWanted(digest, cells_min):
                return await self._verify(digest, cells_min, own)
            case RangesWanted(prefixes):
                return RangesAnswered(await self._ranges(prefixes))
            case ListsWanted(prefixes):
                return ListsAnswered(await self._lists(prefixes))
            case Repair(missing, extra):
                return Repaired(await self._repair(own, missing, extra))
            case _:
                raise AssertionError(f"nobody asks {effect}")

    async def _repair(self, own: IdSet, missing: Words, extra: list[Prefix]) -> Digest:
        if extra:
            await self._dissociate(extra)
        if len(missing):
            pages = iter(self._associations.queues_of(own, missing))
            while queues := await self._list.thread.run(next, pages, None):
                self._refused += await self._associate(queues)
        return self._told


def _highs(queues: Sequence[bytes]) -> list[int]:
    highs: list[int] = hash_ids(queues)[:, 0].tolist()
    return highs
