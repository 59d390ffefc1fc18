"""Room: catalog. Which process holds the identity of a node, and the home that its streams are known by.

The rule is `core.identity.judge`; here it is applied under the lock of the node's row. Taking an identity
over fences the process that had it before, in the same transaction. Everything that a process does in the
catalog in a node's name afterwards names its incarnation, or an epoch that was drawn under it.
"""

import secrets
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from moorline.catalog.catalog import Catalog
from moorline.catalog.homes import check_moves, claimed_number
from moorline.catalog.statements import statement
from moorline.core.identity import Claim, ClaimVerdict, Held, is_older_copy, judge
from moorline.errors import ConfigError, IdentityTaken
from moorline.limits import NODE_GONE_MS

LOCK = statement("node_lock")
HELD = statement("node_held")
OTHERS = statement("node_others")
TAKE = statement("node_take")
FENCE = "select moorline.fence_home($1)"
REGISTER = statement("node_register")
RENEW = statement("node_renew")
RELEASE = statement("node_release")

_HOME_NAME_CHARACTERS = 50
_HOME_ID_CHARACTERS = 12


class Granted(msgspec.Struct, frozen=True):
    """The identity is ours."""

    home: str
    home_number: bytes
    """What the ids of its queues end with."""
    verdict: ClaimVerdict
    is_older_copy: bool
    """A process ran under this identity of which our folder knows nothing."""
    name_before: str
    """Empty at the first start."""


class Refused(msgspec.Struct, frozen=True):
    """Another process holds it, as far as the catalog knows."""

    lease_until_ms: int
    lease_left_ms: int
    started_at: datetime
    name: str


class Identities:
    """The part of the catalog that knows who is who."""

    def __init__(
        self,
        catalog: Catalog,
        node_id: bytes,
        incarnation: bytes,
        draw: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._catalog = catalog
        self.incarnation = incarnation
        self._us = (node_id, incarnation)
        self._draw = draw

    async def claim(
        self,
        claim: Claim,
        *,
        name: str,
        home_wanted: str,
        lease_ms: int,
        number_in_folder: bytes = b"",
        moves: int = 0,
    ) -> Granted | Refused:
        """Takes the identity, if the rule allows it. `home_wanted` is what the folder says of its streams.

        `number_in_folder` is the number of its home, if it has one, and `moves` how often that had moved when
        the folder was made. Raises `HomeMoved` if it has moved since. Raises `ConfigError` while another node
        that lives is called so, and `FolderUnusable` if that number is not the one that the catalog knows.
        """
        node_id, incarnation = self._us
        async with self._catalog.transaction() as connection:
            await connection.execute(LOCK)
            # First: whoever has the home elsewhere holds the identity too.
            await check_moves(connection, node_id, number_in_folder, moves)
            row = await connection.fetchrow(HELD, node_id)
            held = None if row is None else _held(row)
            verdict = judge(held, claim, 0 if row is None else row["now_ms"])
            if verdict is ClaimVerdict.TAKEN:
                assert row is not None
                return _refused(row)
            wanted = [home_wanted or name, name, _home_of_its_own(name, node_id)]
            others = await connection.fetchrow(OTHERS, node_id, name, wanted, NODE_GONE_MS)
            if others["is_named"]:
                raise _name_taken(name)
            home = others["home_before"] if row is None else row["home"]
            home = home or _first_free(wanted, others["homes"])
            number = await claimed_number(
                connection, home, node_id, number_in_folder, self._draw, moves=moves
            )
            await connection.execute(TAKE, node_id, home, name, incarnation, claim.lock, lease_ms)
            await connection.execute(FENCE, home)
        self._catalog.acting_as = self._us
        return Granted(
            home=home,
            home_number=number,
            verdict=verdict,
            is_older_copy=is_older_copy(held, claim),
            name_before="" if row is None else row["name"],
        )

    async def register(
        self,
        *,
        roles: Sequence[str],
        addresses: Sequence[str],
        http: str | None,
        version: str,
        shards: Sequence[int] = (),
        mqtt_reference: str = "",
    ) -> bool:
        """Says that the node serves from now on; False if another process has the identity."""
        given = (list(roles), list(addresses), http, version, list(shards), mqtt_reference)
        return bool(await self._catalog.fetchval(REGISTER, *self._us, *given))

    async def renew(
        self, lease_ms: int, *, is_serving: bool, clock_ahead_ms: int | None = None
    ) -> int | None:
        """Holds the identity for another `lease_ms` from now: what the catalog's clock showed then, in
        microseconds, or None if another process has it. `clock_ahead_ms` is how far ours was ahead before."""
        given = (lease_ms, is_serving, clock_ahead_ms)
        told: int | None = await self._catalog.fetchval(RENEW, *self._us, *given)
        return told

    def taken(self) -> IdentityTaken:
        return self._catalog.identity_taken()

    async def release(self) -> None:
        """Gives it back, so that the next claim succeeds at once, wherever it comes from."""
        await self._catalog.execute(RELEASE, *self._us)


def _held(row: Any) -> Held:
    return Held(row["incarnation"], row["lock"], row["lease_until_ms"])


def _refused(row: Any) -> Refused:
    return Refused(
        lease_until_ms=row["lease_until_ms"],
        lease_left_ms=row["lease_until_ms"] - row["now_ms"],
        started_at=row["started_at"],
        name=row["name"],
    )


def _first_free(wanted: Sequence[str], taken: Sequence[str]) -> str:
    """The first that is nobody else's: two nodes in one home would share places, of different messages."""
    return next(home for home in wanted if home not in taken)


def _home_of_its_own(name: str, node_id: bytes) -> str:
    """For a node whose name was another's first: the id makes it differ from every other."""
    return f"{name[:_HOME_NAME_CHARACTERS]}-{node_id.hex()[:_HOME_ID_CHARACTERS]}"


def _name_taken(name: str) -> ConfigError:
    return ConfigError(
        f"another node of this catalog is called {name!r} and alive: give this one a name of its own with "
        f"--node; if the other has just ended for good, try again in {NODE_GONE_MS // 1_000} s"
    )
