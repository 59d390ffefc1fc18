"""Room: wire. Calls by which an operator changes a cluster: a node leaves it, nodes get another secret."""

from typing import Annotated

from msgspec import Meta

from moorline.limits import CLUSTER_SECRET_OLD_MS_MAX, CLUSTER_SECRET_OLD_S
from moorline.wire.bounds import Name
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


COMMANDS = RemoveNode | RenewClusterSecret
EVENTS = NodeRemoved | ClusterSecretRenewed
