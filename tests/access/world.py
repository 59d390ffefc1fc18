"""A table of rights over a source that is changed by hand, with the time in hand too."""

import uuid
from collections.abc import Callable

from moorline.access.rights import Rights
from moorline.access.rights_table import RightsTable
from moorline.catalog.access import Loaded, Removal, TokenRow, UserState, Version
from moorline.core.access.freshness import Freshness
from moorline.core.access.principal import Proof
from moorline.core.access.right import letters_of
from moorline.core.access.row import Row
from moorline.errors import CatalogUnreachable

REVOCATION_MS, STALE_MS = 2_000, 60_000


class Rows:
    """A source of rights in memory: what the catalog promises, without Postgres."""

    def __init__(self, *rows: Row) -> None:
        self.is_away = False
        self.asked: Callable[[], None] = lambda: None
        """Called at each question."""
        self.loads: list[bool] = []
        """Of each load, whether it was of everything."""
        self._rows = {(row.path, row.subject): (0, row) for row in rows}
        self._members: dict[tuple[str, str], int] = {}
        self._owners: dict[str, tuple[int, str]] = {}
        self._users: dict[str, tuple[int, UserState]] = {}
        self._tokens: dict[bytes, tuple[int, TokenRow]] = {}
        self._removed: list[tuple[int, Removal]] = []
        self._versions = [Version(0, uuid.uuid4().hex)]

    def put(self, row: Row) -> None:
        self._rows[row.path, row.subject] = (self._next(), row)

    def remove(self, row: Row) -> None:
        del self._rows[row.path, row.subject]
        self._removed.append((self._next(), Removal("grant", row.path, row.subject)))

    def add_member(self, group: str, member: str) -> None:
        self._members[group, member] = self._next()

    def remove_member(self, group: str, member: str) -> None:
        del self._members[group, member]
        self._removed.append((self._next(), Removal("member", group, member)))

    def map_owner(self, known_as: str, principal: str) -> None:
        self._owners[known_as] = (self._next(), principal)

    def put_user(self, name: str, *, is_disabled: bool = False) -> int:
        """Changes it, or makes it; its version then."""
        at = self._next()
        self._users[name] = (at, UserState(at, is_disabled))
        return at

    def remove_user(self, name: str) -> None:
        del self._users[name]
        self._removed.append((self._next(), Removal("user", name, "")))

    def put_token(self, digest: bytes, owner: str) -> int:
        at = self._next()
        self._tokens[digest] = (at, TokenRow(owner, "t", None))
        return at

    def remove_token(self, digest: bytes) -> None:
        del self._tokens[digest]
        self._removed.append((self._next(), Removal("token", "", digest.hex())))

    def forget_versions(self) -> None:
        """As after a backup was restored: the number is lower, and nobody knows the later ones."""
        self._versions = [Version(0, uuid.uuid4().hex)]

    async def version(self) -> Version:
        self._answer()
        return self._versions[-1]

    async def load(self, known: Version | None = None) -> Loaded | None:
        self._answer()
        version = self._versions[-1]
        if version == known:
            return None
        is_whole = known is None or known not in self._versions
        self.loads.append(is_whole)
        since = -1 if is_whole or known is None else known.number
        return Loaded(
            version=version,
            is_whole=is_whole,
            removed=[] if is_whole else [one for at, one in self._removed if at > since],
            grant_rows=[
                (row.path, row.subject, letters_of(row.grants), letters_of(row.denies))
                for at, row in self._rows.values()
                if at > since
            ],
            members=[one for one, at in self._members.items() if at > since],
            users=[(name, state) for name, (at, state) in self._users.items() if at > since],
            tokens=[(digest, row) for digest, (at, row) in self._tokens.items() if at > since],
            quotas=[],
            owners=[(old, name) for old, (at, name) in self._owners.items() if at > since],
        )

    def _next(self) -> int:
        version = Version(self._versions[-1].number + 1, uuid.uuid4().hex)
        self._versions.append(version)
        return version.number

    def _answer(self) -> None:
        self.asked()
        if self.is_away:
            raise CatalogUnreachable("it is away")


class World:
    """The table of one node."""

    def __init__(self, *rows: Row, is_embedded: bool = False) -> None:
        self.source = Rows(*rows)
        self.now_ms = 1_000_000
        self.table = RightsTable(
            self.source,
            revocation_ms=REVOCATION_MS,
            stale_ms=STALE_MS,
            is_embedded=is_embedded,
            now_ms=lambda: self.now_ms,
        )

    @classmethod
    async def loaded(cls, *rows: Row, is_embedded: bool = False) -> "World":
        world = cls(*rows, is_embedded=is_embedded)
        await world.table.refresh()
        return world

    def user(self, principal: str = "alice") -> Rights:
        return self.table.rights(principal, Proof.PASSWORD, is_local=False)

    def stranger(self, *, is_local: bool = True) -> Rights:
        return self.table.rights("anonymous", Proof.NOTHING, is_local=is_local)

    def node(self) -> Rights:
        return self.table.rights("$node/n1", Proof.NODE, is_local=False)

    def freshness(self) -> Freshness:
        return self.table.freshness

    def pass_ms(self, ms: int) -> None:
        """The time goes on, and the table looks at it as it does between two questions."""
        self.now_ms += ms
        self.table._judge_freshness()
