"""Room: core/sets. Prefixes of hashes: the ranges that a reconciliation walks, without a boundary to
agree on."""

from typing import NamedTuple

import msgspec

HASH_BITS = 64


class Prefix(NamedTuple):
    """All hashes whose first `bits` are `value`."""

    bits: int
    value: int

    @property
    def first(self) -> int:
        return self.value << (HASH_BITS - self.bits)

    @property
    def last(self) -> int:
        return self.first + (1 << (HASH_BITS - self.bits)) - 1

    def children(self, bits: int) -> "list[Prefix]":
        """The prefixes below, that many bits longer."""
        return [Prefix(self.bits + bits, self.value << bits | child) for child in range(1 << bits)]


ALL = Prefix(0, 0)
"""Every hash has it."""


class RangeDigest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Count and 64 bits of the hash: enough to find a difference, which the whole digest then proves."""

    count: int
    hash: int
