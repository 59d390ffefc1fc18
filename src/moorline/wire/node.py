"""Room: wire. Calls that every node answers, whatever its roles."""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.limits import (
    ADDRESS_LENGTH_MAX,
    HOMES_SHOWN_MAX,
    NODE_ADDRESSES_MAX,
    NODE_WARNINGS_MAX,
    NODES_PER_PAGE_MAX,
)
from moorline.wire.bounds import Body, Name, Words
from moorline.wire.group import Originator
from moorline.wire.link import Roles
from moorline.wire.message import Answer, Call

AddressText = Annotated[str, Meta(max_length=ADDRESS_LENGTH_MAX)]
Addresses = Annotated[tuple[AddressText, ...], Meta(max_length=NODE_ADDRESSES_MAX)]


class Echo(Call, frozen=True, gc=False, tag=7):
    """Answers with the same bytes: for tests, benchmarks and `is it there?`."""

    body: Body


class Echoed(Answer, frozen=True, gc=False, tag=8):
    body: Body


class Describe(Call, frozen=True, gc=False, tag=9):
    """Asks a node about itself: `moor status`."""

    originator: Originator = Originator()
    """Of a call that a node passes on; from anybody else it means nothing."""


class Described(Answer, frozen=True, gc=False, tag=10):
    node: Name
    software: Name
    roles: Roles
    addresses: Addresses
    http: AddressText
    catalog: Words
    catalog_version: int
    uptime_ms: int
    connections: int
    process: int
    warnings: Annotated[tuple[Words, ...], Meta(max_length=NODE_WARNINGS_MAX)] = ()
    """What the node does not do at the moment, and why; a handful of sentences at most."""
    home: Name = ""
    """What its streams, places and leases are known by: the name that it had first."""
    connections_max: int = 0
    """How many it takes at once; the open-files limit may have lowered what is set."""
    descriptors: int = 0
    """File descriptors that its process has open, and may have open at most."""
    descriptors_max: int = 0


class ConfirmClock(Call, frozen=True, gc=False, tag=45):
    """The operator's: the node's wall clock is right, although it has jumped."""


class ClockConfirmed(Answer, frozen=True, gc=False, tag=46):
    """Whether it was held, and how far it was ahead (below 0: behind) of where it was expected."""

    was_held: bool
    jump_ms: int


class NodeFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node that started once, as the catalog knows it."""

    home: Name
    name: Name
    id: Name
    roles: Roles
    addresses: Addresses
    http: AddressText
    version: Name
    is_alive: bool
    """Whether it gave a sign of life lately."""
    started_us: int
    silent_ms: int | None
    """Since its last sign of life; null where it never served."""
    clock_ahead_ms: int | None
    """Of its wall clock before the catalog's; null where it was not compared."""
    homes: Annotated[tuple[Name, ...], Meta(max_length=HOMES_SHOWN_MAX)]
    homes_count: int
    groups_led: int


class ListNodes(Call, frozen=True, gc=False, tag=374):
    """A page of all nodes of the cluster, by their homes, behind that one."""

    after: Name = ""


class NodesListed(Answer, frozen=True, gc=False, tag=375):
    nodes: Annotated[tuple[NodeFacts, ...], Meta(max_length=NODES_PER_PAGE_MAX)]
    is_last: bool
