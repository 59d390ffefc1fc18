"""Room: sessions. What clients ask of topics: sessions, subscriptions, acknowledgements."""

import logging
from collections.abc import Generator, Iterable

from moorline.access import guard
from moorline.access.demands import Demands
from moorline.access.guard import Declarations, demand, denied, needs, nodes_only
from moorline.catalog.groups import GroupRow
from moorline.catalog.outcome import unsure
from moorline.catalog.sessions import SubscriptionRow
from moorline.config.settings import Groups as Settings
from moorline.core.access.right import PUBLISH, SUBSCRIBE
from moorline.core.stream import Shard
from moorline.core.topic import SharedName, check_filter, shared_name
from moorline.errors import (
    BadTopic,
    ConnectionLost,
    Denied,
    MoorlineError,
    NotAuthorized,
    NotFound,
    RightsUnknown,
    SessionTaken,
    Unsupported,
)
from moorline.groups.find_or_create import cursors_at, find_or_create
from moorline.groups.originator import demand_member
from moorline.limits import SESSION_EXPIRY_S_MIN
from moorline.net.session import Session, each
from moorline.net.slices import in_slices
from moorline.net.tasks import Tasks
from moorline.net.turns import Turns
from moorline.sessions.checks import (
    check_open,
    check_room,
    passed_over,
    path_of_session,
    session_opened,
)
from moorline.sessions.context import Context
from moorline.sessions.pull import check_hold, take
from moorline.sessions.retained import send_retained
from moorline.sessions.session import TopicSession
from moorline.topics.commands import Link, TopicBroker
from moorline.topics.directory import ShardExtents
from moorline.topics.paths import TOPICS, filter_read, path_of_topic, topics_subscribed
from moorline.topics.start import Start, start_of
from moorline.wire.group import ForLeader
from moorline.wire.message import Answer
from moorline.wire.pull import TakeMessages
from moorline.wire.queue import Done
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
        self._sessions: dict[Session, TopicSession] = {}
        self._links: dict[Session, Link] = {}
        self._tasks = Tasks("sessions were not told of streams or rights")
        self._is_to_judge = False
        self._is_judging = False
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
        }

    def judge_soon(self) -> None:
        """Behind a change of rights: whatever is not granted any more ends, in slices."""
        self._is_to_judge = True
        if not self._is_judging:
            self._is_judging = True
            self._tasks.spawn(self._judge_while_rights_change())

    async def _judge_while_rights_change(self) -> None:
        try:
            # What changes during a walk has one more walk behind it, and never two side by side.
            while self._is_to_judge:
                self._is_to_judge = False
                await in_slices(self._judge_all())
        finally:
            self._is_judging = False

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

    def _of(self, session: Session) -> TopicSession:
        known = self._sessions.get(session)
        if known is None:
            if not session.is_open:
                raise ConnectionLost("the client went before its call had its turn")
            known = self._sessions[session] = TopicSession(session, self.context)
            self.context.open_sessions.add(known)
            session.at_end(lambda: self._forget(session))
        return known

    def _forget(self, session: Session) -> None:
        self._sessions.pop(session, None)
        self._links.pop(session, None)

    async def _open(self, session: Session, call: OpenSession) -> Answer:
        own = self._of(session)
        if own.row is not None or own.subscriptions:
            raise SessionTaken("this connection has a session already: open another connection")
        await self._hand_over(own, call.name)
        with unsure("the session was opened", "to open it on another connection is harmless"):
            await self._take_session(own, call)
        subscriptions = [(number, one.filter) for number, one in own.subscriptions.items()]
        assert own.row is not None, "it was just opened"
        return SessionOpened(call.call, not own.row.is_new, subscriptions)

    async def _take_session(self, own: TopicSession, call: OpenSession) -> None:
        """From now on it is nobody else's, and goes on here with all its subscriptions."""
        expiry_s = max(call.expiry_s, SESSION_EXPIRY_S_MIN)
        principal, node = own.session.rights.principal, self.context.links.node
        try:
            row = await self.context.sessions.open(call.name, principal, node, expiry_s)
        except NotAuthorized:
            # In the words of a right that is missing: whose it is, and that it is there, is not said.
            raise denied(PUBLISH, path_of_session(call.name)) from None
        for other in self._others(own, row.name):
            if other.row is not None and other.row.epoch < row.epoch:
                other.take_over()
        check_open(own)
        own.row = row
        own.ends_with_connection = call.expiry_s == 0
        for known in row.subscriptions:
            await self._resume(own, known)

    async def _resume(self, own: TopicSession, known: SubscriptionRow) -> None:
        """One that is not granted, also by now, is left out; it ends neither the others nor the session."""
        try:
            demand(own.session.rights, SUBSCRIBE, path_of_topic(filter_read(known.filter)))
            await self._go_on(own, known)
        except (Denied, RightsUnknown) as error:
            passed_over(own, known.filter)
            self._demands.tell(own.session, SubscribeTopic.__name__, error)

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

    def _others(self, own: TopicSession, name: str) -> list[TopicSession]:
        """Those of this node that have the session, one whose connection is just over included."""
        return [
            other
            for other in (*self.context.open_sessions, *self.context.settling)
            if other is not own and other.row is not None and other.row.name == name
        ]

    async def _hand_over(self, own: TopicSession, name: str) -> None:
        """What the client has acknowledged on another connection is stored before this one reads on."""
        for other in self._others(own, name):
            if other.session.rights.principal == own.session.rights.principal:
                await other.hand_over()

    # --- subscriptions ----------------------------------------------------------------------------

    async def _subscribe(self, session: Session, call: SubscribeTopic) -> Answer:
        own, start = self._of(session), start_of(call.start)
        if own.find(call.filter) is None:
            check_room(own, call.filter)
        group = shared_name(call.filter)
        check_hold(call, group, own.subscriptions.values(), is_durable=own.row is not None)
        if group is None:
            return await self._subscribe_private(own, call, start)
        if call.no_local:
            raise BadTopic("no_local means nothing in a shared subscription (MQTT 5, 3.8.3.1)")
        row, _ = await find_or_create(
            self.context.leaders,
            group,
            start,
            self._settings.deliveries_max,
            own.session.rights,
        )
        with unsure(*SUBSCRIBED):
            await self._remember(own, call, start)
        number = self._join(own, call.filter, group, row, call.window, call.qos, hold=call.hold)
        return TopicSubscribed(call.call, number, call.filter)

    async def _subscribe_private(
        self, own: TopicSession, call: SubscribeTopic, start: Start
    ) -> Answer:
        check_filter(call.filter)
        if call.no_local:
            raise Unsupported("no_local is not there yet for plain subscriptions: leave it out")
        with unsure(*SUBSCRIBED):
            reader = await self._remember(own, call, start)
            known = own.find(call.filter)
            if known is not None:
                own.delivery.change(own.subscriptions[known].window, call.window, call.qos)
                return TopicSubscribed(call.call, known, call.filter)
            number = await self._begin(own, call.filter, reader, start, call.window, call.qos)
            if reader:
                await own.commit()
        await send_retained(self._topics, self.context.directory, own, number, call.filter)
        return TopicSubscribed(call.call, number, call.filter)

    async def _remember(self, own: TopicSession, call: SubscribeTopic, start: Start) -> int:
        """Writes the subscription of a durable session into the catalog; the number of its reader."""
        if own.row is None:
            return 0
        start_us = None if start.is_now else start.time_us
        row = await self.context.sessions.subscribe(
            own.row.name, own.row.epoch, call.filter, call.qos, start_us=start_us
        )
        if row is None:
            own.take_over()
            raise SessionTaken("another connection has opened this session")
        return row.reader or 0

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

    # --- upkeep -----------------------------------------------------------------------------------

    async def keep_up(self) -> None:
        """Says that durable sessions live, and removes those whose time is over."""
        held = [
            (own.row.name, own.row.epoch) for own in self._sessions.values() if own.row is not None
        ]
        try:
            if held:
                ours = await self.context.sessions.seen_all(held)
                self._taken_over({one for one in held if one[0] not in ours})
            # The catalog counts by its own clock, which may be ours: one that jumped removes nobody.
            is_held = self._topics.streams.clock.is_held
            for name in [] if is_held else await self.context.sessions.remove_expired():
                log.info("a session has expired", extra={"member": name})
        except MoorlineError as error:
            log.warning("sessions were not looked after", extra={"error": str(error)})

    def _taken_over(self, lost: set[tuple[str, int]]) -> None:
        """Others have opened these sessions, or removed them."""
        for own in list(self._sessions.values()):
            if own.row is not None and (own.row.name, own.row.epoch) in lost:
                log.info("a session was taken over", extra={"member": own.name})
                own.take_over()
