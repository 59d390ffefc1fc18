"""Room: wire. The messages between a resolver and its clients: who publishes which paths, and where they are.

Each call is a micro-batch with an answer of its own; whoever has more to say says it in several. One path
that is refused never fails the others of its call: answers have a code for each.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.core.hidden_bytes import without_bytes
from moorline.core.sets.prefix import RangeDigest
from moorline.limits import (
    PATH_BYTES_MAX,
    PATHS_PER_CALL_MAX,
    PRINCIPAL_CHARACTERS_MAX,
    PROOF_MARK_BYTES,
    PUBLISHERS_PER_ANSWER_MAX,
    REFERRAL_ADDRESSES_MAX,
    RESOLVER_MECHANISMS_MAX,
    RESOLVER_RULES_MAX,
)
from moorline.wire.bounds import Body, Code, Words
from moorline.wire.link import Mechanism, Roles
from moorline.wire.message import Answer, Call, Message
from moorline.wire.node import AddressText
from moorline.wire.service import PREFIXES_PER_BLOCK, Count, EstimateBytes, Hash, Prefixes

Path = Annotated[str, Meta(max_length=PATH_BYTES_MAX)]
Paths = Annotated[list[Path], Meta(max_length=PATHS_PER_CALL_MAX)]
InstanceId = Annotated[bytes, Meta(min_length=16, max_length=16)]
ResolverId = Annotated[bytes, Meta(min_length=16, max_length=16)]
PrincipalText = Annotated[str, Meta(max_length=PRINCIPAL_CHARACTERS_MAX)]
Permissions = Annotated[int, Meta(ge=0, le=127)]
Flags = Annotated[int, Meta(ge=0, le=255)]
Priority = Annotated[int, Meta(ge=0, le=2)]
Secret = Annotated[bytes, Meta(min_length=32, max_length=32)]
ProofMark = Annotated[bytes, Meta(max_length=PROOF_MARK_BYTES)]
TokenBytes = Annotated[bytes, Meta(max_length=64)]
Seconds = Annotated[int, Meta(ge=0, le=1 << 40)]
Milliseconds = Annotated[int, Meta(ge=0, le=1 << 40)]
Mechanisms = Annotated[tuple[Mechanism, ...], Meta(max_length=RESOLVER_MECHANISMS_MAX)]
ListIndex = Annotated[int, Meta(ge=0, le=PATHS_PER_CALL_MAX)]
"""Of a path in its call, or of a publisher or referral in the answer."""

Entry = tuple[Path, Flags]
Refusals = Annotated[list[tuple[ListIndex, Code]], Meta(max_length=PATHS_PER_CALL_MAX)]


class Holder(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Who was judged, as far as another verdict needs it. `mark` is of the resolvers alone: which password or
    token it was."""

    principal: PrincipalText
    proof: Mechanism
    is_local: bool
    ends_s: Seconds = 0
    """When its proof ends by itself; 0 if it does not."""
    mark: ProofMark = b""

    __repr__ = without_bytes


