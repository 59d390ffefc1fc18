"""Room: wire. Which shard of a node a message goes to: by the hash of its key, or of its topic without one.

A node decides it for what is published, and whoever packs rows for a node must find the same
(wire/packed_rows.py, spark/packing.py). So it never changes: behind another choice the messages of a key
would be in two shards, in no order, and a repeated publish would be stored twice.
"""

import numpy as np
import numpy.typing as npt
import xxhash

hash_of = xxhash.xxh3_64_intdigest
"""Of a key, or of a topic in UTF-8."""


def shard_of(name: bytes, shards: int) -> int:
    """By the bytes of its key, or of its topic."""
    return hash_of(name) % shards


def shards_of(hashes: npt.NDArray[np.uint64], shards: int) -> npt.NDArray[np.uint16]:
    """The same of many."""
    return (hashes % np.uint64(shards)).astype(np.uint16)
