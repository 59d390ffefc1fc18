"""Room: core/sets. A digest of many items in any order: how many they are, and the XOR of their hashes.

     0          8                          24
    ┌──────────┬──────────────────────────┐
    │ count    │ XOR of XXH3-128 of each  │
    │ u64      │ 16 bytes                 │
    └──────────┴──────────────────────────┘

Two sets with the same digest are the same set, as far as chance goes: an item can be added, removed,
or a whole other digest merged in, without the items being seen again. It is no proof against someone
who chooses the items: XXH3 is fast and not cryptographic.
"""

from collections.abc import Iterable

import msgspec
import xxhash

HASH_BYTES = 16
DIGEST_BYTES = 8 + HASH_BYTES


class Digest(msgspec.Struct, frozen=True):
    """A value: every change gives a new one."""

    count: int
    hash: bytes

    @staticmethod
    def empty() -> "Digest":
        return Digest(0, bytes(HASH_BYTES))

    @staticmethod
    def of(items: Iterable[bytes]) -> "Digest":
        """The digest of all of them; much faster than adding one at a time."""
        count, mixed = 0, 0
        for item in items:
            count += 1
            mixed ^= xxhash.xxh3_128_intdigest(item)
        return Digest(count, mixed.to_bytes(HASH_BYTES, "big"))

    @staticmethod
    def from_bytes(data: bytes) -> "Digest":
        """The inverse of `bytes(digest)`, for bytes of that length."""
        assert len(data) == DIGEST_BYTES, "a digest has 24 bytes"
        return Digest(int.from_bytes(data[:8], "big"), data[8:])

    def add(self, data: bytes) -> "Digest":
        # XOR undoes itself: an item that is added twice would vanish from the hash. So whoever keeps a
        # digest asks for membership first.
        return Digest(self.count + 1, _mixed(self.hash, xxhash.xxh3_128_digest(data)))

    def remove(self, data: bytes) -> "Digest":
        """Without an item that was added before; that it was is not checked, it cannot be."""
        assert self.count > 0, "nothing is left to remove"
        return Digest(self.count - 1, _mixed(self.hash, xxhash.xxh3_128_digest(data)))

    def merge(self, other: "Digest") -> "Digest":
        """Both together, where no item is in both."""
        return Digest(self.count + other.count, _mixed(self.hash, other.hash))

    def __bytes__(self) -> bytes:
        # The count travels too: sets whose hashes cancel out by chance, or by a duplicate, differ in it.
        return self.count.to_bytes(8, "big") + self.hash

    def __str__(self) -> str:
        """48 hexadecimal digits."""
        return bytes(self).hex()


def _mixed(one: bytes, other: bytes) -> bytes:
    # Of bytes of other lengths the XOR would be of numbers that are shifted against each other.
    assert len(one) == len(other) == HASH_BYTES
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(HASH_BYTES, "big")
