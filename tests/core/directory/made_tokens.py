"""A single token, as a resolver makes them by the thousand."""

from moorline.core.directory.token import Claim, Signer


def token_of(secret: bytes, claim: Claim) -> bytes:
    return Signer(secret, claim).token(claim.path, claim.permissions)
