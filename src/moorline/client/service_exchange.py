"""Room: client. A part of a service over the wire: open, associate, dissociate, and its reconciliation.

It is asked of the node that has the home of the part. A `Claim` is what all parts of a service share:
since when it is ours.

Whatever is longer than a block goes and comes as several, and all of it is counted in the report.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from moorline.client.own_list import Refusal
from moorline.core.sets.asker import LEAF_COUNT, LISTED_BYTES, Answered, Mode, check_answer
from moorline.core.sets.digest import Digest
from moorline.core.sets.prefix import Prefix, RangeDigest
from moorline.core.sets.sketch import Salt
from moorline.errors import CallFailed, ConnectionLost, Malformed, MoorlineError, ServiceTaken
from moorline.ids import text_of
from moorline.limits import SERVICE_PARTS_MAX, SERVICE_PAYLOAD_BYTES_MAX
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
    ListServiceParts,
    ListsTold,
    OpenService,
    PartFacts,
    PayloadBlock,
    RangesTold,
    ServiceEnded,
    ServiceOpened,
    ServicePartsListed,
    ServiceSubscribed,
    SubscribeService,
)
from moorline.wire.service_operator import ListServiceQueues, ServiceQueuesListed

Reply = TypeVar("Reply", bound=Answer)

TAKEN_OVER = "TAKEN_OVER"

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
    parts: dict[str, Digest] = msgspec.field(default_factory=dict)
    """By the names of homes, what was proven at each; `digest` is the sum."""
    away: list[str] = msgspec.field(default_factory=list)
    """Homes whose node did not answer: their parts are as they were, and not proven."""

    def add(self, part: "Report") -> None:
        """What the agreement about a part took."""
        self.digest = self.digest.merge(part.digest)
        self.rounds += part.rounds
        self.bytes_sent += part.bytes_sent
        self.bytes_received += part.bytes_received
        self.associated += part.associated
        self.dissociated += part.dissociated
        self.lost += part.lost
        self.mended += part.mended
        self.restored += part.restored


Make = Callable[[int], WireMessage]


class Claim:
    """Who has a service, for all of its parts: told by the first SOKS, and named to all nodes from then
    on."""

    def __init__(self) -> None:
        self.epoch = 0
        self.service = b""

    def opened(self, service: bytes) -> None:
        """A service that is gone and made anew is another one, and nobody has it."""
        if service != self.service:
            self.service, self.epoch = service, 0


class Asking(NamedTuple):
    """How a session is opened for a service, and how it verifies."""

    open: Make
    verify: Callable[[Digest, bytes, int, bytes], Make] | None
    """From digest, estimate, least size of a sketch and home. None: it must not, and the walk finds all."""
    claim: Claim


def as_service(window: int, claim: Claim | None = None) -> Asking:
    """For the service of our own certificate, which is subscribed by this."""
    claim = claim or Claim()
    return Asking(
        OpenService,
        lambda digest, estimate, cells_min, home: made(
            *(SubscribeService, digest.count, digest.hash, estimate, cells_min, window),
            *(home, claim.epoch, True),
        ),
        claim,
    )


class ServiceExchange:
    """What is asked of the node, on a connection that acts for a service."""

    def __init__(self, caller: Caller, asking: Asking) -> None:
        self.report = Report()
        self.is_opening = self.is_open = False
        self.ended: Digest | None = None
        """The node's digest when another session of the service took over; nothing's if a right ended."""
        self.ended_code = ""
        self.salt = Salt(bytes(16))
        self.service = b""
        self.theirs = Digest.empty()
        """The node's digest, as it was last told."""
        self.home = b""
        """The number of the node's home, as it said when the service was opened."""
        self.elsewhere: list[tuple[bytes, bytes]] = []
        """Queues that the node has found to be of other homes, since they were last taken from here."""
        self.absent = 0
        """Queues of the part that the node does not have, as its last SOKS said."""
        self.news = asyncio.Event()
        """Set when something was pushed, or the connection is lost."""
        self._caller = caller
        self._asking = asking
        self._blocks: deque[PayloadBlock] = deque()

    async def open(self) -> ServiceOpened:
        self.is_opening = True
        return self._opened(await self.call(self._asking.open, ServiceOpened))

    async def open_and_homes(self) -> tuple[ServiceOpened, list[PartFacts]]:
        """Both in one round trip, where the homes are few."""
        self.is_opening = True
        self.check_ended()
        self.report.rounds += 1
        calls = [self._asking.open, made(ListServiceParts)]
        first, second = await self._caller.call_all(calls)
        for answer in (first, second):
            if isinstance(answer, Failed):
                raise self._failed(answer.error())
        if not isinstance(first, ServiceOpened) or not isinstance(second, ServicePartsListed):
            raise Malformed(f"{type(first).__name__} and {type(second).__name__} open no service")
        opened = self._opened(first)
        return opened, await self._homes_behind(second)

    def _opened(self, opened: ServiceOpened) -> ServiceOpened:
        # What was pushed before is of a service that this connection has closed; it comes again.
        self.is_open = True
        self.salt, self.service = Salt(opened.salt), opened.service
        self.theirs = Digest(opened.count, opened.hash)
        self.home = opened.home
        self._asking.claim.opened(opened.service)
        return opened

    async def homes(self) -> list[PartFacts]:
        """All homes of the cluster, with what the service has at each."""
        return await self._homes_behind(await self.call(made(ListServiceParts), ServicePartsListed))

    async def _homes_behind(self, page: ServicePartsListed) -> list[PartFacts]:
        found = [*page.parts]
        while not page.is_last and page.parts and len(found) <= SERVICE_PARTS_MAX:
            page = await self.call(made(ListServiceParts, "", found[-1].home), ServicePartsListed)
            found += page.parts
        return found

    def hear(self, message: WireMessage) -> bool:
        """Takes what is meant for the exchange; False if it is not."""
        if not self.is_open:
            return isinstance(message, PayloadBlock | ServiceEnded)
        match message:
            case PayloadBlock():
                self._blocks.append(message)
            case ServiceEnded(count, digest, code):
                self.ended, self.ended_code = Digest(count, digest), code
            case _:
                return False
        self.news.set()
        return True

    # --- what a reconciliation asks ---------------------------------------------------------------

    async def verify(self, digest: Digest, estimate: bytes, cells_min: int) -> Answered:
        if self._asking.verify is None:
            # As if the sketch were of no use.
            return Answered(self.theirs, Mode.EQUAL)
        make = self._asking.verify(digest, estimate, cells_min, self.home)
        soks = await self.call(make, ServiceSubscribed)
        self.report.bytes_sent += 24 + len(estimate)
        self.report.bytes_received += 24 + soks.payload_bytes
        mode = _mode_of(soks)
        self._asking.claim.epoch = soks.epoch
        self.absent = soks.absent
        payload = bytearray(soks.payload)
        while len(payload) < soks.payload_bytes:
            payload += await self._next_block(soks.call)
        self.theirs = Digest(soks.count, soks.hash)
        return Answered(self.theirs, mode, soks.cells, bytes(payload))

    async def _next_block(self, soks: int) -> bytes:
        while not self._blocks or self._blocks[0].soks != soks:
            if self._blocks:
                # Of an exchange that was given up.
                self._blocks.popleft()
                continue
            if self._caller.lost.done():
                raise self._caller.lost.result()
            self.news.clear()
            await self.news.wait()
        return self._blocks.popleft().payload

    async def ranges(self, prefixes: list[Prefix]) -> list[RangeDigest]:
        told: list[RangeDigest] = []
        for start in range(0, len(prefixes), PREFIXES_PER_BLOCK):
            some = [(p.bits, p.value) for p in prefixes[start : start + PREFIXES_PER_BLOCK]]
            told += (await self.call(made(AskRanges, some), RangesTold)).ranges
            self.report.bytes_sent += 9 * len(some)
            self.report.bytes_received += 12 * len(some)
        return told

    async def lists(self, prefixes: list[Prefix]) -> list[bytes]:
        told: list[bytes] = []
        for start in range(0, len(prefixes), LISTS_PER_BLOCK):
            some = [(p.bits, p.value) for p in prefixes[start : start + LISTS_PER_BLOCK]]
            told += (await self.call(made(AskLists, some), ListsTold)).highs
            self.report.bytes_sent += 9 * len(some)
        self.report.bytes_received += sum(map(len, told))
        return told

    # --- what changes the node's set --------------------------------------------------------------

    async def associate(self, queues: Sequence[bytes]) -> list[Refusal]:
        """In blocks, several on their way at once: the node takes a run of them as one statement."""
        refused: list[Refusal] = []
        together = QUEUES_PER_BLOCK * BLOCKS_TOGETHER
        for start in range(0, len(queues), together):
            self.check_ended()
            some = queues[start : start + together]
            blocks = [
                made(Associate, list(some[place : place + QUEUES_PER_BLOCK]))
                for place in range(0, len(some), QUEUES_PER_BLOCK)
            ]
            self.report.rounds += 1
            for answer in await self._caller.call_all(blocks):
                if isinstance(answer, Failed):
                    raise self._failed(answer.error())
                if not isinstance(answer, Associated):
                    raise Malformed(f"{type(answer).__name__} does not answer an association")
                self.theirs = Digest(answer.count, answer.hash)
                self.report.associated += answer.changed
                refused += answer.refused
                self.elsewhere += answer.elsewhere
            self.report.bytes_sent += 24 * len(some)
            self.report.bytes_received += 24 * len(blocks)
        return refused

    async def dissociate(self, prefixes: list[Prefix]) -> None:
        for start in range(0, len(prefixes), PREFIXES_PER_BLOCK):
            some = [(p.bits, p.value) for p in prefixes[start : start + PREFIXES_PER_BLOCK]]
            answer = await self.call(made(Dissociate, some), Dissociated)
            self.theirs = Digest(answer.count, answer.hash)
            self.report.dissociated += answer.changed
            self.report.bytes_sent += 8 * len(some)
            self.report.bytes_received += 24

    async def queues_behind(self, after: bytes) -> list[bytes]:
        """A page of what the node has for the service, in the order of the hashes."""
        make = made(ListServiceQueues, text_of(self.service), after, QUEUES_PER_BLOCK, self.home)
        page = (await self.call(make, ServiceQueuesListed)).queues
        self.report.bytes_received += sum(map(len, page))
        return page

    # --- inside -----------------------------------------------------------------------------------

    async def call(self, make: Make, reply: type[Reply]) -> Reply:
        self.check_ended()
        self.report.rounds += 1
        try:
            return await self._caller.call(make, reply)
        except ServiceTaken as error:
            raise self._failed(error) from error

    def _failed(self, error: MoorlineError) -> MoorlineError:
        if not isinstance(error, ServiceTaken):
            return error
        # The node says it by refusing, before it says so by ENDS.
        self.ended, self.ended_code = self.theirs, TAKEN_OVER
        self.news.set()
        return ConnectionLost("another session of this service took over")

    def check_ended(self) -> None:
        if self.ended is None:
            return
        if self.ended_code == TAKEN_OVER:
            raise ConnectionLost("another session of this service took over")
        raise CallFailed.of(self.ended_code, "the node ended the service: its rights have changed")


def _mode_of(soks: ServiceSubscribed) -> Mode:
    """What a node says is checked before its payload is waited for."""
    try:
        mode = Mode(soks.mode)
    except ValueError as error:
        raise Malformed(f"a SOKS of the unknown mode {soks.mode}") from error
    check_answer(mode, soks.cells, soks.payload_bytes)
    if soks.payload_bytes > SERVICE_PAYLOAD_BYTES_MAX:
        raise Malformed(f"a SOKS of mode {mode.name} with {soks.payload_bytes} bytes")
    return mode


def made(kind: Callable[..., WireMessage], *values: object) -> Make:
    """A message of that kind and content, for whatever number its call gets."""
    return lambda call: kind(call, *values)
