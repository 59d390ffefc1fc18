"""Room: access. Tokens: 32 random bytes as text, of which the catalog keeps the SHA-256.

There is nothing to guess in 256 bits of chance, so a hash that is slow on purpose would only slow down
programs. The prefix lets people, and those who search repositories for leaked secrets, see what it is.
"""

import hashlib
import re
import secrets

from moorline.limits import TOKEN_BYTES

PREFIX = "moor_"
_FORM = re.compile(r"moor_[A-Za-z0-9_-]{43}")


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def left_ms(expires_ms: int | None, now_ms: int) -> int | None:
    """For how long it still proves its user: not at all if it has expired, None if it never does."""
    return None if expires_ms is None else max(0, expires_ms - now_ms)


def token_hash(token: str) -> bytes | None:
    """What is stored of it, and looked up; None if that is no token."""
    if _FORM.fullmatch(token) is None:
        return None
    return hashlib.sha256(token.encode("ascii")).digest()
