"""Room: core/sets. A linear sketch of a set of ids: what two sides subtract to see only their difference.

    id      24 bytes
    hash    XXH3-128 of the id; its first 48 bits are the *short id* t
    value   t << 16 | check(t), 64 bits
    cells   3 partitions of m cells; a value is XORed into one cell of each, at places drawn from t

Two sketches of the same size and salt, XORed, are the sketch of the symmetric difference: what both
have cancels. A cell that holds exactly one value shows itself by its check, and is *peeled*: its value
is taken out of its other two cells, which uncovers more. Everything is computed from t and the salt
alone, so that an id that only the other side knows can be peeled too.

The full size is 3 × 5,040 cells, because 5,040 has sixty divisors: a place is a number below 5,040, and
folding to m cells is a division, so one maintained sketch serves every size. A larger sketch is built
from the hashes themselves.
"""

import numpy as np
import numpy.typing as npt

CELLS_FULL = 5_040
PARTITIONS = 3
CELL_BYTES = 8
ROUNDS_MAX = 128
"""Rounds of peeling; a sketch that decodes at all is done in some twenty."""

DIVISORS = [size for size in range(1, CELLS_FULL + 1) if CELLS_FULL % size == 0]

Words = npt.NDArray[np.uint64]

_WORD = (1 << 64) - 1


class Salt:
    """Keys drawn from the service's salt, one for each use."""

    def __init__(self, secret: bytes) -> None:
        assert len(secret) == 16, "a salt has 16 bytes"
        low, high = int.from_bytes(secret[:8], "big"), int.from_bytes(secret[8:], "big")
        # A key for each partition, for the check and for the estimate: with one for all, two ids that fall
        # together in one partition would do so in the others, and never be told apart.
        self.keys = [
            _mixed(low + number * 0x9E3779B97F4A7C15 & _WORD) ^ high for number in range(5)
        ]


def _mixed(word: int) -> int:
    """A 64-bit finalizer: every bit of the input moves every bit of the output."""
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31


def _mixed_all(words: Words) -> Words:
    # The same as `_mixed`; the product wraps by itself in 64 bits.
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def short_ids(high: Words) -> Words:
    """The short ids of hashes, given by their high halves."""
    return high >> np.uint64(16)


def _values(shorts: Words, salt: Salt) -> Words:
    # Of the short id alone, so that a value that was peeled can be known for one without its id.
    check = _mixed_all(shorts ^ np.uint64(salt.keys[3])) & np.uint64(0xFFFF)
    return (shorts << np.uint64(16)) | check


def _places(shorts: Words, salt: Salt, cells: int) -> list[npt.NDArray[np.int64]]:
    """For each partition the cell of every short id."""
    places = []
    for key in salt.keys[:PARTITIONS]:
        drawn = _mixed_all(shorts ^ np.uint64(key)) >> np.uint64(32)
        if CELLS_FULL % cells == 0:
            # By way of the full size, so that folding gives the same.
            full = (drawn * np.uint64(CELLS_FULL)) >> np.uint64(32)
            place = full // np.uint64(CELLS_FULL // cells)
        else:
            place = (drawn * np.uint64(cells)) >> np.uint64(32)
        places.append(place.astype(np.int64))
    return places


class Sketch:
    """The cells of one set under one salt."""

    def __init__(self, salt: Salt, cells: int, words: Words | None = None) -> None:
        self.salt = salt
        self.cells = cells
        self.words: Words = np.zeros((PARTITIONS, cells), np.uint64) if words is None else words

    def toggle(self, high: Words) -> None:
        """Adds ids that are not there, removes those that are, by the high halves of their hashes."""
        shorts = short_ids(high)
        values = _values(shorts, self.salt)
        # `at`, because two ids of one call may fall into one cell: a plain `^=` would keep only one of
        # them.
        for row, places in zip(self.words, _places(shorts, self.salt, self.cells), strict=True):
            np.bitwise_xor.at(row, places, values)

    def folded(self, cells: int) -> "Sketch":
        assert self.cells % cells == 0, "a sketch folds to a divisor of its size"
        # Neighbouring cells become one: a place is divided, as in `_places`.
        words = np.bitwise_xor.reduce(
            self.words.reshape(PARTITIONS, cells, self.cells // cells), axis=2
        )
        return Sketch(self.salt, cells, words)

    def __bytes__(self) -> bytes:
        return self.words.astype(">u8").tobytes()

    @staticmethod
    def parse(salt: Salt, cells: int, data: bytes) -> "Sketch":
        if len(data) != PARTITIONS * cells * CELL_BYTES:
            raise ValueError(f"a sketch of {cells} cells has not {len(data)} bytes")
        words = np.frombuffer(data, ">u8").astype(np.uint64).reshape(PARTITIONS, cells)
        return Sketch(salt, cells, words)

    def difference(self, other: "Sketch") -> Words | None:
        """The short ids that one side has and the other has not; None if there are too many."""
        assert self.cells == other.cells
        # What both have cancels here, so from now on the cost is by the difference.
        words = self.words ^ other.words
        found: dict[int, None] = {}
        for _ in range(ROUNDS_MAX):
            if not words.any():
                return np.fromiter(found, np.uint64, len(found))
            pure = self._pure(words)
            # No cell holds one alone: a knot, which only more cells can loosen.
            if not len(pure):
                return None
            values = _values(pure, self.salt)
            for row, places in zip(words, _places(pure, self.salt, self.cells), strict=True):
                np.bitwise_xor.at(row, places, values)
            for short in pure.tolist():
                # A cell of several values passes for one in 65,536 cases; it is put back later.
                if found.pop(short, 0) is not None:
                    found[short] = None
        return None

    def _pure(self, words: Words) -> Words:
        """The short ids that stand alone in some cell."""
        flat = words.reshape(-1)
        # An empty cell would pass for the id 0, if its check happened to be 0.
        flat = flat[flat != 0]
        shorts = flat >> np.uint64(16)
        alone = _values(shorts, self.salt) == flat
        # Once each: an id that stands alone in all three cells would else be taken out and put in again.
        return np.unique(shorts[alone])


def cells_for(differences: int) -> int:
    """How many cells a partition needs so that so many differences decode at the first try."""
    # Few differences need more cells each: with so few cells chance is not evened out yet.
    rate = next(rate for limit, rate in _CELLS_PER_DIFFERENCE if differences <= limit)
    wanted = -(-int(rate * differences) // PARTITIONS)
    return size_at_least(max(wanted, CELLS_MIN))


def size_at_least(cells: int) -> int:
    """The next size that the full sketch folds to; beyond the full size any will do."""
    return next((size for size in DIVISORS if size >= cells), cells)


CELLS_MIN = 16
"""Below this a few differences fall together too often; 384 bytes are cheap."""

_CELLS_PER_DIFFERENCE = (
    (10, 4.8),
    (30, 3.7),
    (100, 2.2),
    (300, 1.6),
    (1_500, 1.4),
    (1 << 62, 1.3),
)
"""Cells for each difference so that peeling succeeds in 99 of 100 cases, by simulation."""
