"""What a publisher may ask about its own entries: in proportion to them, however it asks."""

from functools import partial

import pytest
from tests.resolver.server import ResolverServer

from moorline.core.sets.prefix import ALL
from moorline.errors import CallFailed
from moorline.limits import PATHS_PER_CALL_MAX
from moorline.wire.resolver import (
    AskEntryLists,
    AskEntryRanges,
    EntryListsTold,
    EntryRangesTold,
    PathsUnpublished,
    UnpublishHashes,
)

ENTIRE = (ALL.bits, ALL.value)
TWICE = [ENTIRE] * 1_000


@pytest.mark.parametrize(
    ("kind", "reply"),
    [
        (AskEntryRanges, EntryRangesTold),
        (AskEntryLists, EntryListsTold),
        (UnpublishHashes, PathsUnpublished),
    ],
)
async def test_the_same_range_a_thousand_times_is_refused(
    kind: type[AskEntryRanges], reply: type[EntryRangesTold]
) -> None:
    async with ResolverServer.open() as server:
        publisher = await server.publisher(*(f"/p/{number}" for number in range(500)))
        with pytest.raises(CallFailed, match="overlap"):
            await publisher.caller.call(lambda call: kind(call, TWICE), reply)
        (registration,) = server.broker.registry
        assert len(registration.entries) == 500


async def test_lists_have_a_bound_and_ranges_below_it_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moorline.resolver.publishers.ENTRIES_LISTED_MAX", 600)
    async with ResolverServer.open() as server:
        publisher = await server.publisher(*(f"/p/{n}" for n in range(PATHS_PER_CALL_MAX)))
        call = publisher.caller.call
        with pytest.raises(CallFailed, match="ask for the ranges below"):
            await call(lambda n: AskEntryLists(n, [ENTIRE]), EntryListsTold)
        halves = [(one.bits, one.value) for one in ALL.children(1)]
        counted = await call(lambda n: AskEntryRanges(n, halves), EntryRangesTold)
        assert sum(one.count for one in counted.ranges) == PATHS_PER_CALL_MAX
        for half, told in zip(halves, counted.ranges, strict=True):
            lists = await call(partial(AskEntryLists, prefixes=[half]), EntryListsTold)
            assert [len(one) // 8 for one in lists.highs] == [told.count]


async def test_a_whole_set_and_single_entries_are_removed_by_their_hashes() -> None:
    async with ResolverServer.open() as server:
        publisher = await server.publisher(*(f"/p/{number}" for number in range(200)))
        call = publisher.caller.call
        (highs,) = (await call(lambda n: AskEntryLists(n, [ENTIRE]), EntryListsTold)).highs
        some = [(64, int.from_bytes(highs[at : at + 8], "big")) for at in range(0, 80, 8)]
        left = await call(lambda n: UnpublishHashes(n, some), PathsUnpublished)
        assert left.count == 190
        gone = await call(lambda n: UnpublishHashes(n, [ENTIRE]), PathsUnpublished)
        assert gone.count == 0
