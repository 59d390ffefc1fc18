"""Room: queues. The queues of a node, listed page by page, in steps (net.slices)."""

from collections.abc import Generator, Iterator
from enum import Enum
from heapq import merge
from typing import NamedTuple, assert_never

from moorline.core.queue.queue import NODES_OWN, Queue
from moorline.journal.queues.index import Index
from moorline.journal.queues.store import Store
from moorline.limits import QUEUES_LOOKED_AT_MAX

_SORTED_AT_ONCE = 1_024
_ROWS_AT_ONCE = 16


class QueueState(Enum):
    """What a list of queues may be narrowed to."""

    ALL = ""
    WAITING = "waiting"
    """Something waits in it."""
    FULL = "full"
    """Its quota turns senders away."""
    SHUT = "shut"
    """Blocked, suspended, or closed by its owner."""
    DAMAGED = "damaged"
    """Set aside."""


class Listed(NamedTuple):
    queues: list[Queue]
    upto: bytes
    """The last that was looked at."""


def listed(
    store: Store, after: bytes, count: int, only: QueueState = QueueState.ALL
) -> Generator[None, None, Listed]:
    """Those that people made, behind that id and in order, if they are as they are wanted.

    The index, and what is not in it yet, are those of the first step: a checkpoint meanwhile moves queues
    from one to the other. A queue that is there all the time is listed once.
    """
    index, fresh = store.index, store.fresh()
    runs: list[list[bytes]] = []
    for start in range(0, len(fresh), _SORTED_AT_ONCE):
        some = fresh[start : start + _SORTED_AT_ONCE]
        runs.append(sorted(one for one in some if one > after))
        yield
    found: list[Queue] = []
    upto = after
    for number, queue_id in enumerate(merge(_indexed(index, after), *runs)):
        if number % _ROWS_AT_ONCE == 0:
            yield
        if number == QUEUES_LOOKED_AT_MAX:
            break
        upto = queue_id
        queue = store.glance(queue_id)
        if queue is None or store.owners[queue.owner] == NODES_OWN or not _is(queue, only):
            continue
        found.append(queue)
        if len(found) == count:
            break
    return Listed(found, upto)


def _is(queue: Queue, wanted: QueueState) -> bool:
    match wanted:
        case QueueState.ALL:
            return True
        case QueueState.WAITING:
            return not queue.damaged and queue.size > 0
        case QueueState.FULL:
            return not queue.can_write
        case QueueState.SHUT:
            return queue.blocked or queue.suspended or queue.closed
        case QueueState.DAMAGED:
            return queue.damaged
        case _:
            assert_never(wanted)


def _indexed(index: Index, after: bytes) -> Iterator[bytes]:
    while page := index.page(after, _ROWS_AT_ONCE):
        yield from page
        after = page[-1]
