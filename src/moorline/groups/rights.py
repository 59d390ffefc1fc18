"""Room: groups. Who may do what with a group, and who asks where another node passes on a call."""

from typing import Protocol

from moorline.access.guard import demand, denied
from moorline.catalog.groups import GroupRow
from moorline.core.access.claims import check_claimed_group
from moorline.core.access.principal import Proof
from moorline.core.access.right import ADMINISTER, PUBLISH, SUBSCRIBE
from moorline.core.topic import SharedName
from moorline.net.session_rights import SessionRights
from moorline.topics.paths import path_of_group
from moorline.wire.group import Originator


class Judge(Protocol):
    """Finds the rights of somebody whom this node does not see: `RightsTable.rights`."""

    def __call__(
        self, principal: str, proof: Proof, /, *, is_local: bool, claimed: frozenset[str] = ...
    ) -> SessionRights: ...


def originator_of(rights: SessionRights) -> Originator:
    """What another node is told of whoever asks here."""
    groups = tuple(sorted(rights.claimed))
    return Originator(rights.principal, rights.proof.value, rights.is_local, groups)


def rights_of_originator(judge: Judge, originator: Originator, path: str) -> SessionRights:
    """By the table of this node: what the other one believes is no proof of a right."""
    try:
        proof = Proof(originator.proof)
    except ValueError:
        proof = Proof.NODE
    if proof is Proof.NODE or not originator.principal:
        # No node asks for itself, and one that is older does not say for whom it asks.
        raise denied(ADMINISTER, path)
    claimed = frozenset[str]()
    if proof is Proof.OIDC:
        claimed = frozenset(originator.groups)
        for name in claimed:
            check_claimed_group(name)
    return judge(originator.principal, proof, is_local=originator.is_local, claimed=claimed)


def demand_member(rights: SessionRights, name: SharedName, row: GroupRow | None) -> None:
    """To join a group, or to make one that is not there.

    Who may do neither is told the same in both cases.
    """
    path = path_of_group(name.group)
    if row is not None:
        demand(rights, SUBSCRIBE, path, row.owner)
    elif not rights.at(path) & PUBLISH:
        demand(rights, SUBSCRIBE, path)
        demand(rights, PUBLISH, path)
