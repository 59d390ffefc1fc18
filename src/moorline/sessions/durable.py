"""Room: sessions. Durable sessions: who has one now, what it remembers, and when it expires.

The catalog is the only truth about them. A session that is opened anew draws a new epoch, and whoever has an
older one has lost it: to a connection of this node at once, to one of another node by the next look.
"""

import logging
from typing import Final

from moorline.access.guard import denied
from moorline.catalog.sessions import SessionRow
from moorline.core.access.quota import Quota
from moorline.core.access.right import PUBLISH
from moorline.errors import MoorlineError, NotAuthorized, SessionTaken
from moorline.limits import SESSION_EXPIRY_S_MIN
from moorline.net.trusted_clock import TrustedClock
from moorline.sessions.checks import check_open, path_of_session
from moorline.sessions.context import Context
from moorline.sessions.session import TopicSession
from moorline.topics.start import Start
from moorline.wire.topic import OpenSession, SubscribeTopic

log = logging.getLogger("moorline.groups")

SESSION: Final = (Quota.SESSIONS, 1)
COUNTED_MAX: Final = 1 << 30
"""Of what the catalog is asked to count; more than any owner has."""


class DurableSessions:
    """The durable sessions that connections of this node have."""

    def __init__(self, context: Context, clock: TrustedClock) -> None:
        self._context = context
        self._clock = clock

    # --- takeover ---------------------------------------------------------------------------------

    async def hand_over(self, own: TopicSession, name: str) -> None:
        """What the client has acknowledged on another connection is stored before this one reads on."""
        for other in self._others(own, name):
            if other.session.rights.principal == own.session.rights.principal:
                await other.hand_over()

    async def take_over(self, own: TopicSession, call: OpenSession) -> SessionRow:
        """From now on it is nobody else's."""
        allowance = own.session.allowance
        # One that ends with its connection is bounded by those.
        if not call.expiry_s or allowance is None or not allowance.is_bounded(Quota.SESSIONS):
            return await self._taken_over(own, call)
        if await self._owned(own, call, 0) is None:
            return await self._taken_over(own, call)
        # Held until the catalog counts it, and counted behind that: those that are made side by side do not
        # pass the bound together.
        allowance.take(SESSION)
        try:
            held = await self._owned(own, call, min(allowance.bound(Quota.SESSIONS), COUNTED_MAX))
            if held is not None:
                allowance.check_room(Quota.SESSIONS, held, 0)
                allowance.take_made(Quota.SESSIONS)
            return await self._taken_over(own, call)
        finally:
            allowance.give_back(SESSION)

    async def _owned(self, own: TopicSession, call: OpenSession, count_max: int) -> int | None:
        """How many sessions its principal has; None if this one is there already."""
        principal = own.session.rights.principal
        return await self._context.sessions.held(call.name, principal, count_max)

    async def _taken_over(self, own: TopicSession, call: OpenSession) -> SessionRow:
        expiry_s = max(call.expiry_s, SESSION_EXPIRY_S_MIN)
        principal, node = own.session.rights.principal, self._context.links.node
        try:
            row = await self._context.sessions.open(call.name, principal, node, expiry_s)
        except NotAuthorized:
            # In the words of a right that is missing: whose it is, and that it is there, is not said.
            raise denied(PUBLISH, path_of_session(call.name)) from None
        for other in self._others(own, row.name):
            if other.row is not None and other.row.epoch < row.epoch:
                other.take_over()
        check_open(own)
        own.row = row
        own.ends_with_connection = call.expiry_s == 0
        return row

    def _others(self, own: TopicSession, name: str) -> list[TopicSession]:
        """Those of this node that have the session, one whose connection is just over included."""
        return [
            other
            for other in (*self._context.open_sessions, *self._context.settling)
            if other is not own and other.row is not None and other.row.name == name
        ]

    # --- what it remembers ------------------------------------------------------------------------

    async def remember(self, own: TopicSession, call: SubscribeTopic, start: Start) -> int:
        """Writes the subscription of a durable session into the catalog; the number of its reader."""
        if own.row is None:
            return 0
        start_us = None if start.is_now else start.time_us
        row = await self._context.sessions.subscribe(
            own.row.name, own.row.epoch, call.filter, call.qos, start_us=start_us
        )
        if row is None:
            own.take_over()
            raise SessionTaken("another connection has opened this session")
        return row.reader or 0

    # --- expiry -----------------------------------------------------------------------------------

    async def keep_up(self) -> None:
        """Says which of them live, and removes those whose time is over."""
        held = [
            (own.row.name, own.row.epoch)
            for own in self._context.open_sessions
            if own.row is not None
        ]
        try:
            if held:
                ours = await self._context.sessions.seen_all(held)
                self._lost({one for one in held if one[0] not in ours})
            # The catalog counts by its own clock, which may be ours: one that jumped removes nobody.
            expired = [] if self._clock.is_held else await self._context.sessions.remove_expired()
            for name in expired:
                log.info("a session has expired", extra={"member": name})
        except MoorlineError as error:
            log.warning("sessions were not looked after", extra={"error": str(error)})

    def _lost(self, lost: set[tuple[str, int]]) -> None:
        """Others have opened these sessions, or removed them."""
        for own in list(self._context.open_sessions):
            if own.row is not None and (own.row.name, own.row.epoch) in lost:
                log.info("a session was taken over", extra={"member": own.name})
                own.take_over()
