"""Room: access. The directory of users that proofs are checked against, over the catalog."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from moorline.access.passwords import StoredPassword
from moorline.access.proofs import TokenRow, UserRow
from moorline.catalog.users import Users
from moorline.limits import PROOF_CATALOG_MS_MAX

T = TypeVar("T")


class CatalogDirectory:
    """Whatever the catalog raises means that nobody can say: nothing is remembered here."""

    def __init__(self, users: Users) -> None:
        self._users = users

    async def find_user(self, name: str) -> UserRow | None:
        row = await _in_time(self._users.find_user(name))
        if row is None:
            return None
        stored = row.password
        password = None
        if stored is not None:
            password = StoredPassword.of(stored.n, stored.r, stored.p, stored.salt, stored.hash)
        return UserRow(row.name, password, row.is_disabled, row.version)

    async def find_token(self, digest: bytes) -> TokenRow | None:
        row = await _in_time(self._users.find_token(digest))
        if row is None:
            return None
        return TokenRow(
            row.owner,
            None if row.expires_us is None else row.expires_us // 1_000,
            # The catalog's clock decides too: it is the one that the end was counted by.
            is_disabled=row.is_disabled or bool(row.is_expired),
            version=row.version,
            token_version=row.token_version,
        )

    async def cluster_secret(self) -> bytes:
        return await _in_time(self._users.secret())

    async def has_node(self, home: str) -> bool:
        return home in await _in_time(self._users.node_homes())


async def _in_time(asked: Coroutine[Any, Any, T]) -> T:
    """A catalog that hangs is one that is away: whoever waits is to hear so before its time is over."""
    asking = asyncio.create_task(asked)
    asking.add_done_callback(_forget)
    done, _ = await asyncio.wait([asking], timeout=PROOF_CATALOG_MS_MAX / 1_000)
    if not done:
        # It is not waited for: a statement that is cancelled asks the catalog once more.
        asking.cancel()
        raise TimeoutError("the catalog does not answer")
    return asking.result()


def _forget(asking: "asyncio.Task[Any]") -> None:
    """Whoever asked may be gone by then."""
    if not asking.cancelled():
        asking.exception()
