"""Room: resolver. Holders of tokens, and what they may do now, as a publisher asks for its subscribers.

A claim is answered by a right only at an entry of the publisher that asks. Where this resolver has no such
entry, or does not know the holder's rights just now, that is said: another resolver may know, and none of it
means that a right was taken away.

Who was proven by a password or a token holds nothing any more when that is not taken any more, as its
sessions at the nodes end by it. A holder has a mark for that, which is under the token.
"""

from collections.abc import Generator, Sequence
from enum import Enum
from typing import Protocol

from moorline.core.access.principal import Proof
from moorline.core.directory.path import DEFAULT, is_path, parent_of
from moorline.core.directory.registry import Registration
from moorline.net.session import Session
from moorline.net.session_rights import SessionRights
from moorline.resolver.rights import BY_PROOF
from moorline.wire.resolver import Holder


class Judge(Protocol):
    """`RightsTable`, as it is asked about those who are not connected here."""

    def rights(self, principal: str, proof: Proof, *, is_local: bool) -> SessionRights:
        """What a principal may do, proven like that."""

    def is_taken(self, principal: str, proof: Proof, mark: bytes) -> bool | None:
        """Whether what proved it then would be taken now; None where this node does not know."""


class Standing(Enum):
    """Of a holder that has no rights to be looked at."""

    UNKNOWN = "unknown"
    """Nobody can say: a proof of another version, or rights that this node does not know now."""
    GONE = "gone"
    """What proved it is not taken any more."""


_PROOFS = {name: proof for proof, name in BY_PROOF.items()}


Judged = tuple[list[int], list[int]]
"""The permissions of each claim, and the places of those that cannot be judged here."""


def holder_of(session: Session) -> Holder:
    """Who has come by a connection, for those who will judge without it."""
    rights, identity = session.rights, session.identity
    ends_ms = identity.expires_ms
    return Holder(
        rights.principal,
        BY_PROOF[rights.proof],
        rights.is_local,
        0 if ends_ms is None else -(-ends_ms // 1_000),
        identity.mark,
    )


def judging(
    judge: Judge, registration: Registration, claims: Sequence[tuple[str, int, Holder]]
) -> Generator[None, None, Judged]:
    """To be run in slices: a thousand holders of deep paths take many milliseconds."""
    known: dict[Holder, SessionRights | Standing] = {}
    permissions: list[int] = []
    unknown: list[int] = []
    for place, (path, _, holder) in enumerate(claims):
        if holder not in known:
            known[holder] = standing_of(judge, holder)
        rights = known[holder]
        # Of what it does not publish it is told nothing.
        if rights is Standing.UNKNOWN or not is_path(path) or not _publishes(registration, path):
            permissions.append(0)
            unknown.append(place)
        else:
            permissions.append(0 if isinstance(rights, Standing) else rights.at(path))
        yield
    return permissions, unknown


def standing_of(judge: Judge, holder: Holder) -> SessionRights | Standing:
    proof = _PROOFS.get(holder.proof)
    if proof is None:
        return Standing.UNKNOWN
    rights = judge.rights(holder.principal, proof, is_local=holder.is_local)
    if not rights.is_known:
        return Standing.UNKNOWN
    is_taken = judge.is_taken(holder.principal, proof, holder.mark)
    if is_taken is None:
        return Standing.UNKNOWN
    return rights if is_taken else Standing.GONE


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
