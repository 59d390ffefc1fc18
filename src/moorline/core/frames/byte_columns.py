"""Room: core/frames. Parts of one buffer, hashed and counted all at once: no part is copied, no loop is
in Python.

    column = ByteColumn(data, starts, lengths)
    column.hashes(seed)                        # XXH3-64 of each, equal to the scalar one to the bit

Arrow knows a part by where it begins and how long it is, polars-hash hashes such parts, and neither holds
other threads up meanwhile. Few parts are done one by one. Both libraries are imported at their first use,
because they are large.
"""

from functools import reduce
from itertools import repeat
from operator import xor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from moorline.limits import COLUMN_ONE_BY_ONE_MAX

if TYPE_CHECKING:
    import polars
    import pyarrow

Numbers = npt.NDArray[np.int64]
Buffer = bytes | bytearray | memoryview

PADDING_BYTES = 16
"""Bytes behind the last part: the words that a short one is taken from may begin at its last byte."""

_INLINE_BYTES = 12
"""Arrow keeps values up to this length inside of their views."""

_WORD_MASKS = np.array(
    [
        [(1 << 8 * min(max(length - 4 * word, 0), 4)) - 1 for length in range(_INLINE_BYTES + 1)]
        for word in range(_INLINE_BYTES // 4)
    ],
    np.uint32,
)
"""What of each of the three words of a short value belongs to it, by its length."""


def words_at(data: Buffer, kind: str) -> npt.NDArray[Any]:
    """The buffer as numbers of that kind, one beginning at every byte."""
    count = max(len(data) - np.dtype(kind).itemsize + 1, 0)
    # A stride of one byte: the numbers overlap, and nothing is copied. Frames begin at any byte, so no
    # aligned view has them all.
    return np.ndarray((count,), kind, data, 0, (1,))


def prepare() -> None:
    """Imports what many parts need. It takes a while: in a thread, before an event loop comes to need it."""
    import polars_hash
    import pyarrow  # noqa: F401

    assert polars_hash


class ByteColumn(NamedTuple):
    """Where each part begins in the buffer, and its bytes."""

    data: Buffer
    starts: Numbers
    lengths: Numbers

    def hashes(self, seed: int = 0) -> npt.NDArray[np.uint64]:
        """XXH3-64 of each."""
        # To set up a column costs as much as to hash some dozens of parts, and most publishes bring few.
        if len(self.starts) <= COLUMN_ONE_BY_ONE_MAX:
            scalar = map(xxhash.xxh3_64_intdigest, self._one_by_one(), repeat(seed))
            return np.fromiter(scalar, np.uint64, len(self.starts))
        import polars_hash

        found = self._column().select(polars_hash.col("part").nchash.xxh3_64(seed=seed))
        hashes: npt.NDArray[np.uint64] = found.to_series().to_numpy()
        return hashes

    def xor(self) -> int:
        """XXH3-128 of all of them, one over the other: what a digest is made of."""
        if len(self.starts) <= COLUMN_ONE_BY_ONE_MAX:
            return reduce(xor, map(xxhash.xxh3_128_intdigest, self._one_by_one()), 0)
        import polars_hash

        found = self._column().select(polars_hash.col("part").nchash.xxh3_128().bitwise_xor())
        total: int = found.item()
        return total

    def distinct(self) -> tuple[list[bytes], npt.NDArray[np.uint32]]:
        """Those that there are, the first one first; and which of them each is."""
        if len(self.starts) <= COLUMN_ONE_BY_ONE_MAX:
            # In the order in which they come, as Arrow does it: both ways give the same numbers.
            known: dict[bytes, int] = {}
            number = known.setdefault
            places = [number(bytes(part), len(known)) for part in self._one_by_one()]
            return list(known), np.array(places, np.uint32)
        import pyarrow

        # Cast first: Arrow has no dictionary of views. That copies the parts, and topics are short.
        encoded = self._padded().views().cast(pyarrow.binary()).dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.uint32)

    def are(self, values: list[bytes], places: Numbers) -> bool:
        """Whether every part is the value at its place."""
        if len(self.starts) <= COLUMN_ONE_BY_ONE_MAX:
            expected = map(values.__getitem__, places.tolist())
            return all(map(bytes.__eq__, map(bytes, self._one_by_one()), expected))
        import polars

        expected_column = polars.Series(values, dtype=polars.Binary).gather(places)
        return bool((self._column().to_series() == expected_column).all())

    def views(self, valid: npt.NDArray[np.bool_] | None = None) -> "pyarrow.Array":
        """The parts as Arrow sees them, in place; the buffer goes on for PADDING_BYTES behind them."""
        import pyarrow

        bitmap = None
        if valid is not None:
            # Little, because Arrow counts the bits of a byte from the low end.
            bitmap = pyarrow.py_buffer(np.packbits(valid, bitorder="little").tobytes())
        views = _views(words_at(self.data, "<u4"), self.starts, self.lengths)
        buffers = [bitmap, pyarrow.py_buffer(views), pyarrow.py_buffer(self.data)]
        return pyarrow.Array.from_buffers(pyarrow.binary_view(), len(self.starts), buffers)

    def _one_by_one(self) -> "map[memoryview]":
        ends = self.starts + self.lengths
        slices = map(slice, self.starts.tolist(), ends.tolist())
        return map(memoryview(self.data).__getitem__, slices)

    def _column(self) -> "polars.DataFrame":
        import polars

        return polars.DataFrame({"part": polars.from_arrow(self._padded().views())})

    def _padded(self) -> "ByteColumn":
        """The same, in a buffer that goes on behind the last part that is short."""
        # Long parts are only pointed at. Of short ones three words are taken, which may reach beyond the
        # buffer; to copy it for that is rare, since bodies follow most parts.
        short = self.starts[self.lengths <= _INLINE_BYTES]
        if not len(short) or int(short.max()) + PADDING_BYTES <= len(self.data):
            return self
        return ByteColumn(bytes(self.data) + bytes(PADDING_BYTES), self.starts, self.lengths)


def _views(words: npt.NDArray[Any], starts: Numbers, lengths: Numbers) -> npt.NDArray[np.uint32]:
    """Arrow's sixteen bytes of each value: its length, its first four bytes, and where it is."""
    views = np.empty((len(starts), 4), np.uint32)
    views[:, 0] = lengths
    # The number of the buffer, of which there is one, and the place in it.
    views[:, 2] = 0
    views[:, 3] = starts
    is_short = lengths <= _INLINE_BYTES
    # A column is mostly of one kind, all topics short or all bodies long: then no mask is applied.
    if not is_short.any():
        views[:, 1] = words[starts]
    elif is_short.all():
        _fill_short(views, words, starts, lengths)
    else:
        long = ~is_short
        views[long, 1] = words[starts[long]]
        short = views[is_short]
        _fill_short(short, words, starts[is_short], lengths[is_short])
        views[is_short] = short
    return views


def _fill_short(
    views: npt.NDArray[np.uint32], words: npt.NDArray[Any], starts: Numbers, lengths: Numbers
) -> None:
    """A short value stands in its view, behind its length; what follows it there is zero."""
    # Zero behind the value, since Arrow compares whole views: two equal values with different bytes behind
    # them would be two.
    views[:, 1:] = 0
    length_max = int(lengths.max(initial=0))
    for word in range(-(-length_max // 4)):
        taken = words[starts + 4 * word]
        views[:, 1 + word] = taken & _WORD_MASKS[word][lengths]
