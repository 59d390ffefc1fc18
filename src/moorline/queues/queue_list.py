"""Room: queues. The queues of a node, listed page by page, in steps (net.slices)."""

from collections.abc import Generator, Iterator
from heapq import merge

from moorline.core.queue.queue import NODES_OWN
from moorline.journal.queues.index import Index
from moorline.journal.queues.store import Store

_SORTED_AT_ONCE = 1_024
_ROWS_AT_ONCE = 16


def listed(
    store: Store, after: bytes, count: int
) -> Generator[None, None, list[tuple[bytes, int]]]:
    """Those that people made, behind that id and in order, each with what waits in it.

    The index, and what is not in it yet, are those of the first step: a checkpoint meanwhile moves queues
    from one to the other. A queue that is there all the time is listed once.
    """
    index, fresh = store.index, store.fresh()
    runs: list[list[bytes]] = []
    for start in range(0, len(fresh), _SORTED_AT_ONCE):
        some = fresh[start : start + _SORTED_AT_ONCE]
        runs.append(sorted(one for one in some if one > after))
        yield
    rows: list[tuple[bytes, int]] = []
    for number, queue_id in enumerate(merge(_indexed(index, after), *runs)):
        if number % _ROWS_AT_ONCE == 0:
            yield
        queue = store.glance(queue_id)
        if queue is None or store.owners[queue.owner] == NODES_OWN:
            continue
        rows.append((queue_id, 0 if queue.damaged else queue.size))
        if len(rows) == count:
            break
    return rows


def _indexed(index: Index, after: bytes) -> Iterator[bytes]:
    while page := index.page(after, _ROWS_AT_ONCE):
        yield from page
        after = page[-1]
