"""Room: wire. The messages of operators: services listed, compared, put right, switched off and on.

A service is named by its name, its id as text, or the beginning of its fingerprint in hex; the node finds
out which one is meant. `OpenNamedService` lets the commands of wire.service work for it.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.ids import ID_BYTES
from moorline.limits import WRONG_QUEUES_TOLD_MAX
from moorline.wire.bounds import HashBytes, Id, Words
from moorline.wire.message import Answer, Call
from moorline.wire.service import (
    QUEUES_PER_BLOCK,
    Count,
    EstimateBytes,
    Hash,
    HomeNumber,
    NodeId,
)

SERVICES_PER_PAGE = 64
"""Rows of one answer to a listing of services: about 10 KB."""

# Postgres takes no NUL in a text.
ServiceName = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[^\x00]*$")]
PageSize = Annotated[int, Meta(ge=1, le=SERVICES_PER_PAGE)]
WrongQueues = Annotated[tuple[Id, ...], Meta(max_length=WRONG_QUEUES_TOLD_MAX)]
Fingerprint = Annotated[bytes, Meta(max_length=64)]
Buckets = Annotated[list[int], Meta(max_length=256)]
BlockSize = Annotated[int, Meta(ge=1, le=QUEUES_PER_BLOCK)]


class ServiceFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A service as its row tells; count and hash are the kept digest."""

    id: Id
    fingerprint: Fingerprint
    name: Words
    is_disabled: bool
    is_subscribed: bool
    created_s: int
    count: int
    hash: HashBytes


class ListServices(Call, frozen=True, gc=False, tag=70):
    """A page of all services, by name."""

    skip: Count = 0
    count: PageSize = SERVICES_PER_PAGE


class ServicesListed(Answer, frozen=True, gc=False, tag=71):
    """`total` services are there in all; an empty page is the end."""

    total: int
    services: Annotated[list[ServiceFacts], Meta(max_length=SERVICES_PER_PAGE)]


class DescribeService(Call, frozen=True, gc=False, tag=72):
    """Reads all associations of a service; also answered to the service itself."""

    service: ServiceName


class ServiceDescribed(Answer, frozen=True, gc=False, tag=73):
    """The digest as recomputed from the ids, the queues in each bucket, and the buckets that are kept wrong.

    `wrong_hashes` rows have a stored hash that is not that of their id; `wrong_queues` are the first of them.
    """

    facts: ServiceFacts
    sessions: int
    recomputed_count: int
    recomputed_hash: HashBytes
    buckets: Buckets
    wrong_buckets: Buckets
    wrong_hashes: int = 0
    wrong_queues: WrongQueues = ()
    node: NodeId = b""
    absent: int = 0
    """Queues of the part at this node's home that it does not have."""
    home: HomeNumber = b""
    told_us: int = 0
    """When the subscribed session told its digest of this part last; 0: none has, since the node began."""
    told_count: int = 0
    told_hash: HashBytes = b""
    """That digest, which is of the client's own list."""
    answered_count: int = 0
    answered_hash: HashBytes = b""
    """The node's, at that moment."""
    can_agree: bool = False
    """Whether that session agrees again if it is asked (`AgreeService`)."""


class RecomputeService(Call, frozen=True, gc=False, tag=74):
    """Hashes the ids of all associations anew, and puts their hashes and the kept digest right."""

    service: ServiceName


class ServiceRecomputed(Answer, frozen=True, gc=False, tag=75):
    """What was kept, what it is now, and how many of the 256 buckets and of the rows' hashes were wrong."""

    kept_count: int
    kept_hash: HashBytes
    count: int
    hash: HashBytes
    wrong_buckets: int
    wrong_hashes: int = 0
    wrong_queues: WrongQueues = ()


class SwitchService(Call, frozen=True, gc=False, tag=76):
    """Disables a service and ends its sessions, or enables it again."""

    service: ServiceName
    is_disabled: bool


class ServiceSwitched(Answer, frozen=True, gc=False, tag=77):
    changed: bool
    sessions_ended: int


class ListServiceQueues(Call, frozen=True, gc=False, tag=78):
    """A page of a service's queues behind that one, in the order of their homes and hashes."""

    service: ServiceName
    after: Annotated[bytes, Meta(max_length=ID_BYTES)] = b""
    count: BlockSize = QUEUES_PER_BLOCK
    home: HomeNumber = b""
    """Of the part at that home alone; empty for all parts, one behind the other."""


class ServiceQueuesListed(Answer, frozen=True, gc=False, tag=79):
    """`total` is what the kept digest counts; an empty page is the end."""

    total: int
    queues: Annotated[list[Id], Meta(max_length=QUEUES_PER_BLOCK)]


class AgreeService(Call, frozen=True, gc=False, tag=619):
    """Asks the service's own session, if it is subscribed at this node, to agree with its nodes anew and to
    repair what differs; answered by its `ServiceAgreed`."""

    service: ServiceName


class OpenNamedService(Call, frozen=True, gc=False, tag=80):
    """This session acts for that service from now on, but is not subscribed; answered as `OpenService`."""

    service: ServiceName


class VerifyService(Call, frozen=True, gc=False, tag=81):
    """As `SubscribeService`, and answered like it, without the subscription."""

    count: Count
    hash: Hash
    estimate: EstimateBytes = b""
    cells_min: Annotated[int, Meta(ge=0, le=1 << 24)] = 0
    home: HomeNumber = b""


COMMANDS = (
    ListServices
    | AgreeService
    | DescribeService
    | RecomputeService
    | SwitchService
    | ListServiceQueues
    | OpenNamedService
    | VerifyService
)
EVENTS = (
    ServicesListed | ServiceDescribed | ServiceRecomputed | ServiceSwitched | ServiceQueuesListed
)
