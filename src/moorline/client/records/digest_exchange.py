"""Room: client/records. A sync by digest, as the copy performs it: it asks, removes, and fetches.

The node is the authority. What it lacks the copy removes; what it has besides is fetched. No message ends the
rows of one fetch: the empty one ends the sync, and the digest at its end is the proof.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from moorline.core.records.copy import Copy, CopySet
from moorline.core.records.table import Key
from moorline.core.sets.asker import Answered, Mode, Repair
from moorline.core.sets.digest import Digest
from moorline.core.sets.prefix import ALL, Prefix, RangeDigest
from moorline.core.sets.sketch import Salt
from moorline.errors import Malformed
from moorline.limits import RECORD_ANSWER_MS_MAX, RECORD_LISTED_MAX, RECORD_PREFIXES_MAX
from moorline.net.reconcile import Comparison
from moorline.wire.records import Fetch, FromClient, Lists, Ranges, Told, Verify

ROWS_PER_FETCH = 25_000
"""About: a node answers a question with a hundred thousand rows at most."""

Say = Callable[[FromClient], Awaitable[None]]


class DigestExchange:
    """The questions of one sync; `hear` takes the answers, which come in their order."""

    def __init__(self, sync: int, table: str, say: Say) -> None:
        self.theirs = Digest.empty()
        """The node's, as it was last told."""
        self._sync = sync
        self._table = table
        self._say = say
        self._answer: asyncio.Future[Told] | None = None
        self._counts: dict[str, int] = {}
        """Of ranges, as they were told."""

    def hear(self, told: Told) -> None:
        if told.sync != self._sync:
            return
        if self._answer is None or self._answer.done():
            raise Malformed("an answer to no question")
        self._answer.set_result(told)

    # --- as a comparison asks for it --------------------------------------------------------------

    async def verify(self, digest: Digest, estimate: bytes, cells_min: int) -> Answered:
        asked = Verify(self._sync, self._table, bytes(digest), estimate, cells_min)
        told = await self._ask(asked)
        if told.digest is None:
            raise Malformed("an answer without a digest")
        self.theirs = Digest.from_bytes(told.digest)
        return Answered(self.theirs, Mode(told.mode), told.cells, told.payload)

    async def ranges(self, prefixes: list[Prefix]) -> list[RangeDigest]:
        found: list[RangeDigest] = []
        for some in _cut(prefixes, RECORD_PREFIXES_MAX):
            told = await self._ask(Ranges(self._sync, self._table, some))
            ranges = [RangeDigest(one.count, int(one.hash or "0", 16)) for one in told.ranges]
            self._counts.update(zip(some, (one.count for one in ranges), strict=False))
            found += ranges
        return found

    async def lists(self, prefixes: list[Prefix]) -> list[bytes]:
        found: list[bytes] = []
        for some in self._portions([hexadecimal(prefix) for prefix in prefixes]):
            found += (await self._ask(Lists(self._sync, self._table, some))).lists
        return found

    def _portions(self, prefixes: list[str]) -> Iterator[list[str]]:
        """So many at once that the answer fits a message."""
        some: list[str] = []
        listed = 0
        for prefix in prefixes:
            count = self._counts.get(prefix, 0)
            if some and (listed + count > RECORD_LISTED_MAX or len(some) == RECORD_PREFIXES_MAX):
                yield some
                some, listed = [], 0
            some.append(prefix)
            listed += count
        if some:
            yield some

    async def fetch(self, prefixes: list[Prefix]) -> None:
        """Asks for rows; with nothing to ask for, for the end."""
        size = RECORD_PREFIXES_MAX
        if len(prefixes) > self.theirs.count // 2 or prefixes == [ALL]:
            # Fewer questions, of all there is; what comes without being new changes nothing. One each: a node
            # answers one with so many rows at most.
            prefixes, size = ALL.children(_bits_for(self.theirs.count)), 1
        for some in _cut(prefixes, size):
            await self._say(Fetch(self._sync, self._table, some))
        await self._say(Fetch(self._sync, self._table, []))

    async def _ask(self, question: FromClient) -> Told:
        self._answer = asyncio.get_running_loop().create_future()
        await self._say(question)
        async with asyncio.timeout(RECORD_ANSWER_MS_MAX / 1_000):
            return await self._answer


async def compare(
    copy: Copy, exchange: DigestExchange, remove: Callable[[list[Key]], None]
) -> None:
    """One sync by digest, up to the last question. Its `sync_end` says whether it was enough."""
    versions = {key: seq for key, (seq, _) in copy.rows.items()}
    # Hashed in a thread: of a million rows that takes a second.
    own = await asyncio.to_thread(CopySet, copy.salt, versions)
    comparison = Comparison(copy.name, exchange, own, sketch_salt(copy.salt), Digest.empty())
    found = await comparison.begin()
    wanted: list[Prefix] = []
    if isinstance(found, Repair):
        remove(own.having(found.missing))
        wanted = found.extra
    await exchange.fetch(wanted)


def sketch_salt(salt: int) -> Salt:
    """That of the sketches of a table: its own, twice."""
    return Salt(salt.to_bytes(8, "big") * 2)


def _bits_for(count: int) -> int:
    """Of the prefixes below each of which there are some thousand rows, of so many in all."""
    bits = 0
    while count >> bits > ROWS_PER_FETCH:
        bits += 4
    return bits


def _cut(prefixes: list[Prefix], size: int) -> list[list[str]]:
    texts = [hexadecimal(prefix) for prefix in prefixes]
    return [texts[start : start + size] for start in range(0, len(texts), size)]


def hexadecimal(prefix: Prefix) -> str:
    assert prefix.bits % 4 == 0, "four bits a digit"
    return f"{prefix.value:0{prefix.bits // 4}x}" if prefix.bits else ""
