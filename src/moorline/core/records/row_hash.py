"""Room: core/records. The hash of a row for digests: of its key and seq, salted by its table.

    ┌────────┬──────────┬─────┬────────┐
    │ length │ text of  │  …  │ seq    │   XXH3-128 of this, with the salt as its seed
    │ u32    │ a key    │     │ u64    │   on the wire: xxh3-128/8
    └────────┴──────────┴─────┴────────┘

Lengths come before the texts, or the keys ("a", "b") and ("ab", "") would be one. Numbers are big-endian.
Many at once are hashed in C, as in core/sets/hashing.py.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
import xxhash

from moorline.core.records.table import Change, Key
from moorline.core.sets.digest import Digest
from moorline.core.sets.sketch import Words

NAME: Final = "xxh3-128/8"
"""Hash and bytes of the seq: what a digest is of, told with each sync."""


def hashed_bytes(key: Key, seq: int) -> bytes:
    parts = []
    for text in key:
        data = text.encode()
        parts.append(len(data).to_bytes(4, "big"))
        parts.append(data)
    parts.append(seq.to_bytes(8, "big"))
    return b"".join(parts)


def row_hash(salt: int, key: Key, seq: int) -> int:
    """128 bits."""
    return xxhash.xxh3_128_intdigest(hashed_bytes(key, seq), salt)


def row_hashes(salt: int, rows: Iterable[tuple[Key, int]]) -> Words:
    """Of many: an array of (high, low) for each."""
    joined = b"".join(xxhash.xxh3_128_digest(hashed_bytes(key, seq), salt) for key, seq in rows)
    return np.frombuffer(joined, ">u8").astype(np.uint64).reshape(-1, 2)


def digest_of_rows(salt: int, rows: Iterable[tuple[Key, int]]) -> Digest:
    count = mixed = 0
    for key, seq in rows:
        count += 1
        mixed ^= row_hash(salt, key, seq)
    return Digest(count, mixed.to_bytes(16, "big"))


class RowDigest:
    """A digest that rows come into and leave, by their hashes. `digest()` is a value."""

    __slots__ = ("_count", "_mixed", "salt")

    def __init__(self, salt: int, digest: Digest | None = None) -> None:
        self.salt = salt
        self._count = 0 if digest is None else digest.count
        self._mixed = 0 if digest is None else int.from_bytes(digest.hash, "big")

    def enter(self, key: Key, seq: int) -> None:
        self._count += 1
        self._mixed ^= row_hash(self.salt, key, seq)

    def leave(self, key: Key, seq: int) -> None:
        """A row that was in it; that it was cannot be seen here."""
        self._count -= 1
        self._mixed ^= row_hash(self.salt, key, seq)

    def roll(self, change: Change, *, was_in: bool, is_in: bool) -> None:
        """By what one row did: whether it was in the set before, and is in it now."""
        if was_in and change.before is not None:
            self.leave(change.key, change.before.seq)
        if is_in and change.after is not None:
            self.enter(change.key, change.after.seq)

    @property
    def is_sound(self) -> bool:
        """A count below zero is of a cursor that was not of these rows."""
        return self._count >= 0

    def digest(self) -> Digest:
        return Digest(max(0, self._count), self._mixed.to_bytes(16, "big"))
