"""Room: queues. What people are told of queues: one of them with its facts, and lists of them."""

import asyncio
from collections.abc import Awaitable, Callable

from moorline.core.queue.queue import Queue
from moorline.errors import ConfigError, HomeAway, NotFound
from moorline.journal.queues.store import Store
from moorline.net.session import Session
from moorline.net.session_rights import SessionRights
from moorline.net.slices import in_slices
from moorline.queues.owners import QueueOwners
from moorline.queues.queue_list import QueueState, listed
from moorline.wire.message import Answer
from moorline.wire.queue import (
    DescribeQueue,
    ListQueues,
    QueueDescribed,
    QueueFacts,
    QueuesListed,
)


class QueueDescriptions:
    """Answers from the store; nothing is changed."""

    def __init__(self, store: Store, owners: QueueOwners, found: Callable[[bytes], Queue]) -> None:
        self._store = store
        self._owners = owners
        self._found = found
        self.whereabouts: (
            Callable[[SessionRights, bytes], Awaitable[NotFound | HomeAway]] | None
        ) = None
        """What is said of a queue that is not here, if the catalog may be asked for it."""

    async def describe(self, session: Session, call: DescribeQueue) -> Answer:
        try:
            queue = self._found(call.queue)
        except NotFound:
            if self.whereabouts is None:
                raise
            raise await self.whereabouts(session.rights, call.queue) from None
        # What the index counts may not be there any more: the files say what can be delivered.
        unreadable = await self._unreadable(queue)
        queue = self._found(call.queue)
        return QueueDescribed(
            call.call,
            queue=queue.id,
            waiting=queue.size - unreadable,
            stored=max(0, queue.stored - unreadable),
            is_subscribed=queue.is_subscribed,
            is_suspended=queue.suspended,
            is_blocked=queue.blocked,
            is_damaged=queue.damaged,
            is_over_quota=not queue.can_write,
            created_s=queue.created_s,
            owner=self._owners.name_of(queue),
            unreadable=unreadable,
            is_closed=queue.closed,
            messages_max=self._store.options.queue_messages_max,
            bytes=queue.bytes,
        )

    async def _unreadable(self, queue: Queue) -> int:
        """Reads its files a slice at a time, as long as they are nobody else's."""
        look = self._store.files.unreadable(queue)
        while queue.id not in self._store.mending and self._store.find(queue.id) is queue:
            try:
                next(look)
            except StopIteration as done:
                return int(done.value)
            await asyncio.sleep(0)
        return 0

    async def list(self, session: Session, call: ListQueues) -> Answer:
        principal = session.rights.principal
        found = await in_slices(
            listed(self._store, call.after, call.count, _wanted(call.only)), principal
        )
        return QueuesListed(
            call.call,
            len(self._store),
            [(queue.id, _waiting(queue)) for queue in found.queues],
            [self._facts(queue) for queue in found.queues] if call.has_facts else [],
            found.upto,
            self._store.options.queue_messages_max,
        )

    def _facts(self, queue: Queue) -> QueueFacts:
        return QueueFacts(
            _waiting(queue),
            queue.bytes,
            queue.is_subscribed,
            queue.suspended,
            queue.blocked,
            queue.damaged,
            not queue.can_write,
            queue.closed,
            queue.created_s,
            self._owners.name_of(queue),
        )


def _wanted(text: str) -> QueueState:
    try:
        return QueueState(text)
    except ValueError:
        known = ", ".join(one.value for one in QueueState if one.value)
        raise ConfigError(f"{text!r} is no state of queues; accepted: {known}, or none") from None


def _waiting(queue: Queue) -> int:
    return 0 if queue.damaged else queue.size
