"""Room: access. The directory of users that proofs are checked against, over the catalog."""

from moorline.access.known_nodes import KnownNodes, in_time
from moorline.access.passwords import StoredPassword
from moorline.access.proofs import TokenRow, UserRow
from moorline.catalog.users import Users
from moorline.core.access.node_proof import ClusterSecrets


class CatalogDirectory:
    """Whatever the catalog raises means that nobody can say: of users nothing is remembered here."""

    def __init__(self, users: Users, nodes: KnownNodes) -> None:
        self._users = users
        self._nodes = nodes

    async def find_user(self, name: str) -> UserRow | None:
        row = await in_time(self._users.find_user(name))
        if row is None:
            return None
        stored = row.password
        password = None
        if stored is not None:
            password = StoredPassword.of(stored.n, stored.r, stored.p, stored.salt, stored.hash)
        return UserRow(row.name, password, row.is_disabled, row.version)

    async def find_token(self, digest: bytes) -> TokenRow | None:
        row = await in_time(self._users.find_token(digest))
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

    async def cluster_secrets(self) -> ClusterSecrets:
        return await self._nodes.secrets()

    async def has_node(self, home: str) -> bool:
        return home in await self._nodes.homes()
