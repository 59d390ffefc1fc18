"""Room: records. What a client's questions are answered from: one scan of keys, at one step, for all
who share it."""

import asyncio
from collections.abc import AsyncIterator

from moorline.core.records.filter import Filter
from moorline.core.sets.answerer import Answerer, check_apart
from moorline.core.sets.asker import LISTED_BYTES
from moorline.core.sets.digest import Digest
from moorline.core.sets.prefix import Prefix
from moorline.limits import RECORD_PAYLOAD_BYTES_MAX, RECORDS_FETCH_KEYS, RECORDS_FETCH_ROWS_MAX
from moorline.records.capture import Capture, ScannedRow
from moorline.records.condition import Condition
from moorline.records.key_set import KeySet
from moorline.wire.records import Lists, RangeFacts, Ranges, Told, Verify

LISTED_BYTES_MAX = RECORD_PAYLOAD_BYTES_MAX
"""Of lists in one answer. Where more would have to be listed so much differs that all rows are sent."""


class Offer:
    """As long as the snapshot of its step is held."""

    def __init__(
        self,
        scan: int,
        capture: Capture,
        condition: Condition,
        filter_: Filter,
        snapshot_id: str,
        keys: KeySet,
        digest: Digest,
    ) -> None:
        self.scan = scan
        self.digest = digest
        self._capture = capture
        self._condition = condition
        self._filter = filter_
        self._snapshot_id = snapshot_id
        self._keys = keys
        self._answerer = Answerer(keys)
        # One connection for all fetches of a scan: those who share it take turns.
        self._turn = asyncio.Lock()

    async def verify(self, asked: Verify) -> Told | None:
        """None: all rows are cheaper than an answer."""
        if not asked.sketches:
            return Told(asked.sync, asked.table, bytes(self.digest))
        theirs = Digest.from_bytes(asked.digest)
        answered = await self._answerer.verify(theirs, asked.estimate, asked.cells_min)
        if len(answered.payload) > LISTED_BYTES_MAX:
            return None
        return Told(
            asked.sync,
            asked.table,
            bytes(answered.digest),
            answered.mode.value,
            answered.cells,
            answered.payload,
        )

    async def ranges(self, asked: Ranges) -> Told:
        found = await self._answerer.ranges([prefix_of(text) for text in asked.prefixes])
        facts = [RangeFacts(one.count, f"{one.hash:016x}") for one in found]
        return Told(asked.sync, asked.table, ranges=facts)

    async def lists(self, asked: Lists) -> Told | None:
        """None as above."""
        prefixes = [prefix_of(text) for text in asked.prefixes]
        counted = await self._answerer.ranges(prefixes)
        if sum(one.count for one in counted) * LISTED_BYTES > LISTED_BYTES_MAX:
            return None
        found = await self._answerer.lists(prefixes)
        return Told(asked.sync, asked.table, lists=found)

    async def rows(self, prefixes: list[str]) -> AsyncIterator[list[ScannedRow]]:
        """The rows whose hashes begin so, as they were at the step."""
        below = [prefix_of(text) for text in dict.fromkeys(prefixes)]
        check_apart(below)
        keys = await self._keys.keys_below(below, RECORDS_FETCH_ROWS_MAX)
        # A statement names its keys one by one: of all at once it would be megabytes of text.
        for start in range(0, len(keys), RECORDS_FETCH_KEYS):
            some = keys[start : start + RECORDS_FETCH_KEYS]
            async with self._turn:
                async for rows in self._capture.scan_rows(
                    self._condition, self._snapshot_id, keys=some, columns=self._filter.columns
                ):
                    yield rows

    async def everything(self) -> AsyncIterator[list[ScannedRow]]:
        """All rows of the scope, as they were at the step."""
        async with self._turn:
            async for rows in self._capture.scan_rows(
                self._condition, self._snapshot_id, columns=self._filter.columns
            ):
                yield rows


def prefix_of(digits: str) -> Prefix:
    return Prefix(4 * len(digits), int(digits, 16) if digits else 0)
