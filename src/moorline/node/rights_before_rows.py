"""Room: node. Rights as they were before there were rows: until the node is given its table of rights."""

from collections.abc import Collection

from moorline.core.access.principal import ANONYMOUS, Proof
from moorline.core.access.right import ADMINISTER, EVERYTHING
from moorline.net.session import Session


class RightsBeforeRows:
    """Everybody may do everything with topics, and operators administer groups."""

    is_known = True
    is_node = False

    def __init__(
        self, principal: str, proof: Proof, *, is_local: bool, bits: int = EVERYTHING
    ) -> None:
        self._bits = bits
        self.principal = principal
        self.proof = proof
        self.is_local = is_local

    def at(self, path: str) -> int:  # noqa: ARG002
        return self._bits

    def everywhere(self, subtree: str) -> int:  # noqa: ARG002
        return self._bits

    def owns(self, owner: str) -> bool:
        return owner == self.principal != ANONYMOUS

    def check_known(self) -> None:
        pass


def rights_before_rows(session: Session, operators: Collection[str]) -> RightsBeforeRows:
    identity = session.identity
    proof = Proof.NOTHING if identity.is_anonymous else Proof.CERTIFICATE
    bits = EVERYTHING if session.is_operator(operators) else EVERYTHING & ~ADMINISTER
    return RightsBeforeRows(identity.name, proof, is_local=identity.is_anonymous, bits=bits)
