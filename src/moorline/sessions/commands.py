"""Room: sessions. What clients ask of topics: sessions, subscriptions, acknowledgements."""

import logging
from collections.abc import Generator, Iterable
from typing import Final

from moorline.access import guard
from moorline.access.demands import Demands
from moorline.access.guard import Declarations, demand, needs, nodes_only
from moorline.access.judging import Judging
from moorline.catalog.groups import GroupRow
from moorline.catalog.outcome import unsure
from moorline.catalog.sessions import SubscriptionRow
from moorline.config.settings import Groups as Settings
from moorline.core.access.right import LIST, PUBLISH, SUBSCRIBE
from moorline.core.delivery.open_feed import FilterMatcher
from moorline.core.stream import Shard
from moorline.core.topic import SharedName, check_filter, shared_name
from moorline.errors import (
    BadTopic,
    ConnectionLost,
    Denied,
    NotFound,
    OverQuota,
    RightsUnknown,
    SessionTaken,
    Unsupported,
)
from moorline.groups.find_or_create import cursors_at, find_or_create
from moorline.groups.rights import demand_member
from moorline.limits import SESSIONS_PER_PAGE_MAX
from moorline.net.session import Session, each
from moorline.net.slices import in_slices
from moorline.net.tasks import Tasks
from moorline.net.turns import Turns
from moorline.sessions.checks import (
    check_open,
    check_room,
    passed_over,
    session_opened,
)
from moorline.sessions.connected import Connected
from moorline.sessions.context import Context
from moorline.sessions.durable import DurableSessions
from moorline.sessions.outlet import NativeOutlet, Outlet
from moorline.sessions.pull import check_hold, take
from moorline.sessions.retained import send_retained
from moorline.sessions.session import TopicSession
from moorline.sessions.told_cursors import cursors_of, cursors_told
from moorline.topics.commands import Link, TopicBroker
from moorline.topics.directory import ShardExtents
from moorline.topics.filtered_news import Sleeper
from moorline.topics.paths import TOPICS, filter_read, path_of_topic, topics_subscribed
from moorline.topics.start import Start, start_of
from moorline.wire.group import ForLeader
from moorline.wire.message import Answer
from moorline.wire.pull import TakeMessages
from moorline.wire.queue import Done
from moorline.wire.session_list import ListSessions, SessionFacts, SessionsListed
from moorline.wire.topic import (
    AckMessages,
    ConfirmLost,
    GiveBack,
    OpenSession,
    RejectMessage,
    SessionOpened,
    SubscribeTopic,
    TopicSubscribed,
    UnsubscribeTopic,
)

log = logging.getLogger("moorline.groups")

EVERYTHING_FILTER: Final = "#"
"""What a subscription of several filters is in the catalog."""

SUBSCRIBED = "the session has the subscription", "to subscribe again is harmless"


