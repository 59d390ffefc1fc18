"""Room: wire. What of a node changes while somebody looks, pushed to whoever looks: views.

A view is a value of the node, subscribed to as values of publishers are (wire/value.py) but without a token:
the node judges by the rights of the session. `SubscribeView` is answered by `ValuesSubscribed`, goes on by
`ValuesChanged` and is given up by `UnsubscribeValues`; `ValuesEnded` says that the node gives it up. The
value is the message by which a call for the same would be answered: an array of its tag and its fields.

    nodes             NodesListed        all nodes of the cluster
    nodes/HOME        Described          how one of them is
    figures/HOME      FiguresRead        what it does, with the newest step
    groups/NAME       GroupDescribed     the grid of a group
    services/NAME     ServiceDescribed   whether a service and its nodes agree
    list/CALL         its answer         a page of a list; CALL is the call for it, as JSON
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.limits import (
    FIGURES_SERIES_MAX,
    FIGURES_STEPS_MAX,
    VIEW_CHARACTERS_MAX,
)
from moorline.wire.bounds import Name
from moorline.wire.group import Originator
from moorline.wire.message import Answer, Call

Series = Annotated[list[float], Meta(max_length=FIGURES_STEPS_MAX)]


class SubscribeView(Call, frozen=True, gc=False, tag=660):
    """From now on, what changes of a view. Needs what the call needs by which the same would be asked."""

    view: Annotated[str, Meta(min_length=1, max_length=VIEW_CHARACTERS_MAX)]


class ReadFigures(Call, frozen=True, gc=False, tag=661):
    """What a node did in the last minutes, step by step."""

    home: Name = ""
    """The node that is meant; empty for the one that is asked."""
    since: Annotated[int, Meta(ge=0)] = 0
    """The steps behind that one; all that are kept for 0."""
    originator: Originator = Originator()
    """Of a call that a node passes on; from anybody else it means nothing."""


class NodeNow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a node has at the moment."""

    queues: int
    connections: int
    groups_led: int
    group_lag: int
    paths: int
    tables: int
    memory_bytes: int


class FiguresRead(Answer, frozen=True, gc=False, tag=662):
    """`step` is the number of the newest one, from 1 on since the node began. Each series has the same steps,
    the newest last: messages per second that were sent to queues, delivered from them, published to topics
    and delivered from those; then within how many milliseconds 99 of 100 commits of queues, and of streams,
    were done lately."""

    home: Name
    step: int
    step_ms: int
    series: Annotated[list[Series], Meta(max_length=FIGURES_SERIES_MAX)]
    now: NodeNow


COMMANDS = SubscribeView | ReadFigures
EVENTS = FiguresRead
