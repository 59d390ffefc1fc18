"""Room: wire. The messages of staged writes: rows that wait at a node, and the commit that publishes them.

    OpenStage ─► StageRows … ─► CloseStage      a task: its rows are durable, and nobody sees them
    CommitStaged                                the driver: all stages of a batch are published, once
    AbortStaged                                 or none of them

A *stage* is what one attempt of one task wrote. Its rows travel in chunks: `rows` is what wire.packed_rows
draws for topics, or msgpack of a list of `QueueRow` for queues. The node keeps the chunks as they came, and
the digest of a stage is the XXH3-128 of all of them, one behind the other.
"""

import hashlib
from typing import Annotated

import msgspec
import xxhash
from msgspec import Meta

from moorline.core.access.principal import ANONYMOUS
from moorline.errors import Malformed
from moorline.limits import STAGED_REFUSED_NAMED_MAX, TOPIC_BYTES_MAX
from moorline.wire.bounds import Body, Code, Id, Name, RowsMax
from moorline.wire.message import Answer, Call
from moorline.wire.queue import QueueId
from moorline.wire.topic import Number

STAGE_BYTES = 16
HASH_BYTES = 16
QUERY_BYTES_MAX = 256
STAGES_PER_COMMIT_MAX = 8_192
"""Stages of one commit: a shard remembers more publishers than this, and each stage is one."""

BATCH_MAX = (1 << 31) - 1
ROWS_MAX = (1 << 32) - 1
"""A batch and a row make one sequence of 63 bits."""

TOPICS, QUEUES = 0, 1
"""Where the rows of a stage go."""

StageId = Annotated[bytes, Meta(min_length=STAGE_BYTES, max_length=STAGE_BYTES)]
StageHash = Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
Query = Annotated[str, Meta(min_length=1, max_length=QUERY_BYTES_MAX)]
BatchNumber = Annotated[int, Meta(ge=0, le=BATCH_MAX)]
RowCount = Annotated[int, Meta(ge=0, le=ROWS_MAX)]
Target = Annotated[int, Meta(ge=TOPICS, le=QUEUES)]


class QueueRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message that is to be sent to a queue."""

    queue: QueueId
    body: Body


QueueRows = Annotated[list[QueueRow], RowsMax]


class OpenStage(Call, frozen=True, gc=False, tag=150):
    """A stage of this session begins; if the session ends before it is closed, it is gone."""

    query: Query
    batch: BatchNumber
    partition: Number
    attempt: Number
    target: Target = TOPICS


class StageOpened(Answer, frozen=True, gc=False, tag=151):
    """Rows for topics are to be sorted by so many shards."""

    stage: Id
    shards: int = 1


class StageRows(Call, frozen=True, gc=False, tag=152):
    """One more chunk. A row that can never be published refuses it, and the stage is of no use any more."""

    stage: StageId
    rows: Body


class RowsStaged(Answer, frozen=True, gc=False, tag=153):
    """So many rows are in the stage now; they are durable when it is closed."""

    count: int


class CloseStage(Call, frozen=True, gc=False, tag=154):
    """That was all of it. The node must have seen the same."""

    stage: StageId
    count: RowCount
    hash: StageHash


class StageClosed(Answer, frozen=True, gc=False, tag=155):
    """The stage is durable; it waits for a commit for a day."""

    count: int


class CommitStaged(Call, frozen=True, gc=False, tag=156):
    """Publishes these stages, (stage, count, hash), as a batch of that query; once, however often said.

    Without `aside`, a queue that would refuse a row refuses the commit. With it, such rows go to that topic.
    """

    query: Query
    batch: BatchNumber
    stages: Annotated[
        list[tuple[StageId, RowCount, StageHash]], Meta(max_length=STAGES_PER_COMMIT_MAX)
    ]
    aside: Annotated[str, Meta(max_length=TOPIC_BYTES_MAX)] = ""


class StagesCommitted(Answer, frozen=True, gc=False, tag=157):
    """All is published. `already` is that it was so before; nothing was published now. `last` is the last
    batch of the query that is committed.

    `refused` names queues that refused messages, (id as text, code, messages): without a topic for these,
    they were deleted or closed between the decision and the send. `aside` is how many went to that topic.
    """

    already: bool
    published: int = 0
    last: int = -1
    refused: Annotated[list[tuple[Name, Code, int]], Meta(max_length=STAGED_REFUSED_NAMED_MAX)] = (
        msgspec.field(default_factory=list)
    )
    aside: int = 0


class AbortStaged(Call, frozen=True, gc=False, tag=158):
    """These stages are not wanted any more; those that a decision names are not touched."""

    query: Query
    batch: BatchNumber
    stages: Annotated[list[StageId], Meta(max_length=STAGES_PER_COMMIT_MAX)]


class StagesAborted(Answer, frozen=True, gc=False, tag=159):
    removed: int


COMMANDS = OpenStage | StageRows | CloseStage | CommitStaged | AbortStaged
EVENTS = StageOpened | RowsStaged | StageClosed | StagesCommitted | StagesAborted

_encoder = msgspec.msgpack.Encoder()
_PRODUCERS_SEED = 0x5354_4147_4544  # "STAGED"
_ASIDE_SEED = 0x4153_4944_45  # "ASIDE"
_OWNED = "\0"
"""Begins the key of a query that has an owner, and ends the owner's part."""
queue_rows_decoder = msgspec.msgpack.Decoder(QueueRows)


def query_key(principal: str, query: str) -> str:
    """What a query is known by at a node: its name within its principal, which is empty for nobody.

    A name cannot begin with a zero character, and no principal has one: no two share a key.
    """
    return f"{_OWNED}{'' if principal == ANONYMOUS else principal}{_OWNED}{query}"


def key_before(key: str) -> str:
    """What the same query was known by in a folder that is older: one of nobody by its name alone."""
    return key.removeprefix(_OWNED * 2)


def query_principal(key: str) -> str:
    """Whose it is; of a key from before keys named anybody, nobody's."""
    if not key.startswith(_OWNED):
        return ANONYMOUS
    return key.split(_OWNED, 2)[1] or ANONYMOUS


def query_name(key: str) -> str:
    """The name that was given to it."""
    return key.split(_OWNED, 2)[2] if key.startswith(_OWNED) else key


def check_query(query: str) -> None:
    if query.startswith(_OWNED):
        raise Malformed("the name of a query does not begin with a zero character")


def producer_of(key: str, partition: int) -> int:
    """As whose a partition of a query is published. Hashed with another seed than the names that publishers
    give themselves: else one could take the other's place, and its rows would pass for duplicates."""
    return _number(f"{key}/{partition}".encode(), _PRODUCERS_SEED)


def aside_producer_of(key: str, partition: int) -> int:
    """As whose the rows of a partition go aside: no other's, or they would pass for duplicates."""
    return _number(f"{key}/{partition}".encode(), _ASIDE_SEED)


def _number(text: bytes, seed: int) -> int:
    if not text.startswith(_OWNED.encode()):
        # Decided by an older program, and it goes on as it began.
        return xxhash.xxh3_64_intdigest(text, seed) or 1
    # Nobody is to find a name whose number is another principal's.
    person = seed.to_bytes(8)
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, person=person).digest()) or 1


def encode_queue_rows(rows: list[QueueRow]) -> bytes:
    return _encoder.encode(rows)
