"""Room: spark. The time to live of a message in the files of an archive, and as the number that it is.

A TTL is a number of 32 bits without a sign. Files have these bits in a column of 32 bits with one, as they
always had; a table that is read, from a node or from an archive, has the number of seconds, in 64 bits.
"""

from typing import Any

import numpy as np
import pyarrow as pa

SQL_TO_BITS = "cast(if(ttl_s > 2147483647, ttl_s - 4294967296, ttl_s) as int)"
SQL_TO_SECONDS = "cast(ttl_s as bigint) & 4294967295"


def to_bits(seconds: Any) -> pa.Int32Array:
    return seconds.cast(pa.int32(), safe=False)


def to_seconds(bits: Any) -> pa.Int64Array:
    return pa.array(bits.to_numpy().astype(np.uint32).astype(np.int64))
