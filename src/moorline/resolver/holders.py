"""Room: resolver. What holders of tokens may do now, as a publisher asks for its subscribers.

A claim is answered by a right only at an entry of the publisher that asks. Where this resolver has no such
entry, or does not know the holder's rights just now, that is said: another resolver may know, and none of it
means that a right was taken away.
"""

from collections.abc import Callable, Generator, Sequence

from moorline.core.access.principal import Proof
from moorline.core.directory.path import DEFAULT, is_path, parent_of
from moorline.core.directory.registry import Registration
from moorline.net.session_rights import SessionRights
from moorline.resolver.rights import BY_PROOF
from moorline.wire.resolver import Holder

Judge = Callable[..., SessionRights]
"""`RightsTable.rights`: what a principal may do, proven like that."""

_PROOFS = {name: proof for proof, name in BY_PROOF.items()}


Judged = tuple[list[int], list[int]]
"""The permissions of each claim, and the places of those that cannot be judged here."""


def judging(
    judge: Judge, registration: Registration, claims: Sequence[tuple[str, int, Holder]]
) -> Generator[None, None, Judged]:
    """To be run in slices: a thousand holders of deep paths take many milliseconds."""
    known: dict[Holder, SessionRights | None] = {}
    permissions: list[int] = []
    unknown: list[int] = []
    for place, (path, _, holder) in enumerate(claims):
        if holder not in known:
            known[holder] = _rights_of(judge, holder)
        rights = known[holder]
        # Of what it does not publish it is told nothing.
        if rights is None or not is_path(path) or not _publishes(registration, path):
            permissions.append(0)
            unknown.append(place)
        else:
            permissions.append(rights.at(path))
        yield
    return permissions, unknown


def _rights_of(judge: Judge, holder: Holder) -> SessionRights | None:
    """None where nobody can say: a proof of another version, or rights that this node does not know now."""
    proof = _PROOFS.get(holder.proof)
    if proof is None:
        return None
    rights = judge(holder.principal, proof, is_local=holder.is_local)
    return rights if rights.is_known else None


def _publishes(registration: Registration, path: str) -> bool:
    """Whether a path is an entry of it, or below one that is a default."""
    entries = registration.entries
    if path in entries:
        return True
    while path != "/":
        path = parent_of(path)
        flags = entries.flags_of(path)
        if flags is not None and flags & DEFAULT:
            return True
    return False


assert {proof.name for proof in Proof} == {proof.name for proof in BY_PROOF}, "a proof has no name"