class PublisherFacts(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One publisher, as subscribers are told of it. `service` is its Kerberos name, where it has one."""

    instance: InstanceId
    address: AddressText
    principal: PrincipalText
    mechanisms: Mechanisms = ()
    priority: Priority = 1
    service: PrincipalText = ""
    roles: Roles = ()
    """Of a node: what it does."""


class Referral(msgspec.Struct, array_like=True, frozen=True, gc=False):
    path: Path
    addresses: Annotated[tuple[AddressText, ...], Meta(max_length=REFERRAL_ADDRESSES_MAX)]
    ttl_ms: Milliseconds


class ResolvedPath(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An empty `code` is found: with which rights, at which publishers of the answer, with a token for each.

    REFERRED has the place of its referral in `referral`. Tokens are empty where the publisher is a node.
    """

    code: Code
    permissions: Permissions = 0
    flags: Flags = 0
    publishers: Annotated[
        list[tuple[ListIndex, TokenBytes]], Meta(max_length=PUBLISHERS_PER_ANSWER_MAX)
    ] = []
    referral: ListIndex = 0

    __repr__ = without_bytes


# --- what readers ask -----------------------------------------------------------------------------


class ResolvePaths(Call, frozen=True, gc=False, tag=300):
    weighed_by = "paths"

    paths: Paths


class PathsResolved(Answer, frozen=True, gc=False, tag=301):
    """In the order of the paths. What the tokens prove is in docs/design/resolver.md."""

    resolver: ResolverId
    holder: Holder
    expires_s: Seconds
    publishers: Annotated[list[PublisherFacts], Meta(max_length=PUBLISHERS_PER_ANSWER_MAX)]
    found: Annotated[list[ResolvedPath], Meta(max_length=PATHS_PER_CALL_MAX)]
    referrals: Annotated[list[Referral], Meta(max_length=PATHS_PER_CALL_MAX)] = []  # noqa: RUF012


class ListPaths(Call, frozen=True, gc=False, tag=302):
    """The children of a path behind `after`, in their order."""

    path: Path
    after: Path = ""
    count: Annotated[int, Meta(ge=1, le=PATHS_PER_CALL_MAX)] = PATHS_PER_CALL_MAX


class PathsListed(Answer, frozen=True, gc=False, tag=303):
    """Names of one level: whether something is published there, and whether something is below.

    `next` is what to ask behind for the next page; empty at the end.
    """

    children: Annotated[list[tuple[Path, bool, bool]], Meta(max_length=PATHS_PER_CALL_MAX)]
    next: Path = ""
    referrals: Annotated[list[Referral], Meta(max_length=PATHS_PER_CALL_MAX)] = []  # noqa: RUF012


class MatchPaths(Call, frozen=True, gc=False, tag=304):
    """Published paths that match a glob (`*` within a level, `**` over levels, `?`, `[ab]`, `{a,b}`)."""

    glob: Path
    after: Path = ""
    count: Annotated[int, Meta(ge=1, le=PATHS_PER_CALL_MAX)] = PATHS_PER_CALL_MAX


class PathsMatched(Answer, frozen=True, gc=False, tag=305):
    """`next` as above; it may be there although no path is: what was looked at has a bound too."""

    paths: Paths
    next: Path = ""
    referrals: Annotated[list[Referral], Meta(max_length=PATHS_PER_CALL_MAX)] = []  # noqa: RUF012


class WatchPaths(Call, frozen=True, gc=False, tag=306):
    """From the answer on, changes of what matches are pushed under the number of this call; none for a glob
    that begins in another cluster, which the answer refers to."""

    glob: Path


class PathsWatched(Answer, frozen=True, gc=False, tag=307):
    referrals: Annotated[list[Referral], Meta(max_length=PATHS_PER_CALL_MAX)] = []  # noqa: RUF012


class UnwatchPaths(Call, frozen=True, gc=False, tag=308):
    watch: int


class PathsUnwatched(Answer, frozen=True, gc=False, tag=309):
    pass


class PathsChanged(Message, frozen=True, gc=False, tag=310):
    """Pushed. `is_lost`: more changed than is kept for a slow reader, so match again. A `code` ends it."""

    watch: int
    added: Paths
    removed: Paths
    is_lost: bool = False
    code: Code = ""


# --- what publishers say --------------------------------------------------------------------------


class OpenPublisher(Call, frozen=True, gc=False, tag=320):
    """A login: this process listens there. The connection is the publisher's from the answer on.

    The answer comes when the address is proven: the resolver has dialled it, and whoever listens there knew
    `key`, which was drawn for this login (`core.directory.token.address_proof`).
    """

    instance: InstanceId
    address: AddressText
    mechanisms: Mechanisms
    key: Secret
    priority: Priority = 1
    service: PrincipalText = ""

    __repr__ = without_bytes


class PublisherOpened(Answer, frozen=True, gc=False, tag=321):
    """The secret of this login, and the digest of the entries that the resolver has of this instance.

    `rules` say which principal a certificate proves, `kerberos_rules` that of a ticket, as they do at the
    nodes: the publisher judges its subscribers by the same.
    """

    resolver: ResolverId
    secret: Secret
    ttl_ms: Milliseconds
    token_life_ms: Milliseconds
    salt: Hash
    count: Count
    hash: Hash
    rules: Annotated[tuple[Words, ...], Meta(max_length=RESOLVER_RULES_MAX)] = ()
    kerberos_rules: Annotated[tuple[Words, ...], Meta(max_length=RESOLVER_RULES_MAX)] = ()

    __repr__ = without_bytes


class PublishPaths(Call, frozen=True, gc=False, tag=322):
    """Entries come, or get other flags. Repeating it is harmless."""

    weighed_by = "entries"

    entries: Annotated[list[Entry], Meta(max_length=PATHS_PER_CALL_MAX)]


class PathsPublished(Answer, frozen=True, gc=False, tag=323):
    """The digest afterwards, and which entries were refused, with the code why."""

    count: Count
    hash: Hash
    refused: Refusals = []  # noqa: RUF012
    referrals: Annotated[list[Referral], Meta(max_length=PATHS_PER_CALL_MAX)] = []  # noqa: RUF012


class UnpublishPaths(Call, frozen=True, gc=False, tag=324):
    weighed_by = "paths"

    paths: Paths


class UnpublishHashes(Call, frozen=True, gc=False, tag=325):
    """The entries of this publisher with these hashes go: what a reconciliation found too much."""

    prefixes: Prefixes


class PathsUnpublished(Answer, frozen=True, gc=False, tag=326):
    """Answers both."""

    count: Count
    hash: Hash


class Heartbeat(Call, frozen=True, gc=False, tag=327):
    """This publisher lives, and has entries of this digest; the estimate helps to choose a sketch."""

    count: Count
    hash: Hash
    estimate: EstimateBytes = b""
    cells_min: Annotated[int, Meta(ge=0, le=1 << 24)] = 0


class HeartbeatHeard(Answer, frozen=True, gc=False, tag=328):
    """The resolver's digest; if they differ, a sketch or what else helps to find out."""

    count: Count
    hash: Hash
    mode: Annotated[int, Meta(ge=0, le=255)]
    cells: int = 0
    payload: Body = b""


class AskEntryRanges(Call, frozen=True, gc=False, tag=329):
    prefixes: Prefixes


class EntryRangesTold(Answer, frozen=True, gc=False, tag=330):
    ranges: Annotated[list[RangeDigest], Meta(max_length=PREFIXES_PER_BLOCK)]


class AskEntryLists(Call, frozen=True, gc=False, tag=331):
    prefixes: Prefixes


class EntryListsTold(Answer, frozen=True, gc=False, tag=332):
    """For each prefix the high halves of the hashes, eight bytes each."""

    highs: Annotated[list[Body], Meta(max_length=PREFIXES_PER_BLOCK)]


class JudgeHolders(Call, frozen=True, gc=False, tag=333):
    """May these still have, at these paths of this publisher, what their tokens gave them?"""

    weighed_by = "claims"

    claims: Annotated[list[tuple[Path, Permissions, Holder]], Meta(max_length=PATHS_PER_CALL_MAX)]


class HoldersJudged(Answer, frozen=True, gc=False, tag=334):
    """For each claim the rights that it has now; 0 is none.

    `unknown` are the places of claims that this resolver cannot judge: it has no such entry of the publisher,
    or does not know the rights of the holder just now. Their 0 takes nothing away.
    """

    permissions: Annotated[list[Permissions], Meta(max_length=PATHS_PER_CALL_MAX)]
    unknown: Annotated[list[ListIndex], Meta(max_length=PATHS_PER_CALL_MAX)] = msgspec.field(
        default_factory=list
    )


class ClosePublisher(Call, frozen=True, gc=False, tag=335):
    """All entries of this publisher go, at once."""


class PublisherClosed(Answer, frozen=True, gc=False, tag=336):
    pass


class RightsChanged(Message, frozen=True, gc=False, tag=337):
    """Pushed to publishers: rights have changed, so judge again. Tokens that were made until then, by the
    resolver's clock, may give more than there is now."""

    at_s: Seconds = 0


COMMANDS = (
    ResolvePaths
    | ListPaths
    | MatchPaths
    | WatchPaths
    | UnwatchPaths
    | OpenPublisher
    | PublishPaths
    | UnpublishPaths
    | UnpublishHashes
    | Heartbeat
    | AskEntryRanges
    | AskEntryLists
    | JudgeHolders
    | ClosePublisher
)
EVENTS = (
    PathsResolved
    | PathsListed
    | PathsMatched
    | PathsWatched
    | PathsUnwatched
    | PathsChanged
    | PublisherOpened
    | PathsPublished
    | PathsUnpublished
    | HeartbeatHeard
    | EntryRangesTold
    | EntryListsTold
    | HoldersJudged
    | PublisherClosed
    | RightsChanged
)
