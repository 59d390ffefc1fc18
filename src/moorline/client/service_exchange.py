"""Room: client. The questions of a service over the wire: open, verify, ranges, lists, associate, dissociate.

Whatever is longer than a block goes and comes as several, and all of it is counted in the report.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from moorline.client.own_list import Refusal
from moorline.core.effects import Event
from moorline.core.sets.digest import Digest
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.prefix import Prefix, RangeDigest
from moorline.core.sets.reconcile import LEAF_COUNT, LISTED_BYTES, Answered, Mode, sketch_bytes
from moorline.core.sets.sketch import Salt, Words
from moorline.errors import CallFailed, ConnectionLost, Malformed
from moorline.limits import SERVICE_PAYLOAD_BYTES_MAX
from moorline.net.caller import Caller
from moorline.wire.message import Answer, Failed
from moorline.wire.message import Message as WireMessage
from moorline.wire.service import (
    PAYLOAD_PER_BLOCK,
    PREFIXES_PER_BLOCK,
    QUEUES_PER_BLOCK,
    AskLists,
    AskRanges,
    Associate,
    Associated,
    Dissociate,
    Dissociated,
    ListsTold,
    PayloadBlock,
    RangesTold,
    ServiceSubscribed,
    SubscribeService,
)

Reply = TypeVar("Reply", bound=Answer)

BLOCKS_TOGETHER = 16
"""Blocks of associations on their way at once: some ten thousand queues."""

LISTS_PER_BLOCK = PAYLOAD_PER_BLOCK // (LEAF_COUNT * LISTED_BYTES)


class Report(msgspec.Struct):
    """What an agreement took."""

    digest: Digest = msgspec.field(default_factory=Digest.empty)
    rounds: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    associated: int = 0
    dissociated: int = 0
    lost: list[bytes] = msgspec.field(default_factory=list)
    """Queues that the node has refused since the last report: deleted, blocked, or not ours."""
    mended: int = 0
    """Rows of our own list, its digest among them, that failed their check and were put right."""
    restored: int = 0
    """Queues that such a list lacked, and got back from the node."""


class Exchange:
    """What is asked of the node, on a connection that acts for a service."""

    def __init__(self, caller: Caller, window: int) -> None:
        self.report = Report()
        self._caller = caller
        self._window = window
        self._salt = Salt(bytes(16))
        self._blocks: deque[PayloadBlock] = deque()
        self._news = asyncio.Event()
        self._ended: Digest | None = None
        self._theirs = Digest.empty()
        """The node's digest when the service was opened."""
        self._absent = 0
        """Queues of the service that the node does not have, as its last SOKS said."""
        self._told = Digest.empty()
        """And after the last change."""

    async def _verify(self, digest: Digest, cells_min: int, own: IdSet) -> Event:
        estimate = b""
        if len(own) and self._theirs.count and digest != self._theirs:
            # Only where it is of use: equal sets are verified by 48 bytes.
            estimate = bytes(await asyncio.to_thread(own.estimate, self._salt))
        soks = await self._call(
            lambda call: SubscribeService(
                call, digest.count, digest.hash, estimate, cells_min, self._window
            ),
            ServiceSubscribed,
        )
        self.report.bytes_sent += 24 + len(estimate)
        self.report.bytes_received += 24 + soks.payload_bytes
        _check_soks(soks)
        self._absent = soks.absent
        payload = bytearray(soks.payload)
        while len(payload) < soks.payload_bytes:
            payload += await self._next_block(soks.call)
        return Answered(Digest(soks.count, soks.hash), Mode(soks.mode), soks.cells, bytes(payload))

    async def _next_block(self, soks: int) -> bytes:
        while not self._blocks or self._blocks[0].soks != soks:
            if self._blocks:
                # Of an exchange that was given up.
                self._blocks.popleft()
                continue
            if self._caller.lost.done():
                raise self._caller.lost.result()
            self._news.clear()
            await self._news.wait()
        return self._blocks.popleft().payload

    async def _ranges(self, prefixes: list[Prefix]) -> list[RangeDigest]:
        told: list[RangeDigest] = []
        for start in range(0, len(prefixes), PREFIXES_PER_BLOCK):
            some = [(p.bits, p.value) for p in prefixes[start : start + PREFIXES_PER_BLOCK]]
            told += (await self._call(made(AskRanges, some), RangesTold)).ranges
            self.report.bytes_sent += 9 * len(some)
            self.report.bytes_received += 12 * len(some)
        if len(told) != len(prefixes):
            raise Malformed(f"{len(told)} ranges for {len(prefixes)} questions")
        return told

    async def _lists(self, prefixes: list[Prefix]) -> list[Words]:
        told: list[Words] = []
        for start in range(0, len(prefixes), LISTS_PER_BLOCK):
            some = [(p.bits, p.value) for p in prefixes[start : start + LISTS_PER_BLOCK]]
            answer = await self._call(made(AskLists, some), ListsTold)
            if len(answer.highs) != len(some) or any(len(highs) % 8 for highs in answer.highs):
                raise Malformed("a list that answers no question")
            told += [np.frombuffer(highs, ">u8").astype(np.uint64) for highs in answer.highs]
            self.report.bytes_sent += 9 * len(some)
            self.report.bytes_received += sum(len(highs) for highs in answer.highs)
        return told

    async def _associate(self, queues: Sequence[bytes]) -> list[Refusal]:
        """In blocks, several on their way at once: the node takes a run of them as one statement."""
        refused: list[Refusal] = []
        together = QUEUES_PER_BLOCK * BLOCKS_TOGETHER
        for start in range(0, len(queues), together):
            self._check_ended()
            some = queues[start : start + together]
            blocks = [
                made(Associate, list(some[place : place + QUEUES_PER_BLOCK]))
                for place in range(0, len(some), QUEUES_PER_BLOCK)
            ]
            self.report.rounds += 1
            for answer in await self._caller.call_all(blocks):
                if isinstance(answer, Failed):
                    raise CallFailed.of(answer.code, answer.text)
                if not isinstance(answer, Associated):
                    raise Malformed(f"{type(answer).__name__} does not answer an association")
                self._told = Digest(answer.count, answer.hash)
                self.report.associated += answer.changed
                refused += answer.refused
            self.report.bytes_sent += 24 * len(some)
            self.report.bytes_received += 24 * len(blocks)
        return refused

    async def _dissociate(self, prefixes: list[Prefix]) -> None:
        for start in range(0, len(prefixes), PREFIXES_PER_BLOCK):
            some = [(p.bits, p.value) for p in prefixes[start : start + PREFIXES_PER_BLOCK]]
            answer = await self._call(made(Dissociate, some), Dissociated)
            self._told = Digest(answer.count, answer.hash)
            self.report.dissociated += answer.changed
            self.report.bytes_sent += 8 * len(some)
            self.report.bytes_received += 24

    async def _call(self, make: Callable[[int], WireMessage], reply: type[Reply]) -> Reply:
        self._check_ended()
        self.report.rounds += 1
        return await self._caller.call(make, reply)

    def _check_ended(self) -> None:
        if self._ended is not None:
            raise ConnectionLost("another session of this service took over")


def _check_soks(soks: ServiceSubscribed) -> None:
    """What a node says is checked before we rely on it."""
    try:
        mode = Mode(soks.mode)
    except ValueError as error:
        raise Malformed(f"a SOKS of the unknown mode {soks.mode}") from error
    is_sketch = soks.cells > 0 and soks.payload_bytes == sketch_bytes(soks.cells)
    is_list = soks.payload_bytes % LISTED_BYTES == 0
    fits = {Mode.SKETCH: is_sketch, Mode.LIST: is_list}.get(mode, soks.payload_bytes == 0)
    if not fits or soks.payload_bytes > SERVICE_PAYLOAD_BYTES_MAX:
        raise Malformed(f"a SOKS of mode {mode.name} with {soks.payload_bytes} bytes")


def made(kind: Callable[..., WireMessage], *values: object) -> Callable[[int], WireMessage]:
    """A message of that kind and content, for whatever number its call gets."""
    return lambda call: kind(call, *values)
