"""Room: wire. The messages of services: association in bulk, SUBS and SOKS, and the reconciliation.

A node answers for the part of a service at its own home. Which homes there are is told by `ListServiceParts`.

Every one of them fits a block of 16,384 bytes: whoever has more to say says it in several.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.core.sets.prefix import RangeDigest
from moorline.ids import HOME_BYTES, ID_BYTES
from moorline.limits import (
    BLOCK_BYTES_MAX,
    HOME_ADDRESSES_MAX,
    SERVICE_PARTS_PER_PAGE,
    SERVICE_WINDOW_MAX,
)
from moorline.wire.bounds import Body, Code, HashBytes, Id, Name, Words
from moorline.wire.message import Answer, Call, Message
from moorline.wire.queue import QueueId

QUEUES_PER_BLOCK = (BLOCK_BYTES_MAX - 256) // (ID_BYTES + 13)
"""The answer may name each with the code of its refusal, or with its home."""

PREFIXES_PER_BLOCK = (BLOCK_BYTES_MAX - 256) // 16
PAYLOAD_PER_BLOCK = BLOCK_BYTES_MAX - 256

Hash = Annotated[bytes, Meta(min_length=16, max_length=16)]
Count = Annotated[int, Meta(ge=0, le=1 << 48)]
QueueIds = Annotated[list[QueueId], Meta(max_length=QUEUES_PER_BLOCK)]
Bits = Annotated[int, Meta(ge=0, le=64)]
PrefixPair = tuple[Bits, Annotated[int, Meta(ge=0)]]
Prefixes = Annotated[list[PrefixPair], Meta(max_length=PREFIXES_PER_BLOCK)]
NodeId = Annotated[bytes, Meta(max_length=ID_BYTES)]
EstimateBytes = Annotated[bytes, Meta(max_length=448)]
HomeNumber = Annotated[bytes, Meta(max_length=HOME_BYTES)]
"""Empty where none is meant."""
Epoch = Annotated[int, Meta(ge=0, le=1 << 62)]


class OpenService(Call, frozen=True, gc=False, tag=50):
    """This session acts for the service of its certificate from now on."""


class ServiceOpened(Answer, frozen=True, gc=False, tag=51):
    """The kept digest of the part at this node's home, the id of the node, and the number of that home."""

    service: Id
    salt: HashBytes
    count: int
    hash: HashBytes
    node: NodeId = b""
    home: HomeNumber = b""
    epoch: Epoch = 0
    """Of the newest subscriber; 0 before there was one."""


class Associate(Call, frozen=True, gc=False, tag=52):
    """SUB in bulk: these queues belong to the service. Repeating it is harmless."""

    queues: QueueIds


class Associated(Answer, frozen=True, gc=False, tag=53):
    """The service's digest afterwards, and the queues that were refused, with the code why."""

    changed: int
    count: int
    hash: HashBytes
    refused: Annotated[tuple[tuple[Id, Code], ...], Meta(max_length=QUEUES_PER_BLOCK)] = ()
    elsewhere: Annotated[tuple[tuple[Id, HomeNumber], ...], Meta(max_length=QUEUES_PER_BLOCK)] = ()
    """Neither associated nor refused: queues of other homes, with the numbers of these."""


class Dissociate(Call, frozen=True, gc=False, tag=54):
    """BUS: the service's queues with these hashes are its own no longer."""

    prefixes: Prefixes


class Dissociated(Answer, frozen=True, gc=False, tag=55):
    changed: int
    count: int
    hash: HashBytes


class SubscribeService(Call, frozen=True, gc=False, tag=56):
    """SUBS: our digest of the part at a home, and an estimate that lets the node choose the size of its
    sketch.

    An `epoch` of 0 takes the service over, at all nodes; whoever has done so names the one that it was told.
    """

    count: Count
    hash: Hash
    estimate: EstimateBytes = b""
    cells_min: Annotated[int, Meta(ge=0, le=1 << 24)] = 0
    window: Annotated[int, Meta(ge=1, le=SERVICE_WINDOW_MAX)] = 1
    home: HomeNumber = b""
    """Which part is meant; empty for that of whatever node this is."""
    epoch: Epoch = 0
    hears_agreement: bool = False
    """Whether this client agrees again when an operator asks for that: `AgreementWanted`."""


