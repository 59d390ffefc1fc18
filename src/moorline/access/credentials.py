"""Room: access. Passwords and tokens: made, hashed, compared. Neither is kept anywhere.

Hashing a password takes long on purpose: it belongs in a thread.
"""

import hashlib
import hmac
import secrets

from moorline.catalog.users import PasswordHash
from moorline.limits import SCRYPT_BYTES_MAX, SCRYPT_N, SCRYPT_P, SCRYPT_R, TOKEN_BYTES

_SALT_BYTES = 16
_HASH_BYTES = 32


def hashed(password: bytes) -> PasswordHash:
    salt = secrets.token_bytes(_SALT_BYTES)
    numbers = SCRYPT_N, SCRYPT_R, SCRYPT_P
    return PasswordHash(*numbers, salt, _scrypt(password, *numbers, salt))


def is_password(password: bytes, stored: PasswordHash) -> bool:
    """By the numbers that it was stored with; the comparison takes as long whatever differs."""
    found = _scrypt(password, stored.n, stored.r, stored.p, stored.salt)
    return hmac.compare_digest(found, stored.hash)


def new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def token_hash(token: str) -> bytes:
    """What the catalog knows of it."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _scrypt(password: bytes, n: int, r: int, p: int, salt: bytes) -> bytes:
    return hashlib.scrypt(
        password, salt=salt, n=n, r=r, p=p, maxmem=SCRYPT_BYTES_MAX, dklen=_HASH_BYTES
    )
