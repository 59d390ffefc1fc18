"""Room: net. Reconciliation performed: the asker's questions over some wire, and what a difference leads to.

    Comparison     an asker and an exchange, up to the next difference or to the proof
    reconcile      comparison and repair in turn, until both sides are proven equal

It knows three things, and nothing of services, paths or records: an *exchange* (what is asked over a wire),
the *own set* at one moment, and a *repairer*, who knows what a difference means. That of a service makes the
node's set equal to the client's. One that takes over what the other side has changes its own set and says so,
and the comparison begins anew. The answering side is core/sets/answerer.py.
"""

import asyncio
from typing import Protocol, TypeVar

from moorline.core.effects import Effect, Event
from moorline.core.sets.asker import (
    LISTED_BYTES,
    Agreed,
    Answered,
    Asker,
    AskLists,
    AskRanges,
    AskVerify,
    Begin,
    GiveUp,
    ListsAnswered,
    OwnSet,
    RangesAnswered,
    Repair,
    Repaired,
    check_answer,
    words_of,
)
from moorline.core.sets.digest import Digest
from moorline.core.sets.prefix import Prefix, RangeDigest
from moorline.core.sets.sketch import Salt, Words
from moorline.errors import Drifting, Malformed
from moorline.limits import RECONCILE_STARTS_MAX
from moorline.net.clock import monotonic_ms

Own = TypeVar("Own", bound=OwnSet)


class Exchange(Protocol):
    """What is asked over some wire. What does not fit a message goes and comes as several."""

    async def verify(self, digest: Digest, estimate: bytes, cells_min: int) -> Answered: ...

    async def ranges(self, prefixes: list[Prefix]) -> list[RangeDigest]: ...

    async def lists(self, prefixes: list[Prefix]) -> list[bytes]:
        """Below each prefix the high halves of the hashes, eight bytes each."""


class Repairer(Protocol[Own]):
    """Whose set it is: it knows what the hashes are of, and what a difference leads to."""

    async def own_set(self) -> Own:
        """The set as it is now: asked at the beginning, and after a repair that has changed it."""

    async def repair(self, own: Own, missing: Words, extra: list[Prefix]) -> Digest | None:
        """The other side lacks `missing`, and has `extra`, which we have not.

        Returns its digest afterwards; or None if our own set has changed, so that all is compared anew.
        """


class Comparison:
    """Our set against theirs, whose digest was `theirs` when last heard of."""

    def __init__(
        self, name: str, exchange: Exchange, own: OwnSet, salt: Salt, theirs: Digest
    ) -> None:
        self._asker = Asker(name, own, salt)
        self._exchange = exchange
        self._own = own
        self._salt = salt
        self._theirs = theirs

    async def begin(self) -> Repair | Agreed:
        """Asks until the difference is known; `Drifting` if that never comes."""
        return await self._go_on(Begin())

    async def repaired(self, theirs: Digest) -> Repair | Agreed:
        """A repair is done, and this is their digest now: proven equal, or what differs still."""
        self._theirs = theirs
        return await self._go_on(Repaired(theirs))

    async def _go_on(self, event: Event) -> Repair | Agreed:
        while True:
            # In a thread: the sketch of a million ids takes a tenth of a second.
            (effect,) = await asyncio.to_thread(self._asker.handle, event, monotonic_ms())
            match effect:
                case Repair() | Agreed():
                    return effect
                case GiveUp(why):
                    raise Drifting(why)
                case _:
                    event = await self._asked(effect)

    async def _asked(self, effect: Effect) -> Event:
        match effect:
            case AskVerify(digest, cells_min):
                return await self._verify(digest, cells_min)
            case AskRanges(prefixes):
                ranges = await self._exchange.ranges(prefixes)
                if len(ranges) != len(prefixes):
                    raise Malformed(f"{len(ranges)} ranges for {len(prefixes)} questions")
                return RangesAnswered(ranges)
            case AskLists(prefixes):
                lists = await self._exchange.lists(prefixes)
                if len(lists) != len(prefixes) or any(len(one) % LISTED_BYTES for one in lists):
                    raise Malformed("a list that answers no question")
                return ListsAnswered([words_of(one) for one in lists])
            case _:
                raise AssertionError(f"nobody asks {effect}")

    async def _verify(self, digest: Digest, cells_min: int) -> Answered:
        estimate = b""
        if digest.count and self._theirs.count and digest != self._theirs:
            # Only where it is of use: equal sets are verified by 48 bytes.
            estimate = bytes(await asyncio.to_thread(self._own.estimate, self._salt))
        answer = await self._exchange.verify(digest, estimate, cells_min)
        check_answer(answer.mode, answer.cells, len(answer.payload))
        self._theirs = answer.digest
        return answer


async def reconcile(
    name: str, exchange: Exchange, repairer: Repairer[Own], salt: Salt, theirs: Digest
) -> Digest:
    """Until both sides are proven to hold the same; the digest of both. `Drifting` if that never comes.

    Cancelled or cut off anywhere, it leaves what was repaired so far: the next one goes on from there.
    """
    for _ in range(RECONCILE_STARTS_MAX):
        own = await repairer.own_set()
        comparison = Comparison(name, exchange, own, salt, theirs)
        found = await comparison.begin()
        while isinstance(found, Repair):
            told = await repairer.repair(own, found.missing, found.extra)
            if told is None:
                break
            theirs = told
            found = await comparison.repaired(theirs)
        else:
            return found.digest
    raise Drifting(
        f"our own set has changed {RECONCILE_STARTS_MAX} times while it was compared: "
        "compare again when it is at rest"
    )
