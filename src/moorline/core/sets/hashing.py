"""Room: core/sets. XXH3-128 of many ids at once, as arrays of their halves; equal to the scalar one to
the bit.

Each id is hashed by itself, in C, and the hashes are joined and seen as numbers: nothing is done in Python
for each of them. A vector engine would hash a column in a third of the time, but clients hash ids as well,
and should not need one for it (docs/decisions/0028).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xxhash

from moorline.core.sets.sketch import Words


def hash_ids(ids: Sequence[bytes]) -> Words:
    """The hashes of ids: an array of (high, low) for each."""
    # Big-endian, as the digest and the catalog have them: a hash has the same halves everywhere.
    joined = b"".join(map(xxhash.xxh3_128_digest, ids))
    return np.frombuffer(joined, ">u8").astype(np.uint64).reshape(-1, 2)


def misfits(ids: Sequence[bytes], stored: Words) -> tuple[Words, npt.NDArray[np.intp]]:
    """The hashes of ids, and the places at which they are not the ones that were stored."""
    hashes = hash_ids(ids)
    return hashes, np.flatnonzero((hashes != stored).any(axis=1))
