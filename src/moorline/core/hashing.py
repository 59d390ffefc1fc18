"""Room: core. XXH3-128 of many ids at once, as arrays of their halves; equal to the scalar one to the bit.

Few ids are hashed one by one. Many go through polars-hash, which is ten times as fast once they are in
one buffer; it is imported at its first use, because it is large.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xxhash

from moorline.core.sketch import Words

SCALAR_MAX = 2_000
"""Below this many ids the detour costs more than it saves."""

_LOW = (1 << 64) - 1


def hash_ids(ids: Sequence[bytes]) -> Words:
    """The hashes of ids: an array of (high, low) for each."""
    if len(ids) <= SCALAR_MAX:
        hashes = np.empty((len(ids), 2), np.uint64)
        for place, one in enumerate(ids):
            value = xxhash.xxh3_128_intdigest(one)
            hashes[place] = value >> 64, value & _LOW
        return hashes
    return _in_bulk(ids)


def misfits(ids: Sequence[bytes], stored: Words) -> tuple[Words, npt.NDArray[np.intp]]:
    """The hashes of ids, and the places at which they are not the ones that were stored."""
    hashes = hash_ids(ids)
    return hashes, np.flatnonzero((hashes != stored).any(axis=1))


def _in_bulk(ids: Sequence[bytes]) -> Words:
    import polars
    import polars_hash

    column = polars.DataFrame({"id": polars.Series(ids, dtype=polars.Binary)})
    hashed = column.select(polars_hash.col("id").nchash.xxh3_128().alias("hash"))
    half = polars.lit(1 << 64, dtype=polars.UInt128)
    halves = hashed.select(
        (polars.col("hash") // half).cast(polars.UInt64).alias("high"),
        polars.col("hash").cast(polars.UInt64, wrap_numerical=True).alias("low"),
    )
    return np.stack([halves["high"].to_numpy(), halves["low"].to_numpy()], axis=1)
