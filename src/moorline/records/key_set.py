"""Room: records. The keys and seqs of a scope at one step, as a reconciliation asks for them.

    keys = KeySet(table.salt)
    await keys.add([(("17",), 4), …])
    keys.close()                              sorted: from now on it answers
    keys.digest(), keys.keys_below(prefixes)

Of a million rows it holds some 45 MB: two halves of a hash, an order, and the texts of the keys in one piece.
"""

import asyncio
from collections.abc import Generator, Sequence

import numpy as np
import numpy.typing as npt

from moorline.core.records.row_hash import row_hashes
from moorline.core.records.table import Key
from moorline.core.sets.asker import listed_of
from moorline.core.sets.digest import Digest
from moorline.core.sets.estimate import Estimate
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.prefix import Prefix, RangeDigest
from moorline.core.sets.sketch import Salt, Sketch, Words
from moorline.net.slices import in_slices

# Postgres has no zero character in any text.
APART = "\0"

KEYS_PER_STEP = 256
"""Of keys that are read one by one: some tenth of a millisecond."""

NUMBERS_PER_STEP = 16_384
"""Of numbers that are read already."""

Numbers = npt.NDArray[np.int64]


class KeySet:
    """An `AnsweringSet`, once it is closed."""

    def __init__(self, salt: int) -> None:
        # Sketches want sixteen bytes: those of the table twice, which both sides know.
        self.salt = Salt(salt.to_bytes(8, "big") * 2)
        self._hash_salt = salt
        self._hashes: list[Words] = []
        self._texts: list[bytes] = []
        self._lengths: list[Numbers] = []
        self._ids = IdSet(np.empty(0, np.uint64), np.empty(0, np.uint64))
        self._digest = Digest.empty()
        self._ends: Numbers = np.zeros(1, np.int64)
        self._text = b""

    async def add(self, rows: Sequence[tuple[Key, int]]) -> None:
        """In a thread: a part has twenty thousand."""
        await asyncio.to_thread(self._add, rows)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def __len__(self) -> int:
        return len(self._ids)

    # --- what an answerer asks --------------------------------------------------------------------

    async def digest(self) -> Digest:
        return self._digest

    async def digests(self, prefixes: Sequence[Prefix]) -> list[RangeDigest]:
        return await in_slices(self._ranges(prefixes))

    def _ranges(self, prefixes: Sequence[Prefix]) -> Generator[None, None, list[RangeDigest]]:
        # A prefix of everything is one look at all hashes, and a client may ask for it thousands of times.
        found: list[RangeDigest] = []
        for prefix in prefixes:
            found += self._ids.ranges([prefix])
            yield
        return found

    async def estimate(self, digest: Digest) -> Estimate:  # noqa: ARG002
        return await asyncio.to_thread(self._ids.estimate, self.salt)

    async def sketch(self, digest: Digest, cells: int) -> Sketch:  # noqa: ARG002
        return await asyncio.to_thread(self._ids.sketch, self.salt, cells)

    async def ids(self, prefixes: Sequence[Prefix]) -> list[bytes]:
        return await in_slices(self._listed(prefixes))

    def _listed(self, prefixes: Sequence[Prefix]) -> Generator[None, None, list[bytes]]:
        found: list[bytes] = []
        for prefix in prefixes:
            found.append(listed_of(self._ids.highs(prefix)))
            yield
        return found

    async def keys_below(self, prefixes: Sequence[Prefix], keys_max: int) -> list[Key]:
        """The keys whose hashes begin like these, each once, and no more than so many."""
        return await in_slices(self._keys_below(prefixes, keys_max))

    def _keys_below(
        self, prefixes: Sequence[Prefix], keys_max: int
    ) -> Generator[None, None, list[Key]]:
        found: dict[int, None] = {}
        for prefix in prefixes:
            part = self._ids.slice_of(prefix)
            for place in self._ids.order[part][: keys_max - len(found)].tolist():
                found[place] = None
            yield
            if len(found) >= keys_max:
                break
        keys: list[Key] = []
        for place in found:
            keys.append(self._key(place))
            if not len(keys) % KEYS_PER_STEP:
                yield
        return keys

    async def numbers(self) -> list[int]:
        """All keys in rising order, of a table whose key is one whole number."""
        return await in_slices(self._numbers())

    def _numbers(self) -> Generator[None, None, list[int]]:
        found = np.empty(len(self), np.int64)
        for start in range(0, len(self), KEYS_PER_STEP):
            some = range(start, min(start + KEYS_PER_STEP, len(self)))
            found[some.start : some.stop] = [int(self._key(place)[0]) for place in some]
            yield
        found.sort()
        yield
        numbers: list[int] = []
        for start in range(0, len(self), NUMBERS_PER_STEP):
            numbers += found[start : start + NUMBERS_PER_STEP].tolist()
            yield
        return numbers

    def _key(self, place: int) -> Key:
        text = self._text[self._ends[place] : self._ends[place + 1]]
        return tuple(text.decode().split(APART))

    def _add(self, rows: Sequence[tuple[Key, int]]) -> None:
        self._hashes.append(row_hashes(self._hash_salt, rows))
        texts = [APART.join(key).encode() for key, _ in rows]
        self._lengths.append(np.fromiter(map(len, texts), np.int64, len(texts)))
        self._texts.append(b"".join(texts))

    def _close(self) -> None:
        if not self._hashes:
            return
        hashes = np.concatenate(self._hashes)
        self._ids = IdSet(hashes[:, 0], hashes[:, 1])
        self._digest = self._ids.digest()
        self._ends = np.concatenate(
            [np.zeros(1, np.int64), np.cumsum(np.concatenate(self._lengths))]
        )
        self._text = b"".join(self._texts)
        self._hashes, self._texts, self._lengths = [], [], []
