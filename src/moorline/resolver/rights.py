"""Room: resolver. Rights at paths of values, as the resolver's commands ask for them.

What the cluster publishes of itself is open to whoever is let in, unless a row denies it.
"""

from moorline.core.access.principal import Proof
from moorline.core.access.right import EVERYTHING, LIST, SUBSCRIBE, WRITE
from moorline.errors import Denied, RightsUnknown
from moorline.net.session_rights import SessionRights
from moorline.resolver.cluster_entries import OPEN_SUBTREES

MAY_RESOLVE = SUBSCRIBE | WRITE
OPEN_LEVELS = frozenset(subtree[1:] for subtree in OPEN_SUBTREES)

BY_PROOF = {proof: "anonymous" if proof is Proof.NOTHING else proof.value for proof in Proof}
"""The mechanism of a proof, as publishers name those that they take."""


def is_open(path: str) -> bool:
    """Whether it is the cluster's own, which nobody has to be granted."""
    return path[1:].partition("/")[0] in OPEN_LEVELS


def may_list(rights: SessionRights, path: str) -> bool:
    if rights.at(path) & LIST:
        return True
    return is_open(path) and not rights.denied(LIST, path)


def rights_at(rights: SessionRights, path: str) -> int:
    bits = rights.at(path)
    if is_open(path):
        for right in (SUBSCRIBE, LIST):
            if not rights.denied(right, path):
                bits |= right
    return bits


def has_everything(rights: SessionRights) -> bool:
    """One look for a whole batch, for those who may do everything."""
    return rights.everywhere("/") == EVERYTHING


def why_not(rights: SessionRights) -> str:
    """The code for a path that is not granted."""
    return Denied.code if rights.is_known else RightsUnknown.code
