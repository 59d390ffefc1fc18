"""Room: client. Where a path is, as a resolver answered: its publishers, and what was granted at each.

An answer names each publisher once, and the paths by places in that list: here they are put together, and an
answer that does not fit itself is refused.
"""

import msgspec

from moorline.core.directory.path import is_at_or_below
from moorline.errors import Malformed
from moorline.wire.resolver import Holder, PathsResolved, ResolvedPath


class Grant(msgspec.Struct, frozen=True):
    """What a resolver gave for one path at one publisher."""

    resolver: bytes
    holder: Holder
    expires_s: int
    permissions: int
    token: bytes

    def __repr__(self) -> str:
        return "Grant(…)"


class FoundPublisher(msgspec.Struct, frozen=True):
    """One publisher of a path, with the grant for it."""

    instance: bytes
    address: str
    principal: str
    priority: int
    mechanisms: tuple[str, ...]
    service: str
    grant: Grant
    roles: tuple[str, ...] = ()
    """Of a node: what it does. A node is found without a token."""


class Resolution(msgspec.Struct, frozen=True):
    """Where a path is."""

    path: str
    permissions: int
    flags: int
    publishers: list[FoundPublisher]


def resolution(answer: PathsResolved, path: str, found: ResolvedPath) -> Resolution:
    """One path of an answer, with all that belongs to it."""
    publishers = []
    for place, token in found.publishers:
        if place >= len(answer.publishers):
            raise Malformed(f"{path} is at a publisher that the answer does not tell of")
        facts = answer.publishers[place]
        grant = Grant(answer.resolver, answer.holder, answer.expires_s, found.permissions, token)
        publishers.append(
            FoundPublisher(
                facts.instance,
                facts.address,
                facts.principal,
                facts.priority,
                facts.mechanisms,
                facts.service,
                grant,
                facts.roles,
            )
        )
    return Resolution(path, found.permissions, found.flags, publishers)


def check_referral(answer: PathsResolved, place: int, path: str) -> None:
    """A referral is for what was asked, and for nothing else."""
    if place >= len(answer.referrals) or not is_at_or_below(path, answer.referrals[place].path):
        raise Malformed(f"{path} is referred to a cluster that is not for it")
