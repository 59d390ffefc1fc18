"""Room: topics. As whose a publisher's messages are numbered: a name within its principal.

Two principals that use one name are two producers, and neither can make the other's messages pass for
duplicates. The number is all that a shard keeps of a producer, so it must not be possible to choose a name
for its number: that of a principal is cut from a cryptographic hash. Whoever proves nothing has no name of
its own to be kept apart by, and the number that it always had.
"""

import hashlib

import xxhash

from moorline.core.access.principal import ANONYMOUS

_PERSON = b"moor-producer"


def producer_number(principal: str, name: str) -> int:
    """Never 0, which is nobody."""
    if principal == ANONYMOUS:
        return xxhash.xxh3_64_intdigest(name.encode()) or 1
    # No principal has a zero character: what is behind the first one is the name.
    text = f"{principal}\0{name}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, person=_PERSON).digest()) or 1
