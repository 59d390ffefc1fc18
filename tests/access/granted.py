"""For tests of one room behind a listener, without a catalog: rights that are simply given."""

from collections.abc import Callable

from moorline.access.guard import Declarations
from moorline.core.access.principal import ANONYMOUS, Proof
from moorline.core.access.right import EVERYTHING, NOTHING
from moorline.net.session import Handlers, Session
from moorline.net.session_rights import Passing, Wanted


class GivenRights:
    """The same rights everywhere; what belongs to its principal is its own."""

    is_known = True
    is_local = False
    claimed = frozenset[str]()

    def __init__(self, principal: str, bits: int, *, is_node: bool = False) -> None:
        self.principal = principal
        self.proof = Proof.NODE if is_node else Proof.PASSWORD
        self.is_node = is_node
        self.passing: dict[Wanted, Passing] = {}
        self._bits = bits

    def at(self, path: str) -> int:  # noqa: ARG002
        return self._bits

    def everywhere(self, subtree: str) -> int:  # noqa: ARG002
        return self._bits

    def first_lacking(self, right: int, below: str, names: list[str]) -> str | None:
        return None if self._bits & right else f"{below}/{names[0]}"

    def somewhere(self, right: int, below: str, apart: frozenset[str] = frozenset()) -> bool:  # noqa: ARG002
        return bool(self._bits & right)

    def denied(self, right: int, path: str) -> bool:  # noqa: ARG002
        return False

    def all_granted(self, right: int, below: str, names: list[str]) -> bool:
        return not names or self.first_lacking(right, below, names) is None

    def all_undenied(
        self,
        right: int,  # noqa: ARG002
        below: str,  # noqa: ARG002
        names: list[bytes],  # noqa: ARG002
        path_of: Callable[[bytes], str],  # noqa: ARG002
    ) -> bool:
        return True

    def denied_within(self, right: int, subtree: str) -> bool:  # noqa: ARG002
        return False

    def owns(self, owner: str) -> bool:
        return bool(owner) and owner == self.principal != ANONYMOUS

    def check_known(self) -> None:
        pass


def as_before_rows(session: Session) -> GivenRights:
    """Anonymous on this machine may do everything, whoever has a certificate what is its own."""
    identity = session.identity
    return GivenRights(identity.name, EVERYTHING if identity.proof is Proof.NOTHING else NOTHING)


def unguarded(declared: Declarations) -> Handlers:
    """The handlers alone: for tests of what they do, and not of who may."""
    return {kind: one.handler for kind, one in declared.items()}
