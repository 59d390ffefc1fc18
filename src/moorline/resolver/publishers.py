"""Room: resolver. What publishers say: logins, entries, heartbeats, and whether their subscribers may stay.

A login is answered when its address is proven, or fails with `ADDRESS_NOT_PROVEN`
(resolver/claimed_address.py): nothing of a publisher is kept before. Calls of one connection are answered one
after the other, so that what is said behind a login waits for it.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial

from moorline.access.guard import Declarations, each_by_itself, needs_somewhere, own
from moorline.core.access.quota import Quota
from moorline.core.access.right import PUBLISH
from moorline.core.directory.path import RESERVED
from moorline.core.directory.registry import Changed, Claim, Registration, Registry
from moorline.core.sets.answerer import Answerer
from moorline.core.sets.asker import Mode
from moorline.core.sets.digest import Digest
from moorline.core.sets.prefix import Prefix, are_apart
from moorline.errors import (
    Denied,
    LimitReached,
    Malformed,
    OverQuota,
    PublisherGone,
)
from moorline.limits import (
    ENTRIES_LISTED_MAX,
    PAYLOAD_OF_HEARTBEAT_BYTES_MAX,
    RIGHTS_CHANGED_MS,
)
from moorline.net.clock import monotonic_ms, wall_ms
from moorline.net.session import Session
from moorline.net.slices import in_slices
from moorline.net.turns import Turns
from moorline.resolver.answering_entries import AnsweringEntries
from moorline.resolver.claimed_address import Dials, claimed, not_proven
from moorline.resolver.delegations import Delegations
from moorline.resolver.holders import Judge, holder_of, judging
from moorline.resolver.judging_publishers import JudgingPublishers
from moorline.resolver.taking import Bounds, Taking
from moorline.resolver.whose import whose
from moorline.wire.resolver import (
    AskEntryLists,
    AskEntryRanges,
    ClosePublisher,
    EntryListsTold,
    EntryRangesTold,
    Heartbeat,
    HeartbeatHeard,
    HoldersJudged,
    JudgeHolders,
    OpenPublisher,
    PathsPublished,
    PathsUnpublished,
    PublisherClosed,
    PublisherOpened,
    PublishPaths,
    RightsChanged,
    UnpublishHashes,
    UnpublishPaths,
)

log = logging.getLogger("moorline.resolver")

Refused = Callable[..., None]
"""`Trail.refused`: the audit hears of it."""

SECRET_BYTES = 32
SALT_BYTES = 16
REMOVED_AT_ONCE = 64
"""Entries between two of which others have their turn."""


class Publishers:
    """The publishers that are connected, and what they ask."""

    def __init__(
        self,
        resolver: bytes,
        registry: Registry,
        dials: Dials,
        delegations: Delegations,
        bounds: Bounds,
        judge: Judge,
        refused: Refused,
        changed: Callable[[Changed], None],
        purge_soon: Callable[[], None],
        *,
        token_life_ms: int,
        rules: Sequence[str] = (),
        kerberos_rules: Sequence[str] = (),
    ) -> None:
        self._resolver = resolver
        self._registry = registry
        self._dials = dials
        self._bounds = bounds
        self.taking = Taking(registry, delegations, bounds, changed)
        self.judging = JudgingPublishers(registry, judge, changed, purge_soon, self._taken_away)
        self._judge = judge
        self._refused = refused
        self._changed = changed
        self._purge_soon = purge_soon
        self._token_life_ms = token_life_ms
        self._rules, self._kerberos_rules = tuple(rules), tuple(kerberos_rules)
        self._logins: dict[Session, Registration] = {}
        self._turns = Turns()
        self._telling: asyncio.TimerHandle | None = None

    def declared(self) -> Declarations:
        later = self._turns.later
        return {
            # It makes the resolver dial: only for those who have something to publish.
            OpenPublisher: needs_somewhere(PUBLISH, RESERVED, later(self._open)),
            PublishPaths: each_by_itself(later(self._publish)),
            UnpublishPaths: own(later(self._unpublish)),
            UnpublishHashes: own(later(self._unpublish_hashes)),
            Heartbeat: own(later(self._heartbeat)),
            AskEntryRanges: own(later(self._ranges)),
            AskEntryLists: own(later(self._lists)),
            JudgeHolders: own(later(self._judge_holders)),
            ClosePublisher: own(later(self._close)),
        }

    def close(self) -> None:
        self._turns.close()
        if self._telling is not None:
            self._telling.cancel()

    @property
    def connected(self) -> int:
        return len(self._logins)

    def rights_changed(self) -> None:
        """Tells all who are connected, a moment later and once."""
        if self._telling is None and self._logins:
            loop = asyncio.get_running_loop()
            self._telling = loop.call_later(RIGHTS_CHANGED_MS / 1_000, self._tell)

    def _taken_away(self, registration: Registration) -> None:
        """It asks what it has here, and brings what it may have again as soon as it may."""
        for session, one in self._logins.items():
            if one is registration and session.is_open:
                session.send(RightsChanged(wall_ms() // 1_000))

    def _tell(self) -> None:
        self._telling = None
        for session, registration in self._logins.items():
            if session.is_open and registration.is_found:
                session.send(RightsChanged(wall_ms() // 1_000))

    # --- logins -----------------------------------------------------------------------------------

    async def _open(self, session: Session, call: OpenPublisher) -> PublisherOpened:
        login = self._registry.begin()
        address = claimed(call.address, is_peer_local=session.is_local)
        holder = holder_of(session)
        claim = Claim(
            session.rights.principal,
            call.instance,
            str(address),
            call.mechanisms,
            call.priority,
            call.service,
            whose(session),
            holder.proof,
            holder.is_local,
            holder.mark,
        )
        self._dials.check_room(claim.whose)
        self._check_room(claim)
        is_local = session.is_local
        if not await self._dials.is_proven(address, call.key, claim.whose, is_peer_local=is_local):
            raise not_proven(address)
        # Others came while it was dialled.
        self._check_room(claim)
        if self._registry.is_overtaken(login, claim):
            # Opened now, it would put a secret in place of the one that the publisher knows.
            raise PublisherGone(
                f"a later login of the publisher at {address} is open: go on with that"
            )
        secret, salt = secrets.token_bytes(SECRET_BYTES), secrets.token_bytes(SALT_BYTES)
        registration = self._registry.open(login, claim, secret, salt, monotonic_ms())
        if session not in self._logins:
            session.at_end(partial(self._forget, session))
        self._leave_earlier(session, registration)
        self._purge_soon()
        if session.is_open:
            self._logins[session] = registration
        # What it had was judged by what proved it then.
        await in_slices(self.judging.entries_of(registration), session.rights.principal)
        digest = registration.digest()
        return PublisherOpened(
            call.call,
            self._resolver,
            secret,
            self._registry.ttl_ms,
            self._token_life_ms,
            registration.entries.salt_bytes,
            digest.count,
            digest.hash,
            self._rules,
            self._kerberos_rules,
        )

    def _check_room(self, claim: Claim) -> None:
        """Whoever is known may come back, however many there are."""
        registry, bounds = self._registry, self._bounds
        if registry.is_known(claim):
            return
        if len(registry) >= bounds.publishers_max and not registry.has_place_for(claim):
            raise LimitReached(
                f"this resolver knows {len(registry)} publishers (resolver.publishers_max): ask its "
                "operator for more, or another resolver"
            )
        if (count := registry.count_of(claim.whose)) >= bounds.principal_publishers_max:
            raise LimitReached(
                f"this resolver knows {count} publishers of {claim.whose} "
                "(resolver.principal_publishers_max): ask its operator for more"
            )

    def _leave_earlier(self, session: Session, registration: Registration) -> None:
        """A connection is one publisher: what it was before goes, unless another connection is that too."""
        earlier = self._logins.pop(session, None)
        if earlier is None or earlier is registration:
            return
        if all(one is not earlier for one in self._logins.values()):
            self._registry.close(earlier)

    def _forget(self, session: Session) -> None:
        self._logins.pop(session, None)

    def _mine(self, session: Session) -> Registration:
        """The registration of this connection, which was heard of just now."""
        registration = self._logins.get(session)
        if registration is None:
            raise PublisherGone("this connection is no publisher's: log in first (OpenPublisher)")
        if not registration.is_found:
            raise PublisherGone(
                "this resolver does not know this publisher any more: it was silent for too long, or another "
                "one has its address. Log in again"
            )
        self._registry.heard(registration, monotonic_ms())
        return registration

    async def _close(self, session: Session, call: ClosePublisher) -> PublisherClosed:
        registration = self._mine(session)
        self._registry.close(registration)
        self._purge_soon()
        return PublisherClosed(call.call)

    # --- entries ----------------------------------------------------------------------------------

    async def _publish(self, session: Session, call: PublishPaths) -> PathsPublished:
        registration = self._mine(session)
        steps = self.taking.steps(session, registration, call.entries)
        refused, referrals = await in_slices(steps, session.rights.principal)
        self._tell_refused(session, call, refused)
        digest = registration.digest()
        return PathsPublished(call.call, digest.count, digest.hash, refused, referrals)

    def _tell_refused(
        self, session: Session, call: PublishPaths, refused: Sequence[tuple[int, str]]
    ) -> None:
        """The audit hears of one path of a call, and of a quota once."""
        codes = {code: place for place, code in reversed(refused)}
        if (denied := codes.get(Denied.code)) is not None:
            self._refused(session, "PublishPaths", call.entries[denied][0], Denied.code)
        if OverQuota.code in codes:
            path = f"/quotas/{Quota.PATHS.value}"
            self._refused(session, "PublishPaths", path, OverQuota.code)

    async def _unpublish(self, session: Session, call: UnpublishPaths) -> PathsUnpublished:
        registration = self._mine(session)
        return await self._removed(session, registration, call.call, call.paths)

    async def _unpublish_hashes(self, session: Session, call: UnpublishHashes) -> PathsUnpublished:
        registration = self._mine(session)
        prefixes = _prefixes(call.prefixes)
        if not are_apart(prefixes):
            raise Malformed("the prefixes overlap: what is below them would be named twice")
        await self._answering(session, registration).frozen()
        named = registration.entries.named(prefixes)
        return await self._removed(session, registration, call.call, named)

    async def _removed(
        self, session: Session, registration: Registration, call: int, paths: Iterable[str]
    ) -> PathsUnpublished:
        steps = self._removing(registration, list(paths))
        await in_slices(steps, session.rights.principal)
        digest = registration.digest()
        return PathsUnpublished(call, digest.count, digest.hash)

    def _removing(self, registration: Registration, paths: list[str]) -> Generator[None]:
        for start in range(0, len(paths), REMOVED_AT_ONCE):
            if not registration.is_found:
                return
            some = paths[start : start + REMOVED_AT_ONCE]
            self._changed(self._registry.unpublish(registration, some, monotonic_ms()))
            yield

    # --- reconciliation ---------------------------------------------------------------------------

    @staticmethod
    def _answering(session: Session, registration: Registration) -> AnsweringEntries:
        return AnsweringEntries(registration.entries, session.rights.principal)

    async def _heartbeat(self, session: Session, call: Heartbeat) -> HeartbeatHeard:
        registration = self._mine(session)
        theirs = Digest(call.count, call.hash)
        if registration.digest() == theirs:
            registration.entries.forget_sums()
            return HeartbeatHeard(call.call, call.count, call.hash, Mode.EQUAL.value)
        if not call.estimate and call.count and len(registration.entries):
            # Whoever wants to know what differs sends an estimate; a plain sign of life is answered shortly.
            digest = registration.digest()
            return HeartbeatHeard(call.call, digest.count, digest.hash, Mode.EQUAL.value)
        answerer = Answerer(self._answering(session, registration))
        answered = await answerer.verify(theirs, call.estimate, call.cells_min)
        digest, mode, cells, payload = (
            answered.digest,
            answered.mode,
            answered.cells,
            answered.payload,
        )
        if len(payload) > PAYLOAD_OF_HEARTBEAT_BYTES_MAX:
            # "Equal" with another digest: nothing that helps, so the ranges are walked.
            mode, cells, payload = Mode.EQUAL, 0, b""
        return HeartbeatHeard(call.call, digest.count, digest.hash, mode.value, cells, payload)

    async def _ranges(self, session: Session, call: AskEntryRanges) -> EntryRangesTold:
        registration = self._mine(session)
        prefixes = _prefixes(call.prefixes)
        answerer = Answerer(self._answering(session, registration))
        return EntryRangesTold(call.call, await answerer.ranges(prefixes))

    async def _lists(self, session: Session, call: AskEntryLists) -> EntryListsTold:
        registration = self._mine(session)
        prefixes = _prefixes(call.prefixes)
        answerer = Answerer(self._answering(session, registration))
        # A walk ends in ranges of a few entries each; who asks for more is told before it is made.
        counted = sum(one.count for one in await answerer.ranges(prefixes))
        if counted > ENTRIES_LISTED_MAX:
            raise LimitReached(
                f"{counted} entries are too many for one list, which has {ENTRIES_LISTED_MAX}: ask for the "
                "ranges below these"
            )
        return EntryListsTold(call.call, await answerer.lists(prefixes))

    # --- holders of tokens ------------------------------------------------------------------------

    async def _judge_holders(self, session: Session, call: JudgeHolders) -> HoldersJudged:
        steps = judging(self._judge, self._mine(session), call.claims)
        permissions, unknown = await in_slices(steps, session.rights.principal)
        return HoldersJudged(call.call, permissions, unknown)


def _prefixes(pairs: Sequence[tuple[int, int]]) -> list[Prefix]:
    for bits, value in pairs:
        if value >> bits:
            raise Malformed(f"{value} is no prefix of {bits} bits")
    return [Prefix(bits, value) for bits, value in pairs]
