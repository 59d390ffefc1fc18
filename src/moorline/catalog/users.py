"""Room: catalog. Users, with the hash of a password or none, and their tokens.

Neither a password nor a token is ever in the catalog: of one there is a scrypt hash with its salt, of the
other the SHA-256, which is enough for 32 bytes of chance.
"""

import msgspec

from moorline.catalog.access import AccessCatalog
from moorline.catalog.statements import statement
from moorline.core.access.principal import check_provable
from moorline.errors import AlreadyThere, BadGrant, LimitReached, NotFound
from moorline.limits import (
    ACCESS_LOG_ROWS_MAX,
    ACCESS_TOKENS_MAX,
    ACCESS_USERS_MAX,
    TOKENS_PER_USER_MAX,
)

COUNTS = statement("access_counts")
USER_FIND = statement("access_user_find")
USER_PAGE = statement("access_user_page")
USER_ADD = statement("access_user_add")
USER_PASSWORD = statement("access_user_password")
USER_DISABLE = statement("access_user_disable")
USER_REMOVE = statement("access_user_remove")
USER_LEFT = statement("access_user_left")
TOKEN_FIND = statement("access_token_find")
TOKEN_LABELS = statement("access_token_labels")
TOKEN_ADD = statement("access_token_add")
TOKEN_REMOVE = statement("access_token_remove")


class PasswordHash(msgspec.Struct, frozen=True):
    """scrypt's parameters, its salt, and what it made of the password."""

    n: int
    r: int
    p: int
    salt: bytes
    hash: bytes


class UserRow(msgspec.Struct, frozen=True):
    """What a password is checked with."""

    name: str
    password: PasswordHash | None
    is_disabled: bool
    version: int


class UserEntry(msgspec.Struct, frozen=True):
    """A user as it is listed."""

    name: str
    is_disabled: bool
    has_password: bool
    created_us: int
    groups: list[str]
    tokens: list[str]
    """Their labels."""


class FoundToken(msgspec.Struct, frozen=True):
    owner: str
    label: str
    is_disabled: bool
    version: int
    """Of its owner."""
    token_version: int
    expires_us: int | None
    is_expired: bool
    """By the catalog's clock."""


class LeftBehind(msgspec.Struct, frozen=True):
    """What a user that is gone leaves: its principal may be proven in another way."""

    memberships: int
    grants: int
    quotas: int


class Users(AccessCatalog):
    """The part of the catalog that knows users."""

    async def find_user(self, name: str) -> UserRow | None:
        row = await self._catalog.fetchrow(USER_FIND, name)
        if row is None:
            return None
        password = None
        if row["hash"] is not None:
            numbers = row["scrypt_n"], row["scrypt_r"], row["scrypt_p"]
            password = PasswordHash(*numbers, row["salt"], row["hash"])
        return UserRow(row["name"], password, row["is_disabled"], row["version"])

    async def users(self, after: str, count: int) -> list[UserEntry]:
        """A page of them, by name."""
        return [UserEntry(**row) for row in await self._catalog.fetch(USER_PAGE, after, count)]

    async def add_user(self, name: str, password: PasswordHash | None) -> None:
        check_provable(name)
        async with self.change("the user was added") as connection:
            if await connection.fetchrow(USER_FIND, name) is not None:
                raise AlreadyThere(f"there is a user {name!r}: choose another name, or change it")
            if (await connection.fetchrow(COUNTS))["users"] >= ACCESS_USERS_MAX:
                raise LimitReached(f"there are {ACCESS_USERS_MAX} users, and may be no more")
            await connection.execute(USER_ADD, name, *_columns(password), ACCESS_LOG_ROWS_MAX)

    async def change_user(
        self,
        name: str,
        *,
        password: PasswordHash | None = None,
        has_no_password: bool = False,
        is_disabled: bool | None = None,
    ) -> None:
        """Whoever is logged on as that user has to do so again."""
        assert password is None or not has_no_password
        async with self.change("the user was changed") as connection:
            if await connection.fetchrow(USER_FIND, name) is None:
                raise _no_user(name)
            if password is not None or has_no_password:
                await connection.execute(
                    USER_PASSWORD, name, *_columns(password), ACCESS_LOG_ROWS_MAX
                )
            if is_disabled is not None:
                await connection.execute(USER_DISABLE, name, is_disabled, ACCESS_LOG_ROWS_MAX)

    async def remove_user(self, name: str) -> LeftBehind:
        """Its tokens go with it. Rows, memberships and quotas are its principal's, and stay."""
        async with self.change("the user was removed") as connection:
            await connection.fetch(TOKEN_REMOVE, name, None, ACCESS_LOG_ROWS_MAX)
            if not await connection.fetch(USER_REMOVE, name, ACCESS_LOG_ROWS_MAX):
                raise _no_user(name)
            left = await connection.fetchrow(USER_LEFT, name)
        return LeftBehind(**left)

    async def find_token(self, token_hash: bytes) -> FoundToken | None:
        row = await self._catalog.fetchrow(TOKEN_FIND, token_hash)
        return None if row is None else FoundToken(**row)

    async def add_token(
        self, name: str, label: str, token_hash: bytes, expires_s: int | None
    ) -> int | None:
        """When it ends by the catalog's clock, in microseconds since 1970."""
        if not label or not label.isprintable():
            raise BadGrant("the label of a token is a text without control characters")
        async with self.change("the token was added") as connection:
            found = await connection.fetchrow(USER_FIND, name)
            if found is None:
                raise _no_user(name)
            if (await connection.fetchrow(COUNTS))["tokens"] >= ACCESS_TOKENS_MAX:
                raise LimitReached(f"there are {ACCESS_TOKENS_MAX} tokens, and may be no more")
            labels = {row["label"] for row in await connection.fetch(TOKEN_LABELS, name)}
            if len(labels) >= TOKENS_PER_USER_MAX:
                raise LimitReached(
                    f"{name!r} has {TOKENS_PER_USER_MAX} tokens, and may have no more"
                )
            if label in labels:
                raise AlreadyThere(f"{name!r} has a token {label!r}: choose another label")
            expires_us: int | None = await connection.fetchval(
                TOKEN_ADD, token_hash, name, label, expires_s, ACCESS_LOG_ROWS_MAX
            )
        return expires_us

    async def remove_token(self, name: str, label: str) -> bool:
        """False if there is none."""
        async with self.change("the token was revoked") as connection:
            return bool(await connection.fetch(TOKEN_REMOVE, name, label, ACCESS_LOG_ROWS_MAX))


def _columns(password: PasswordHash | None) -> tuple[object, ...]:
    if password is None:
        return (None,) * 5
    return password.n, password.r, password.p, password.salt, password.hash


def _no_user(name: str) -> NotFound:
    return NotFound(f"there is no user {name!r}")
