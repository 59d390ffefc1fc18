"""Room: wire. Calls by which an operator changes a cluster: a node is drained, copied, or leaves it, nodes
get another secret."""

from typing import Annotated

from msgspec import Meta

from moorline.limits import (
    ADDRESS_LENGTH_MAX,
    CLUSTER_SECRET_OLD_MS_MAX,
    CLUSTER_SECRET_OLD_S,
    DRAIN_PER_S,
    DRAIN_PER_S_MAX,
    HOME_ADDRESSES_MAX,
)
from moorline.wire.bounds import Name, Words
from moorline.wire.message import Answer, Call


class RemoveNode(Call, frozen=True, gc=False, tag=485):
    """The node of that home is not of the cluster any more: its links are cut, what it leads is fenced."""

    home: Name
    is_forced: bool = False
    """Also if it lives; its process ends then."""


class NodeRemoved(Answer, frozen=True, gc=False, tag=486):
    name: Name


class RenewClusterSecret(Call, frozen=True, gc=False, tag=487):
    """Nodes prove themselves by another secret from now on."""

    old_for_ms: Annotated[int, Meta(ge=0, le=CLUSTER_SECRET_OLD_MS_MAX)] = (
        CLUSTER_SECRET_OLD_S * 1_000
    )
    """For so long the one before is taken beside it."""


class ClusterSecretRenewed(Answer, frozen=True, gc=False, tag=488):
    old_for_ms: int


class FindHome(Call, frozen=True, gc=False, tag=563):
    """Where the node is that has a home now."""

    home: Name


class HomeFound(Answer, frozen=True, gc=False, tag=564):
    home: Name
    addresses: Annotated[
        tuple[Annotated[str, Meta(max_length=ADDRESS_LENGTH_MAX)], ...],
        Meta(max_length=HOME_ADDRESSES_MAX),
    ]


class DrainNode(Call, frozen=True, gc=False, tag=561):
    """Whoever can be at another node is sent there, and groups are led elsewhere: before a stop. Asked again
    it goes on, and tells how far it is."""

    home: Name = ""
    """The node that is meant; empty for the one that is asked."""
    per_s: Annotated[int, Meta(ge=1, le=DRAIN_PER_S_MAX)] = DRAIN_PER_S
    """So many clients and groups a second at most."""
    is_over: bool = False
    """The node is as before: clients may come, and it may lead."""
    is_look: bool = False
    """Only tell how far it is: `NOT_FOUND` where none is under way."""


class NodeDrained(Answer, frozen=True, gc=False, tag=562):
    home: Name
    moved: int
    """Clients and groups that were sent away since it began."""
    clients: int
    """That can be at another node and are here."""
    groups_led: int
    staying: int
    """Clients that know this node only, or want what only this one has: they wait for its next start."""


class BackUpNode(Call, frozen=True, gc=False, tag=634):
    """The node holds all of its files as they are at one moment, for a copy that is made beside it. Asked
    again with the name of that cut it tells how far it is. The cut ends with the connection."""

    cut: Name = ""
    is_over: bool = False
    """The copy is made, or given up: the node holds nothing any more."""


class NodeHeld(Answer, frozen=True, gc=False, tag=635):
    cut: Name
    phase: Name
    """Of `linking`, `catalog`, `ready`, `over`."""
    folder: Words
    """Where the node holds them, on its own machine."""
    files: int
    bytes: int
    stopped_us: int
    """For so long nothing was committed, at the cut."""


COMMANDS = RemoveNode | RenewClusterSecret | FindHome | DrainNode | BackUpNode
EVENTS = NodeRemoved | ClusterSecretRenewed | HomeFound | NodeDrained | NodeHeld
