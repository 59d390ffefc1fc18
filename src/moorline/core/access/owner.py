"""Room: core/access. Owners of queues, as their store keeps them and as rights name them.

b""                                   nobody's: rows alone say who may
b"principal:alice"                    alice's, whatever she proves it with
32 other bytes                        the fingerprint of a certificate, of which old queues are
b"claimed:" · fingerprint · b"alice"  such ones since alice came with that certificate: hers, unless an
                                      operator says whose the things of that certificate are
"""

from typing import Final, NamedTuple

from moorline.core.access.principal import ANONYMOUS

PRINCIPAL: Final = b"principal:"
CLAIMED: Final = b"claimed:"
OLD: Final = "%"
"""Before the hex of a fingerprint wherever an owner is judged: no principal begins with it, so nobody is the
owner by being called like a fingerprint."""
BY: Final = "="
"""Behind the hex, and before the principal that claimed it."""
FINGERPRINT_BYTES: Final = 32


class Claim(NamedTuple):
    """An old owner's things, since its certificate came with a principal."""

    fingerprint: str
    """In hex."""
    principal: str


def owner_of(principal: str) -> bytes:
    """What stands for a principal; nobody who proved nothing owns anything."""
    # All who prove nothing have one name: what one of them made would be everybody's to delete.
    return b"" if principal == ANONYMOUS else PRINCIPAL + principal.encode()


def claimed(fingerprint: bytes, principal: str) -> bytes:
    """What stands for a fingerprint whose principal is known. It keeps both: an operator may know better."""
    assert len(fingerprint) == FINGERPRINT_BYTES, "this is no fingerprint"
    return CLAIMED + fingerprint + principal.encode()


def claim_of(owner: bytes) -> Claim | None:
    """None if it is no such owner; a bare fingerprint may begin like one, and is shorter."""
    end = len(CLAIMED) + FINGERPRINT_BYTES
    if not owner.startswith(CLAIMED) or len(owner) <= end:
        return None
    return Claim(owner[len(CLAIMED) : end].hex(), owner[end:].decode(errors="replace"))


def name_of(owner: bytes) -> str:
    """For people: the principal, or the fingerprint in hex; empty for nobody."""
    if owner.startswith(PRINCIPAL):
        # Bytes of a store, perhaps of a damaged one: a list of queues must not fail over one of them.
        return owner[len(PRINCIPAL) :].decode(errors="replace")
    claim = claim_of(owner)
    return owner.hex() if claim is None else claim.principal


def judged_name_of(owner: bytes) -> str:
    """For `Rights.owns`, where a fingerprint is nobody's but by the map of owners, or by who claimed it;
    empty for nobody."""
    if not owner or owner.startswith(PRINCIPAL):
        return name_of(owner)
    # With a sign before it: somebody may be called like the hex of a fingerprint.
    claim = claim_of(owner)
    return OLD + owner.hex() if claim is None else f"{OLD}{claim.fingerprint}{BY}{claim.principal}"
