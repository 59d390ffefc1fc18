"""Room: queues. The traces of messages of queues: stored, given to a reader, acknowledged.

    send      from when the node had it until it answered
      commit  the group commit that made it durable
        deliver   from when it was stored until it left for a reader
          ack     until that reader was done with it

A message of a queue has no headers, so it begins a trace of its own, and which are traced follows from their
ids (`core/trace.py`). Where no collector is set none of this exists: who delivers and acknowledges is another
one then, and knows nothing of it.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from moorline.core.queue.queue import MESSAGE, Entry, Queue
from moorline.core.trace import (
    ACK,
    COMMIT,
    DELIVER,
    SEND,
    QueueTraced,
    Span,
    is_chosen,
    may_have_chosen,
)
from moorline.journal.queues.wal import Batch
from moorline.journal.queues.wal_batch import CHANGE, Kind
from moorline.limits import TRACED_IN_FLIGHT_MAX
from moorline.net.clock import wall_us
from moorline.net.session import Session
from moorline.net.span_export import SpanExport
from moorline.wire.message import Answer
from moorline.wire.queue import Acknowledge

Acknowledging = Callable[[Session, list[Acknowledge]], Iterable[Answer]]


class _Out(NamedTuple):
    """A delivery that is not acknowledged yet."""

    traced: QueueTraced
    span: str
    left_us: int


class QueueTraces:
    """Of one node. Messages are known by their ids, which no two of them share."""

    def __init__(
        self, export: SpanExport, one_in: int, now_us: Callable[[], int] = wall_us
    ) -> None:
        self.one_in = one_in
        self._export = export
        self._now_us = now_us
        self._out: OrderedDict[int, _Out] = OrderedDict()
        """Oldest first: those that nobody will acknowledge any more make room for others."""

    def committed(self, batch: Batch, took_s: float) -> None:
        """It is durable, and its senders are answered."""
        if not may_have_chosen(batch.first, batch.first + batch.count, self.one_in):
            return
        now_us = self._now_us()
        begun_us = now_us - int(took_s * 1_000_000)
        for traced in _sent(batch, self.one_in):
            if not self._export.has_room(now_us):
                return
            send = traced.span(SEND)
            self._add(traced, SEND, send, "", traced.time_us)
            self._add(traced, COMMIT, traced.span(COMMIT), send, begun_us)

    def delivered(self, queue: Queue, entry: Entry) -> None:
        now_us = self._now_us()
        if (
            entry.kind != MESSAGE
            or not is_chosen(entry.lsn, self.one_in)
            or not self._export.has_room(now_us)
        ):
            return
        traced, span = QueueTraced(queue.id, entry.lsn, entry.time_ms), secrets.token_hex(8)
        self._add(traced, DELIVER, span, traced.span(COMMIT), traced.time_us)
        self._out[entry.lsn] = _Out(traced, span, now_us)
        if len(self._out) > TRACED_IN_FLIGHT_MAX:
            self._out.popitem(last=False)

    def acknowledging(
        self, acknowledge: Acknowledging, find: Callable[[bytes], Queue | None]
    ) -> Acknowledging:
        """The same handler, which tells of what it did."""

        def traced(session: Session, calls: list[Acknowledge]) -> Iterable[Answer]:
            answers = acknowledge(session, calls)
            for call in calls:
                out = self._out.get(call.message)
                if out is not None and out.traced.queue == call.queue:
                    queue = find(call.queue)
                    # One that was refused is still out.
                    if queue is not None and queue.acknowledged_lsn >= call.message:
                        del self._out[call.message]
                        self._add(out.traced, ACK, secrets.token_hex(8), out.span, out.left_us)
            return answers

        return traced

    def _add(self, traced: QueueTraced, step: str, span: str, parent: str, start_us: int) -> None:
        attributes: dict[str, str | int] = {
            "messaging.system": "moorline",
            "messaging.destination.name": traced.name,
            "messaging.message.id": traced.message,
        }
        name = f"{step} {traced.name}"
        now_us = self._now_us()
        self._export.add(Span(traced.trace, span, parent, name, step, start_us, now_us, attributes))


def _sent(batch: Batch, one_in: int) -> Iterator[QueueTraced]:
    """The messages of a batch that are traced, without a look at the others' bodies."""
    parts = iter(batch.parts)
    for lsn in range(batch.first, batch.first + batch.count):
        kind, queue, number, length = CHANGE.unpack(next(parts))
        if length:
            next(parts)
        if kind == Kind.SEND and is_chosen(lsn, one_in):
            yield QueueTraced(queue, lsn, number)
