"""Room: core/access. Owners of queues, as their store keeps them and as rights name them.

b""                   nobody's: rows alone say who may
b"principal:alice"    alice's, whatever she proves it with
32 other bytes        the fingerprint of a certificate, of which old queues are; until its principal is known
"""

from typing import Final

from moorline.core.access.principal import ANONYMOUS

PRINCIPAL: Final = b"principal:"
OLD: Final = "%"
"""Before the hex of a fingerprint wherever an owner is judged: no principal begins with it, so nobody is the
owner by being called like a fingerprint."""
FINGERPRINT_BYTES: Final = 32


def owner_of(principal: str) -> bytes:
    """What stands for a principal; nobody who proved nothing owns anything."""
    return b"" if principal == ANONYMOUS else PRINCIPAL + principal.encode()


def name_of(owner: bytes) -> str:
    """For people: the principal, or the fingerprint in hex; empty for nobody."""
    if owner.startswith(PRINCIPAL):
        return owner[len(PRINCIPAL) :].decode(errors="replace")
    return owner.hex()


def judged_name_of(owner: bytes) -> str:
    """For `Rights.owns`, where a fingerprint is nobody's but by the map of owners; empty for nobody."""
    if not owner or owner.startswith(PRINCIPAL):
        return name_of(owner)
    return OLD + owner.hex()
