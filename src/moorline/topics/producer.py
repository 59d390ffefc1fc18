"""Room: topics. As whose a publisher's messages are numbered: a name within its principal.

Two principals that use one name are two producers, and neither can make the other's messages pass for
duplicates. The number is all that a shard keeps of a producer, so it must not be possible to choose a name
for its number: it is cut from a cryptographic hash, also for those who prove nothing. Those are all one
principal, `anonymous`: whoever lets them publish lets them use each other's names.
"""

import hashlib

_PERSON = b"moor-producer"


def producer_number(principal: str, name: str) -> int:
    """Never 0, which is nobody."""
    # No principal has a zero character: what is behind the first one is the name.
    text = f"{principal}\0{name}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, person=_PERSON).digest()) or 1
