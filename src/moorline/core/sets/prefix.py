"""Room: core/sets. Prefixes of hashes: the ranges that a reconciliation walks.

Of ranges from id to id, as the seed has them, both ends must travel, and a boundary that one side lacks must
be found first. A prefix of the hash is known to both sides, and spreads ids evenly whatever they are.
"""

from collections.abc import Iterable
from itertools import pairwise
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
        # The last that belongs to it, not the first behind it, which for the highest prefix would have 65
        # bits.
        return self.first + (1 << (HASH_BITS - self.bits)) - 1

    def children(self, bits: int) -> "list[Prefix]":
        """The prefixes below, that many bits longer."""
        return [Prefix(self.bits + bits, self.value << bits | child) for child in range(1 << bits)]


ALL = Prefix(0, 0)
"""Every hash has it."""


def are_apart(prefixes: Iterable[Prefix]) -> bool:
    """Whether no hash has two of them."""
    ordered = sorted(prefixes, key=lambda one: one.first)
    return all(before.last < after.first for before, after in pairwise(ordered))


class RangeDigest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Count and 64 bits of the hash: enough to find a difference, which the whole digest then proves."""

    count: int
    hash: int
