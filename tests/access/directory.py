"""A directory of users in memory, and peers: what the catalog and the listeners will be."""

import msgspec

from moorline.access.passwords import Cost, store_password
from moorline.access.proofs import TokenRow, UserRow
from moorline.access.tokens import token_hash
from moorline.core.access.certificate import PeerCertificate
from moorline.core.access.node_proof import ClusterSecrets

LIGHT = Cost(cost=4, block=1, lanes=1)
"""For tests of all but the cost itself."""


class Directory:
    def __init__(self, cost: Cost = LIGHT) -> None:
        self.cost = cost
        self.users: dict[str, UserRow] = {}
        self.tokens: dict[bytes, TokenRow] = {}
        self.nodes: set[str] = set()
        self.secret = b"s" * 32
        self.secret_before = b""
        self.is_away = False
        self.asked = 0

    def add(self, name: str, password: str = "", *, is_disabled: bool = False) -> None:
        stored = store_password(password, self.cost) if password else None
        self.users[name] = UserRow(name, stored, is_disabled)

    def add_token(self, token: str, row: TokenRow) -> None:
        digest = token_hash(token)
        assert digest is not None
        self.tokens[digest] = row

    async def find_user(self, name: str) -> UserRow | None:
        self._reach()
        return self.users.get(name)

    async def find_token(self, digest: bytes) -> TokenRow | None:
        self._reach()
        return self.tokens.get(digest)

    async def cluster_secrets(self) -> ClusterSecrets:
        self._reach()
        return ClusterSecrets(self.secret, self.secret_before)

    async def has_node(self, home: str) -> bool:
        self._reach()
        return home in self.nodes

    def _reach(self) -> None:
        self.asked += 1
        if self.is_away:
            raise ConnectionResetError("the catalog is away")


class Visitor(msgspec.Struct, frozen=True):
    address: str = "192.0.2.1"
    is_encrypted: bool = True
    certificate: PeerCertificate | None = None


def certificate(*, is_node: bool) -> PeerCertificate:
    return PeerCertificate(
        common_names=("home-2",),
        issuer="CN=nodes",
        serial=1,
        not_before_ms=0,
        not_after_ms=1 << 50,
        is_for_clients=True,
        is_of_client_authority=not is_node,
        is_of_node_authority=is_node,
        fingerprint=b"",
    )
