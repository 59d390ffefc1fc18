"""Room: core/sets. An estimate of how many ids two sets differ in, in 448 bytes.

14 levels of 256 parity bits. An id belongs to level i with probability 2^-(i+1) (the last level takes the
rest), and flips one bit there. XORed, two estimates show the parities of the difference: with d ids in a
level of m bits, the expected share of odd bits is (1 - (1 - 2/m)^d) / 2, which is solved for d. From the
sparse levels downwards the counts are added up until a level is too full to tell.
"""

import math

import numpy as np
import numpy.typing as npt

from moorline.core.sets.sketch import Salt, Words, _mixed_all, short_ids

LEVELS = 14
BITS = 256
ESTIMATE_BYTES = LEVELS * BITS // 8
FULL_SHARE = 0.40
"""Share of odd bits above which a level says too little: half is what any large number gives."""


class Estimate:
    """The parity bits of one set."""

    def __init__(self, salt: Salt, bits: npt.NDArray[np.uint8] | None = None) -> None:
        self.salt = salt
        self.bits = np.zeros((LEVELS, BITS), np.uint8) if bits is None else bits

    def toggle(self, high: Words) -> None:
        # A key of its own: drawn like the places of a sketch, ids that fall together there would fall
        # together here.
        drawn = _mixed_all(short_ids(high) ^ np.uint64(self.salt.keys[4]))
        level = np.zeros(len(drawn), np.int64)
        # The low eight bits are the place in a level; the level is drawn from others, or it would decide
        # the place.
        tail = drawn >> np.uint64(8)
        undecided = np.ones(len(drawn), bool)
        for step in range(LEVELS - 1):
            odd = (tail >> np.uint64(step)) & np.uint64(1) == 1
            # As many zeros as there are before the first one: half of all ids have none, a quarter has one.
            undecided &= ~odd
            level[undecided] = step + 1
        place = (drawn & np.uint64(BITS - 1)).astype(np.int64)
        np.bitwise_xor.at(self.bits, (level, place), np.uint8(1))

    def __bytes__(self) -> bytes:
        return np.packbits(self.bits).tobytes()

    @staticmethod
    def parse(salt: Salt, data: bytes) -> "Estimate":
        if len(data) != ESTIMATE_BYTES:
            raise ValueError(f"an estimate has {ESTIMATE_BYTES} bytes, not {len(data)}")
        bits = np.unpackbits(np.frombuffer(data, np.uint8)).reshape(LEVELS, BITS)
        return Estimate(salt, bits.copy())

    def differences(self, other: "Estimate") -> int:
        """About how many ids one side has and the other has not."""
        odd = np.sum(self.bits ^ other.bits, axis=1)
        total = 0.0
        # The sparse levels first: each that can be told adds to the sum, and the first that is too full is
        # reckoned from those before it.
        for level in reversed(range(LEVELS)):
            share = float(odd[level]) / BITS
            if share >= FULL_SHARE:
                # The levels above hold 2^-(level+1) of all.
                return math.ceil(max(total, 1.0) * (1 << (level + 1)))
            # Two ids on one bit cancel, so the odd bits are fewer than the ids: the formula at the head,
            # solved for d.
            total += math.log(1 - 2 * share) / math.log(1 - 2 / BITS)
        return math.ceil(total)