class SessionBroker:
    """The sessions of this node."""

    def __init__(
        self,
        context: Context,
        topics: TopicBroker,
        settings: Settings,
        demands: Demands | None = None,
    ) -> None:
        self.context = context
        self._topics = topics
        self._settings = settings
        self._demands = demands or Demands()
        self._turns = Turns()
        self.durable = DurableSessions(context, topics.streams.clock)
        self._sessions: dict[Connected, TopicSession] = {}
        self._links: dict[Session, Link] = {}
        self._tasks = Tasks("sessions were not told of streams or rights")
        self._judging = Judging(self._judge_all, self._tasks.spawn)
        self._shards_changed: dict[Shard, None] = {}
        """Shards that sessions have not looked at since they changed."""
        context.directory.reshaped.append(self._reshaped)

    def declared(self) -> Declarations:
        later, telling = self._turns.later, self._demands.telling
        return {
            OpenSession: needs(PUBLISH, session_opened, later(telling(self._open))),
            SubscribeTopic: needs(
                SUBSCRIBE, topics_subscribed, later(telling(self._subscribe)), below=TOPICS
            ),
            UnsubscribeTopic: guard.own(later(self._unsubscribe)),
            AckMessages: guard.own(self._ack),
            RejectMessage: guard.own(self._reject),
            GiveBack: guard.own(self._give_back),
            ConfirmLost: guard.own(self._confirm_lost),
            TakeMessages: guard.own(each(self._take)),
            ForLeader: nodes_only(self._for_leader),
            # All of them at once, so nobody learns of them by the right to one.
            ListSessions: guard.heavy(
                needs(LIST, lambda _: ("/sessions",), self._turns.spawned(self._list))
            ),
        }

    def judge_soon(self) -> None:
        """Behind a change of rights: whatever is not granted any more ends, in slices."""
        self._judging.soon()

    def _judge_all(self) -> Generator[None, None, None]:
        for session, own in list(self._sessions.items()):
            if self._sessions.get(session) is own:
                yield from own.judge_again()
            yield

    def close(self) -> None:
        self._turns.close()
        self._tasks.cancel()

    @property
    def sessions(self) -> Iterable[TopicSession]:
        return self._sessions.values()

    # --- sessions ---------------------------------------------------------------------------------

    async def _list(self, _: Session, call: ListSessions) -> SessionsListed:
        rows = await self.context.sessions.page(call.after, SESSIONS_PER_PAGE_MAX)
        found = tuple(SessionFacts(**row) for row in rows)
        return SessionsListed(call.call, found, len(found) < SESSIONS_PER_PAGE_MAX)

    def _of(self, session: Session) -> TopicSession:
        known = self._sessions.get(session)
        if known is None:
            if not session.is_open:
                raise ConnectionLost("the client went before its call had its turn")
            known = self.adopt(session, NativeOutlet(session))
        return known

    def adopt(self, session: Connected, outlet: Outlet) -> TopicSession:
        """A session of whoever has come, by whatever protocol."""
        own = self._sessions[session] = TopicSession(session, self.context, outlet)
        self.context.open_sessions.add(own)
        session.at_end(lambda: self._forget(session))
        return own

    def _forget(self, session: Connected) -> None:
        self._sessions.pop(session, None)
        if isinstance(session, Session):
            self._links.pop(session, None)

    async def _open(self, session: Session, call: OpenSession) -> Answer:
        own = self._of(session)
        if own.row is not None or own.subscriptions:
            raise SessionTaken("this connection has a session already: open another connection")
        await self.durable.hand_over(own, call.name)
        with unsure("the session was opened", "to open it on another connection is harmless"):
            row = await self.durable.take_over(own, call)
            resumed = [(one.filter, await self._resume(own, one)) for one in row.subscriptions]
        subscriptions = [(number, one.filter) for number, one in own.subscriptions.items()]
        left_out = [(filter_text, code) for filter_text, code in resumed if code]
        return SessionOpened(call.call, not row.is_new, subscriptions, left_out)

    async def _resume(self, own: TopicSession, known: SubscriptionRow) -> str:
        """One that is not granted, also by now, or that a quota has no room for is left out: it ends neither
        the others nor the session. The code of why it does not go on."""
        try:
            demand(own.session.rights, SUBSCRIBE, path_of_topic(filter_read(known.filter)))
            await self._go_on(own, known)
        except (Denied, OverQuota, RightsUnknown) as error:
            passed_over(own, known.filter, error.code)
            self._demands.tell(own.session, SubscribeTopic.__name__, error)
            return error.code
        return ""

    async def _go_on(self, own: TopicSession, known: SubscriptionRow) -> None:
        size, group = self._settings.window, shared_name(known.filter)
        if group is None:
            assert known.reader is not None
            await self._begin(
                own, known.filter, known.reader, Start(False, known.start_us), size, known.qos
            )
            return
        row, _ = await find_or_create(
            self.context.leaders,
            group,
            Start(True),
            self._settings.deliveries_max,
            own.session.rights,
            own.session.allowance,
        )
        self._join(own, known.filter, group, row, size, known.qos)

    def _join(
        self,
        own: TopicSession,
        filter_text: str,
        group: SharedName,
        row: GroupRow,
        size: int,
        qos: int,
        *,
        hold: bool = False,
    ) -> int:
        """Without a pause: whoever loses a right from now on is judged again with this subscription."""
        check_open(own)
        rights = own.session.rights
        demand(rights, SUBSCRIBE, path_of_topic(group.filter))
        demand_member(rights, group, row)
        return own.subscribe_shared(
            filter_text, group, row.reader, size, qos, hold=hold, owner=row.owner
        )

    # --- subscriptions ----------------------------------------------------------------------------

    async def _subscribe(self, session: Session, call: SubscribeTopic) -> Answer:
        own, start = self._of(session), start_of(call.start)
        if own.find(call.filter) is None:
            check_room(own, call.filter)
        group = shared_name(call.filter)
        check_hold(call, group, own.subscriptions.values(), is_durable=own.row is not None)
        if group is None:
            return await self._subscribe_private(session, own, call, start)
        if call.no_local:
            raise BadTopic("no_local means nothing in a shared subscription (MQTT 5, 3.8.3.1)")
        row, _ = await find_or_create(
            self.context.leaders,
            group,
            start,
            self._settings.deliveries_max,
            own.session.rights,
            own.session.allowance,
        )
        with unsure(*SUBSCRIBED):
            await self.durable.remember(own, call, start)
        number = self._join(own, call.filter, group, row, call.window, call.qos, hold=call.hold)
        return TopicSubscribed(call.call, number, call.filter)

    async def _subscribe_private(
        self, session: Session, own: TopicSession, call: SubscribeTopic, start: Start
    ) -> Answer:
        check_filter(call.filter)
        if call.no_local:
            raise Unsupported("no_local is not there yet for plain subscriptions: leave it out")
        with unsure(*SUBSCRIBED):
            reader = await self.durable.remember(own, call, start)
            known = own.find(call.filter)
            if known is not None:
                own.delivery.change(own.subscriptions[known].window, call.window, call.qos)
                return TopicSubscribed(call.call, known, call.filter)
            if call.places and not reader:
                number = self._begin_at(own, call)
                return TopicSubscribed(call.call, number, call.filter)
            number = await self._begin(own, call.filter, reader, start, call.window, call.qos)
            if reader:
                await own.commit()
        private = own.subscriptions[number].private
        told = [] if reader or private is None else cursors_of(private.cursors())
        await send_retained(self._topics, self.context.directory, own, session, number, call.filter)
        return TopicSubscribed(call.call, number, call.filter, told)

    def _begin_at(self, own: TopicSession, call: SubscribeTopic) -> int:
        """A private subscription that goes on where it was on another connection, here or elsewhere."""
        cursors = cursors_told(call.places, self.context.directory)
        check_open(own)
        demand(own.session.rights, SUBSCRIBE, path_of_topic(call.filter))
        shard_extents = self.context.directory.shard_extents()
        starts = {shard: extents[0].first for shard, extents in shard_extents.items() if extents}
        number = own.subscribe_private(call.filter, 0, cursors, call.window, call.qos)
        own.see(number, shard_extents, starts)
        return number

    async def _begin(
        self, own: TopicSession, filter_text: str, reader: int, start: Start, size: int, qos: int
    ) -> int:
        """A private subscription to all streams there are, with its start in those new to it."""
        cursors = await self.context.cursor_commits.load(reader) if reader else []
        starts = {
            shard: cursor.offset
            for shard, cursor in await cursors_at(self.context.directory, start)
        }
        # From here on without a pause: a stream that is reshaped is told to subscriptions that are known,
        # and one that does not know its start yet would begin at the beginning.
        check_open(own)
        demand(own.session.rights, SUBSCRIBE, path_of_topic(filter_text))
        shard_extents = self.context.directory.shard_extents()
        for shard, extents in shard_extents.items():
            # A node that did not answer: from its beginning on, rather than with a hole.
            starts.setdefault(shard, extents[0].first if extents else 0)
        number = own.subscribe_private(filter_text, reader, cursors, size, qos)
        own.see(number, shard_extents, starts)
        return number

    async def begin_reading(
        self, own: TopicSession, reader: int, size: int, matcher: FilterMatcher, sleeper: Sleeper
    ) -> int:
        """A private subscription by several filters, which its owner has judged: from its places on, and in
        streams that are new to it from now on. The `sleeper` has the same filters, as they change."""
        cursors = await self.context.cursor_commits.load(reader) if reader else []
        check_open(own)
        shard_extents = self.context.directory.shard_extents()
        number = own.subscribe_private(
            EVERYTHING_FILTER, reader, cursors, size, 1, matcher, sleeper
        )
        own.see(number, shard_extents, self.ends())
        return number

    def ends(self) -> dict[Shard, int]:
        """Where the streams end now; of other nodes as they were last heard of."""
        shard_extents = self.context.directory.shard_extents()
        return {
            shard: extents[-1].end if extents else 0 for shard, extents in shard_extents.items()
        }

    async def join_group(
        self, own: TopicSession, filter_text: str, size: int, qos: int, *, is_new: bool
    ) -> int:
        """Takes part in a group; one that is not there yet begins now. A durable session remembers it."""
        group = shared_name(filter_text)
        assert group is not None
        start = Start(True)
        row, _ = await find_or_create(
            self.context.leaders,
            group,
            start,
            self._settings.deliveries_max,
            own.session.rights,
            own.session.allowance,
        )
        if is_new and own.row is not None:
            kept = await self.context.sessions.subscribe(
                own.row.name, own.row.epoch, filter_text, qos
            )
            if kept is None:
                own.take_over()
                raise SessionTaken("another connection has opened this session")
        return self._join(own, filter_text, group, row, size, qos)

    def _reshaped(self, shard_extents: ShardExtents) -> None:
        """All sessions look at these shards, in slices: there may be tens of thousands."""
        if shard_extents and not self._shards_changed:
            self._tasks.spawn(self._look_again())
        self._shards_changed.update(dict.fromkeys(shard_extents))

    async def _look_again(self) -> None:
        # What changes before it begins is looked at together; what changes later has a walk of its own.
        shards, self._shards_changed = list(self._shards_changed), {}
        await in_slices(self._see_all(shards))

    def _see_all(self, shards: list[Shard]) -> Generator[None, None, None]:
        for session, own in list(self._sessions.items()):
            if self._sessions.get(session) is not own:
                continue  # it went meanwhile
            # As they are now, and not as they were when the walk began: a session never goes back.
            now = {shard: self.context.directory.extents(shard) for shard in shards}
            shard_extents = {shard: extents for shard, extents in now.items() if extents}
            starts = {shard: extents[0].first for shard, extents in shard_extents.items()}
            own.delivery.reshaped(shard_extents)
            for number, subscription in list(own.subscriptions.items()):
                if subscription.private is not None:
                    own.see(number, shard_extents, starts)
            yield

    async def _unsubscribe(self, session: Session, call: UnsubscribeTopic) -> Answer:
        own = self._of(session)
        subscription = own.unsubscribe(call.subscription)
        if subscription is None:
            raise NotFound(f"there is no subscription {call.subscription} in this session")
        if own.row is not None:
            with unsure(
                "the session has forgotten the subscription",
                "look which ones it has when you open it again",
            ):
                await self.context.sessions.unsubscribe(
                    own.row.name, own.row.epoch, subscription.filter
                )
        return Done(call.call)

    # --- what becomes of messages -----------------------------------------------------------------

    def _ack(self, session: Session, messages: list[AckMessages]) -> Iterable[Answer]:
        own = self._sessions.get(session)
        if own is not None:
            for message in messages:
                own.delivery.ack(message.feed, message.ranges)
        return ()

    def _reject(self, session: Session, messages: list[RejectMessage]) -> Iterable[Answer]:
        own = self._sessions.get(session)
        if own is not None:
            for message in messages:
                own.delivery.reject(message.feed, message.offset)
        return ()

    def _give_back(self, session: Session, messages: list[GiveBack]) -> Iterable[Answer]:
        own = self._sessions.get(session)
        if own is not None:
            for message in messages:
                own.delivery.give_back(message.feed, message.ranges)
        return ()

    def _confirm_lost(self, session: Session, messages: list[ConfirmLost]) -> Iterable[Answer]:
        own = self._sessions.get(session)
        if own is not None:
            for message in messages:
                own.delivery.confirm_lost(message.feed, message.ranges)
        return ()

    def _take(self, session: Session, call: TakeMessages) -> Answer:
        own = self._sessions.get(session)
        return take(own.delivery if own is not None else None, self.context.directory, call)

    def _for_leader(self, session: Session, messages: list[ForLeader]) -> Iterable[Answer]:
        link = self._links.get(session)
        if link is None:
            link = self._links[session] = Link(session)
            session.at_end(lambda: self._forget(session))
        for message in messages:
            self.context.leaders.hear(message.reader, message.message, link, passed_on=True)
        return ()