class ServiceSubscribed(Answer, frozen=True, gc=False, tag=57):
    """SOKS: the node's digest; if they differ, what helps to find out. `payload` is the first block."""

    count: int
    hash: HashBytes
    mode: int
    cells: int = 0
    payload_bytes: int = 0
    payload: Body = b""
    absent: int = 0
    """Associated queues of this part that the node does not have."""
    home: HomeNumber = b""
    epoch: Epoch = 0


class PayloadBlock(Message, frozen=True, gc=False, tag=58):
    """Pushed after a SOKS whose payload is longer than a block: the next piece of it."""

    payload: Body
    soks: int = 0


class AllDelivered(Message, frozen=True, gc=False, tag=59):
    """ALLS, pushed: of every queue in which messages waited the first `window` have been delivered.

    The others follow as those are acknowledged.
    """

    delivered: int


class ServiceEnded(Message, frozen=True, gc=False, tag=60):
    """ENDS, pushed: a newer session of the service took over, with the digest at that moment; or another code
    says why the session may not act for it any more, and the digest is nothing's."""

    count: int
    hash: HashBytes
    code: Code = "TAKEN_OVER"


class AskRanges(Call, frozen=True, gc=False, tag=61):
    prefixes: Prefixes


class RangesTold(Answer, frozen=True, gc=False, tag=62):
    ranges: Annotated[list[RangeDigest], Meta(max_length=PREFIXES_PER_BLOCK)]


class AskLists(Call, frozen=True, gc=False, tag=63):
    prefixes: Prefixes


class ListsTold(Answer, frozen=True, gc=False, tag=64):
    """For each prefix the high halves of the hashes, eight bytes each."""

    highs: Annotated[list[Body], Meta(max_length=PREFIXES_PER_BLOCK)]


class CloseService(Call, frozen=True, gc=False, tag=65):
    """This session acts for no service any more, and gets none of its messages: it is a plain one again."""


class ServiceClosed(Answer, frozen=True, gc=False, tag=66):
    """Also where none was open."""


class ListServiceParts(Call, frozen=True, gc=False, tag=420):
    """A page of all homes behind that one, each with the part that a service has there; also answered to the
    service itself. Without a name the service is meant for which the session acts."""

    service: Annotated[str, Meta(max_length=256, pattern=r"^[^\x00]*$")] = ""
    after: HomeNumber = b""


class PartFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A home, the node that has it, and the kept digest of the part."""

    home: HomeNumber
    name: Name
    """Empty for the part of no home: associations of before there were parts, that no node has taken yet."""
    node_id: NodeId
    node: Name
    addresses: Annotated[tuple[Name, ...], Meta(max_length=HOME_ADDRESSES_MAX)]
    is_alive: bool
    count: int
    hash: HashBytes


class ServicePartsListed(Answer, frozen=True, gc=False, tag=421):
    """`count` and `hash` are the service's: the sum of all parts."""

    count: int
    hash: HashBytes
    parts: Annotated[tuple[PartFacts, ...], Meta(max_length=SERVICE_PARTS_PER_PAGE)]
    is_last: bool


class AgreementWanted(Message, frozen=True, gc=False, tag=621):
    """Pushed, to who said that it hears it: an operator wants both sides to agree anew, now. When they have,
    or cannot, `AgreementTold` with that number is the answer."""

    number: int


class Agreement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an agreement took at all homes, as the client counted it; with a `code` why there is none."""

    count: Count = 0
    hash: HashBytes = b""
    rounds: Count = 0
    bytes_sent: Count = 0
    bytes_received: Count = 0
    associated: Count = 0
    dissociated: Count = 0
    lost: Count = 0
    """Queues that the node refused."""
    away: Annotated[tuple[Name, ...], Meta(max_length=HOME_ADDRESSES_MAX)] = ()
    """The first of the homes that did not answer."""
    code: Code = ""
    text: Words = ""


class AgreementTold(Message, frozen=True, gc=False, tag=650):
    """A service tells what came of the agreement of that number."""

    number: Count
    agreement: Agreement


class ServiceAgreed(Answer, frozen=True, gc=False, tag=620):
    """To the operator who asked for it."""

    agreement: Agreement


COMMANDS = (
    AgreementTold
    | OpenService
    | ListServiceParts
    | CloseService
    | Associate
    | Dissociate
    | SubscribeService
    | AskRanges
    | AskLists
)
EVENTS = (
    ServiceOpened
    | ServiceClosed
    | Associated
    | Dissociated
    | ServiceSubscribed
    | PayloadBlock
    | AgreementWanted
    | ServiceAgreed
    | AllDelivered
    | ServiceEnded
    | RangesTold
    | ListsTold
    | ServicePartsListed
)
