"""Room: client. The entries of a publisher compared with what a resolver has: by the one reconciliation."""

import asyncio
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Protocol, TypeVar

from moorline.core.directory.published import EntrySet, MemberView, PublishedPaths
from moorline.core.sets.asker import Answered, Mode
from moorline.core.sets.digest import Digest
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.prefix import Prefix, RangeDigest
from moorline.core.sets.sketch import Words
from moorline.errors import Malformed
from moorline.net.caller import Make
from moorline.wire.message import Answer
from moorline.wire.resolver import (
    AskEntryLists,
    AskEntryRanges,
    EntryListsTold,
    EntryRangesTold,
    Heartbeat,
    HeartbeatHeard,
    PathsUnpublished,
    UnpublishHashes,
)
from moorline.wire.service import PREFIXES_PER_BLOCK

Reply = TypeVar("Reply", bound=Answer)


class Asked(Protocol):
    """A member, as a comparison asks it."""

    view: MemberView

    async def asked(self, make: Make, reply: type[Reply]) -> Reply: ...
    async def publish(self, entries: Sequence[tuple[str, int]]) -> Digest: ...


class SharedEntries:
    """What all resolvers of a list are to have, hashed once for those that compare at the same time.

    Where all of them come back empty it would be a million entries for each.
    """

    def __init__(self, published: PublishedPaths) -> None:
        self._published = published
        self._made: weakref.ref[EntrySet] | None = None
        self._changes = 0
        self._turn = asyncio.Lock()

    async def of(self, view: MemberView) -> EntrySet:
        if view.refused:
            return await asyncio.to_thread(EntrySet, view.copied())
        async with self._turn:
            made = self._made() if self._made is not None else None
            if made is None or self._changes != self._published.changes:
                changes = self._published.changes
                made = await asyncio.to_thread(EntrySet, view.copied())
                self._changes = changes
                # Kept for as long as somebody compares by it.
                self._made = weakref.ref(made)
            return made


class EntryExchange:
    """What a comparison of entries asks, and what a difference leads to: the resolver's set becomes ours."""

    def __init__(self, member: Asked, entries: SharedEntries) -> None:
        self._member = member
        self._shared = entries
        self._entries: EntrySet | None = None

    async def verify(self, digest: Digest, estimate: bytes, cells_min: int) -> Answered:
        heard = await self._member.asked(
            lambda call: Heartbeat(call, digest.count, digest.hash, estimate, cells_min),
            HeartbeatHeard,
        )
        try:
            mode = Mode(heard.mode)
        except ValueError as error:
            raise Malformed(f"an answer of the unknown mode {heard.mode}") from error
        return Answered(Digest(heard.count, heard.hash), mode, heard.cells, heard.payload)

    async def ranges(self, prefixes: list[Prefix]) -> list[RangeDigest]:
        told: list[RangeDigest] = []
        for some in _blocks(prefixes):
            make: Make = partial(AskEntryRanges, prefixes=some)
            told += (await self._member.asked(make, EntryRangesTold)).ranges
        return told

    async def lists(self, prefixes: list[Prefix]) -> list[bytes]:
        told: list[bytes] = []
        for some in _blocks(prefixes):
            make: Make = partial(AskEntryLists, prefixes=some)
            told += (await self._member.asked(make, EntryListsTold)).highs
        return told

    async def own_set(self) -> IdSet:
        self._entries = await self._shared.of(self._member.view)
        return self._entries.set

    async def repair(self, own: IdSet, missing: Words, extra: list[Prefix]) -> Digest | None:
        assert self._entries is not None
        assert own is self._entries.set
        refused = len(self._member.view.refused)
        digest: Digest | None = None
        for some in _blocks(extra):
            make: Make = partial(UnpublishHashes, prefixes=some)
            told = await self._member.asked(make, PathsUnpublished)
            digest = Digest(told.count, told.hash)
        # In a thread: of a million entries that are missing it takes a second, and subscribers have theirs.
        entries = await asyncio.to_thread(self._entries.having, missing)
        if entries or digest is None:
            digest = await self._member.publish(entries)
        # What was refused is left out of what it is to have: compared anew.
        return digest if len(self._member.view.refused) == refused else None


def _blocks(prefixes: Sequence[Prefix]) -> list[list[tuple[int, int]]]:
    pairs = [(prefix.bits, prefix.value) for prefix in prefixes]
    return [
        pairs[start : start + PREFIXES_PER_BLOCK]
        for start in range(0, len(pairs), PREFIXES_PER_BLOCK)
    ]
