"""Room: wire. The end of a topic: what it has is hidden from all readers, at all nodes."""

from typing import Annotated

from msgspec import Meta, field

from moorline.limits import CLUSTER_NODES_MAX
from moorline.wire.bounds import Code, Name
from moorline.wire.group import Originator
from moorline.wire.message import Answer, Call
from moorline.wire.topic import Topic


class DeleteTopic(Call, frozen=True, gc=False, tag=651):
    """Hides the messages that a topic has, and takes back its retained message.

    A node that is asked asks the others, each with `is_here`. With `force` it does so too while some are
    away; else nothing is done then.
    """

    topic: Topic
    force: bool = False
    is_here: bool = False
    """Only what this node has."""
    originator: Originator = Originator()
    """Of a call that a node passes on; from anybody else it means nothing."""


class TopicDeleted(Answer, frozen=True, gc=False, tag=652):
    """So many messages were hidden. `left` are the homes where that is not known to be done, with the code
    of the reason."""

    messages: int
    left: Annotated[list[tuple[Name, Code]], Meta(max_length=CLUSTER_NODES_MAX)] = field(
        default_factory=list
    )


COMMANDS = DeleteTopic
EVENTS = TopicDeleted
