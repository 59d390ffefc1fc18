"""Room: catalog. Who may do what: rows of rights, groups of users, quotas and owners, under one version.

    known = await access.load()                     everything
    newer = await access.load(known.version)        what changed since; None if nothing did
    await access.add_grant(Row("/topics/orders", "@sales", grants=SUBSCRIBE), made_by="root")

Every change raises the version in its transaction, and holds it to the end: there is one change at a time.
A version has a mark that the change drew, and the catalog remembers those of the last changes. So a node
whose version is not among them, since it missed too many or since the catalog was restored from a backup,
loads everything, also where the numbers have risen past its own again.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import asyncpg
import msgspec

from moorline.catalog.catalog import Catalog
from moorline.catalog.outcome import HARMLESS, unsure
from moorline.catalog.statements import statement
from moorline.core.access.node_proof import ClusterSecrets
from moorline.core.access.principal import (
    BUILT_IN,
    check_group,
    check_provable,
    check_subject,
)
from moorline.core.access.right import bits_of, letters_of
from moorline.core.access.row import Row, check_row
from moorline.errors import BadGrant, LimitReached
from moorline.limits import (
    ACCESS_LOG_ROWS_MAX,
    ACCESS_MEMBERS_MAX,
    ACCESS_OWNERS_MAX,
    ACCESS_QUOTAS_MAX,
    GRANT_ROWS_MAX,
    GROUPS_PER_PRINCIPAL_MAX,
)

GROUPS_OWNED = statement("group_owned")
SESSIONS_OWNED = statement("session_owned")
VERSION = statement("access_version")
HOLD = statement("access_hold")
KNOWS = statement("access_knows")
REMOVED = statement("access_removed")
COUNTS = statement("access_counts")
GRANTS = statement("access_grants")
MEMBERS = statement("access_members")
USERS = statement("access_users")
TOKENS = statement("access_tokens")
QUOTAS = statement("access_quotas")
OWNERS = statement("access_owners")
GRANT_FIND = statement("access_grant_find")
GRANT_PAGE = statement("access_grant_page")
GRANT_PUT = statement("access_grant_put")
GRANT_REMOVE = statement("access_grant_remove")
MEMBER_FIND = statement("access_member_find")
MEMBER_PAGE = statement("access_member_page")
MEMBER_ADD = statement("access_member_add")
MEMBER_REMOVE = statement("access_member_remove")
QUOTA_PAGE = statement("access_quota_page")
QUOTA_PUT = statement("access_quota_put")
QUOTA_REMOVE = statement("access_quota_remove")
OWNER_PAGE = statement("access_owner_page")
OWNER_PUT = statement("access_owner_put")
OWNER_SESSIONS = statement("access_owner_sessions")
OWNER_GROUPS = statement("access_owner_groups")
SECRETS = statement("access_secrets")
UPGRADE = statement("access_upgrade")
KEEP = statement("access_keep")
CARRIED = statement("access_carried")
NODE_HOMES = statement("node_homes")
ONE_SNAPSHOT = "set transaction isolation level repeatable read, read only"

UPGRADED_BY = "upgrade"
"""Who made the rows that keep what was allowed before there were any."""

QUOTA_KINDS = (
    "connections",
    "queues",
    "topics",
    "groups",
    "subscriptions",
    "stages",
    "sessions",
    "paths",
    "messages_per_s",
    "bytes_per_s",
    "stored_bytes",
    "topic_bytes",
    "heavy_calls_per_s",
)


class Version(NamedTuple):
    """How far a change is behind the first, and what that change drew."""

    number: int
    mark: str


class Removal(NamedTuple):
    kind: str
    """`grant`, `member`, `user`, `token`, `quota` or `owner`."""
    first: str
    second: str


class TokenRow(NamedTuple):
    owner: str
    label: str
    expires_us: int | None


class UserState(NamedTuple):
    """Of a user, what a node remembers: whoever logged on under another version has to do so again."""

    version: int
    is_disabled: bool


class Loaded(NamedTuple):
    """The table, or what changed in it. What is removed goes first: it may be there again."""

    version: Version
    is_whole: bool
    removed: Sequence[Removal]
    grant_rows: Sequence[Any]
    members: Sequence[tuple[str, str]]
    """Group of users, member."""
    users: Sequence[tuple[str, UserState]]
    tokens: Sequence[tuple[bytes, TokenRow]]
    quotas: Sequence[tuple[str, str, int]]
    owners: Sequence[tuple[str, str]]
    """What an owner was known as, and its principal."""

    def grants(self) -> Iterator[Row]:
        """One by one: there may be a hundred thousand."""
        for path, subject, grants, denies in self.grant_rows:
            yield Row(path, subject, bits_of(grants), bits_of(denies))


class GrantEntry(msgspec.Struct, frozen=True):
    """A row, and who made it when."""

    row: Row
    made_by: str
    made_us: int


class OwnerEntry(msgspec.Struct, frozen=True):
    """Somebody who owns something in the catalog; `principal` if it was known by another name."""

    name: str
    principal: str
    sessions: int
    groups: int


class AccessCatalog:
    """The part of the catalog that knows who may do what."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    # --- what nodes read --------------------------------------------------------------------------

    async def version(self) -> Version:
        row = await self._catalog.fetchrow(VERSION)
        return Version(row["version"], row["mark"])

    async def load(self, known: Version | None = None) -> Loaded | None:
        """What is newer than a known version, all of it where the catalog does not know that one."""
        async with self._catalog.transaction() as connection:
            # All of it as it was at one moment.
            await connection.execute(ONE_SNAPSHOT)
            row = await connection.fetchrow(VERSION)
            version = Version(row["version"], row["mark"])
            if version == known:
                return None
            is_whole = known is None or not await connection.fetchval(KNOWS, *known)
            since = -1 if known is None or is_whole else known.number
            removed = [] if is_whole else await connection.fetch(REMOVED, since)
            grants = await connection.fetch(GRANTS, since)
            users = await connection.fetch(USERS, since)
            tokens = await connection.fetch(TOKENS, since)
            return Loaded(
                version=version,
                is_whole=is_whole,
                removed=[Removal(*one) for one in removed],
                grant_rows=grants,
                members=[tuple(one) for one in await connection.fetch(MEMBERS, since)],
                users=[
                    (one["name"], UserState(one["version"], one["is_disabled"])) for one in users
                ],
                tokens=[
                    (one["hash"], TokenRow(one["owner"], one["label"], one["expires_us"]))
                    for one in tokens
                ],
                quotas=[tuple(one) for one in await connection.fetch(QUOTAS, since)],
                owners=[tuple(one) for one in await connection.fetch(OWNERS, since)],
            )

    async def secrets(self) -> ClusterSecrets:
        """What nodes of this cluster prove with that they are."""
        row = await self._catalog.fetchrow(SECRETS)
        left_ms = max(0, row["before_left_ms"])
        return ClusterSecrets(row["secret"], row["before"] if left_ms else b"", left_ms)

    async def groups_owned_by(self, principal: str) -> int:
        """How many groups somebody has made."""
        return int(await self._catalog.fetchval(GROUPS_OWNED, principal))

    async def sessions_owned_by(self, principal: str) -> int:
        """The same of durable sessions."""
        return int(await self._catalog.fetchval(SESSIONS_OWNED, principal))

    async def node_homes(self) -> frozenset[str]:
        """Of all nodes that are of this cluster."""
        return frozenset(row["home"] for row in await self._catalog.fetch(NODE_HOMES))

    # --- rows -------------------------------------------------------------------------------------

    async def add_grant(self, row: Row, *, made_by: str) -> Row:
        """Adds these letters to the row of this path and subject; the row as it is then.

        A letter that is granted is not denied there any more, and the other way round; one that is named in
        both is denied.
        """
        check_row(row)
        async with self.change("the row was added") as connection:
            found = await connection.fetchrow(GRANT_FIND, row.path, row.subject)
            before = Row(row.path, row.subject) if found is None else _entry(found).row
            if found is None:
                await _within(connection, "grants", GRANT_ROWS_MAX, "rows of rights")
            denies = before.denies & ~row.grants | row.denies
            after = Row(row.path, row.subject, (before.grants | row.grants) & ~denies, denies)
            if after != before:
                await _put_grant(connection, after, made_by)
        return after

    async def remove_grant(
        self, path: str, subject: str, letters: int, *, made_by: str
    ) -> Row | None:
        """Takes these letters out of a row, and the row away if it says nothing then; None if it is gone."""
        async with self.change("the row was removed") as connection:
            found = await connection.fetchrow(GRANT_FIND, path, subject)
            if found is None:
                return None
            before = _entry(found).row
            after = Row(path, subject, before.grants & ~letters, before.denies & ~letters)
            if after == before:
                return before
            if after.grants or after.denies:
                await _put_grant(connection, after, made_by)
                return after
            await connection.fetch(GRANT_REMOVE, path, subject, ACCESS_LOG_ROWS_MAX)
        return None

    async def grants(
        self, below: str, subject: str, after: tuple[str, str], count: int
    ) -> list[GrantEntry]:
        """A page of the rows at and below a path, of one subject or (empty) of all."""
        rows = await self._catalog.fetch(GRANT_PAGE, below, subject, *after, count)
        return [_entry(row) for row in rows]

    async def upgraded_rows(self) -> int:
        """Rows that only keep what was allowed before, and that nobody has said yes to."""
        row = await self._catalog.fetchrow(UPGRADE)
        return int(row["rows"]) if row["is_upgraded"] and not row["is_kept"] else 0

    async def keep_upgraded_rows(self) -> int:
        """An operator says yes to them; how many there are."""
        async with self.change("the rows are kept") as connection:
            row = await connection.fetchrow(UPGRADE)
            await connection.execute(KEEP)
        return int(row["rows"]) if row["is_upgraded"] else 0

    async def carry_operators(self, names: Sequence[str]) -> list[str]:
        """Gives the operators of a node's old settings their row; those that got it now.

        Only in a catalog that was there before there were rows, and once: a row that is removed stays so.
        """
        carried: list[str] = []
        async with self.change("the operators got their rows") as connection:
            if not (await connection.fetchrow(UPGRADE))["is_upgraded"]:
                return []
            for name in names:
                try:
                    check_provable(name)
                except BadGrant:
                    continue  # no certificate can prove it any more
                if await connection.fetchval(CARRIED, name) is None:
                    continue
                await _put_grant(connection, Row("/", name, bits_of("slwpdag")), UPGRADED_BY)
                carried.append(name)
        return carried

    # --- groups of users --------------------------------------------------------------------------

    async def add_member(self, group: str, member: str) -> bool:
        """False if it is one already."""
        check_group(group)
        check_provable(member)
        if group in BUILT_IN:
            raise BadGrant(f"{group} is built in: who is in it is found by the connection")
        async with self.change("the member was added") as connection:
            found = await connection.fetchrow(MEMBER_FIND, group, member)
            if found["is_member"]:
                return False
            if found["groups"] >= GROUPS_PER_PRINCIPAL_MAX:
                raise LimitReached(
                    f"{member!r} is in {found['groups']} groups of users, and may be in no more"
                )
            await _within(connection, "members", ACCESS_MEMBERS_MAX, "memberships")
            await connection.execute(MEMBER_ADD, group, member, ACCESS_LOG_ROWS_MAX)
        return True

    async def remove_member(self, group: str, member: str) -> bool:
        """False if it is none."""
        async with self.change("the member was removed") as connection:
            return bool(await connection.fetch(MEMBER_REMOVE, group, member, ACCESS_LOG_ROWS_MAX))

    async def members(
        self, group: str, after: tuple[str, str], count: int
    ) -> list[tuple[str, str]]:
        """A page of groups of users and their members; of all groups where none is named."""
        return [tuple(row) for row in await self._catalog.fetch(MEMBER_PAGE, group, *after, count)]

    # --- quotas -----------------------------------------------------------------------------------

    async def set_quota(self, subject: str, kind: str, amount: int | None) -> bool:
        """None takes the row away; False if there was none to take."""
        check_quota(subject, kind)
        async with self.change("the quota was set") as connection:
            if amount is None:
                gone = await connection.fetch(QUOTA_REMOVE, subject, kind, ACCESS_LOG_ROWS_MAX)
                return bool(gone)
            await _within(connection, "quotas", ACCESS_QUOTAS_MAX, "rows of quotas")
            await connection.execute(QUOTA_PUT, subject, kind, amount, ACCESS_LOG_ROWS_MAX)
        return True

    async def quotas(
        self, subject: str, after: tuple[str, str], count: int
    ) -> list[tuple[str, str, int]]:
        return [tuple(row) for row in await self._catalog.fetch(QUOTA_PAGE, subject, *after, count)]

    # --- owners -----------------------------------------------------------------------------------

    async def map_owner(self, known_as: str, principal: str) -> tuple[int, int]:
        """What belongs to that name belongs to the principal from now on; how many sessions and groups."""
        check_provable(principal)
        if not known_as or known_as == principal:
            raise BadGrant("an owner is mapped from another name than its principal's")
        async with self.change("the owner was mapped") as connection:
            await _within(connection, "owners", ACCESS_OWNERS_MAX, "owners")
            sessions = await connection.fetchval(OWNER_SESSIONS, known_as, principal)
            groups = await connection.fetchval(OWNER_GROUPS, known_as, principal)
            await connection.execute(OWNER_PUT, known_as, principal, ACCESS_LOG_ROWS_MAX)
        return int(sessions), int(groups)

    async def owners(self, after: str, count: int) -> list[OwnerEntry]:
        rows = await self._catalog.fetch(OWNER_PAGE, after, count)
        return [OwnerEntry(**row) for row in rows]

    # --- for the other modules of this room -------------------------------------------------------

    @asynccontextmanager
    async def change(self, what: str) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy]:
        """One transaction, and the only one that changes something here while it lasts.

        Whoever waits hears that it failed only if it was not done, and will not be.
        """
        with unsure(what, HARMLESS):
            async with self._catalog.transaction() as connection:
                if await connection.fetchrow(HOLD, *self._catalog.acting_as) is None:
                    raise self._catalog.identity_taken()
                yield connection


def check_quota(subject: str, kind: str) -> None:
    """Refuses what cannot be a row of quotas."""
    check_subject(subject)
    if kind not in QUOTA_KINDS:
        raise BadGrant(f"{kind!r} is no quota; accepted: {', '.join(QUOTA_KINDS)}")


async def _within(
    connection: asyncpg.pool.PoolConnectionProxy, column: str, count_max: int, what: str
) -> None:
    """Every node has all of them in memory."""
    if (await connection.fetchrow(COUNTS))[column] >= count_max:
        raise LimitReached(f"there are {count_max} {what}, and may be no more: remove some")


async def _put_grant(connection: asyncpg.pool.PoolConnectionProxy, row: Row, made_by: str) -> None:
    await connection.execute(
        GRANT_PUT,
        row.path,
        row.subject,
        letters_of(row.grants),
        letters_of(row.denies),
        made_by,
        ACCESS_LOG_ROWS_MAX,
    )


def _entry(row: Any) -> GrantEntry:
    return GrantEntry(
        Row(row["path"], row["subject"], bits_of(row["grants"]), bits_of(row["denies"])),
        row["made_by"],
        row["made_us"],
    )
