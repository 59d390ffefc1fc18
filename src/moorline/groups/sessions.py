"""Room: groups. What clients ask of topics: sessions, subscriptions, acknowledgements."""

import logging
from collections.abc import Iterable

from moorline.config.settings import Groups as Settings
from moorline.core.stream import Shard
from moorline.core.topic import check_filter, shared_name
from moorline.errors import BadTopic, MoorlineError, NotFound, SessionTaken
from moorline.groups.cluster import Lines
from moorline.groups.context import Context
from moorline.groups.founding import found, places_at
from moorline.groups.session import TopicSession
from moorline.groups.start import Start, start_of
from moorline.groups.topics import Link, TopicBroker, newest_retained
from moorline.limits import SUBSCRIPTIONS_MAX
from moorline.net.session import Handlers, Session
from moorline.net.turns import Turns
from moorline.wire.group import ForLeader
from moorline.wire.message import Answer
from moorline.wire.queue import Done
from moorline.wire.segment import all_stored, frames_in
from moorline.wire.topic import (
    AckMessages,
    GiveBack,
    OpenSession,
    RejectMessage,
    RetainedMessage,
    SessionOpened,
    SubscribeTopic,
    TopicSubscribed,
    UnsubscribeTopic,
)

log = logging.getLogger("moorline.groups")


class SessionBroker:
    """The sessions of this node."""

    def __init__(self, context: Context, topics: TopicBroker, settings: Settings) -> None:
        self.context = context
        self._topics = topics
        self._settings = settings
        self._turns = Turns()
        self._sessions: dict[Session, TopicSession] = {}
        self._links: dict[Session, Link] = {}
        context.cluster.reshaped.append(self._reshaped)

    def handlers(self) -> Handlers:
        return {
            OpenSession: self._turns.later(self._open),
            SubscribeTopic: self._turns.later(self._subscribe),
            UnsubscribeTopic: self._turns.later(self._unsubscribe),
            AckMessages: self._ack,
            RejectMessage: self._reject,
            GiveBack: self._give_back,
            ForLeader: self._for_leader,
        }

    def close(self) -> None:
        self._turns.close()

    @property
    def sessions(self) -> Iterable[TopicSession]:
        return self._sessions.values()

    # --- sessions ---------------------------------------------------------------------------------

    def _of(self, session: Session) -> TopicSession:
        known = self._sessions.get(session)
        if known is None:
            known = self._sessions[session] = TopicSession(session, self.context)
            self.context.open_sessions.add(known)
            session.on_end.append(lambda: self._forget(session))
        return known

    def _forget(self, session: Session) -> None:
        self._sessions.pop(session, None)
        self._links.pop(session, None)

    async def _open(self, session: Session, call: OpenSession) -> Answer:
        own = self._of(session)
        if own.row is not None or own.subscriptions:
            raise SessionTaken("this connection has a session already: open another connection")
        row = await self.context.sessions.open(
            call.name, session.identity.name, self.context.cluster.node, call.expiry_s
        )
        for other in list(self.context.open_sessions):
            if other is not own and other.row is not None and other.row.name == row.name:
                other.take_over()
        own.row = row
        for known in row.subscriptions:
            size = self._settings.window
            group = shared_name(known.filter)
            if group is None:
                assert known.reader is not None
                places = await self.context.places.load(known.reader)
                number = own.subscribe_private(known.filter, known.reader, places, size, known.qos)
                await self._begin(own, number, Start(False, known.start_us))
            else:
                row_of_group, _ = await found(
                    self.context.leaders, group, Start(True), self._settings.deliveries_max
                )
                own.subscribe_shared(known.filter, group, row_of_group.reader, size, known.qos)
        subscriptions = [(number, one.filter) for number, one in own.subscriptions.items()]
        return SessionOpened(call.call, not row.is_new, subscriptions)

    # --- subscriptions ----------------------------------------------------------------------------

    async def _subscribe(self, session: Session, call: SubscribeTopic) -> Answer:
        own, start = self._of(session), start_of(call.start)
        if len(own.subscriptions) >= SUBSCRIPTIONS_MAX:
            raise BadTopic(f"a session has at most {SUBSCRIPTIONS_MAX} subscriptions")
        group = shared_name(call.filter)
        if group is None:
            return await self._subscribe_private(own, call, start)
        if call.no_local:
            raise BadTopic("no_local means nothing in a shared subscription (MQTT 5, 3.8.3.1)")
        row, _ = await found(self.context.leaders, group, start, self._settings.deliveries_max)
        await self._remember(own, call)
        number = own.subscribe_shared(call.filter, group, row.reader, call.window, call.qos)
        return TopicSubscribed(call.call, number, call.filter)

    async def _subscribe_private(
        self, own: TopicSession, call: SubscribeTopic, start: Start
    ) -> Answer:
        check_filter(call.filter)
        known = own.find(call.filter)
        if known is not None:
            own.subscriptions[known].window.size = call.window
            return TopicSubscribed(call.call, known, call.filter)
        reader = await self._remember(own, call)
        places = await self.context.places.load(reader) if reader else []
        number = own.subscribe_private(call.filter, reader, places, call.window, call.qos)
        await self._begin(own, number, start)
        if reader:
            await own.commit()
        await self._send_retained(own.session, number, call.filter)
        return TopicSubscribed(call.call, number, call.filter)

    async def _remember(self, own: TopicSession, call: SubscribeTopic) -> int:
        """Writes the subscription of a durable session into the catalog; the number of its reader."""
        if own.row is None:
            return 0
        row = await self.context.sessions.subscribe(
            own.row.name, own.row.epoch, call.filter, call.qos
        )
        if row is None:
            own.take_over()
            raise SessionTaken("another connection has opened this session")
        return row.reader or 0

    async def _begin(self, own: TopicSession, number: int, start: Start) -> None:
        """Gives a private subscription all streams there are, with its start in those new to it."""
        starts = {
            shard: place.offset for shard, place in await places_at(self.context.cluster, start)
        }
        lines = self.context.cluster.lines()
        for shard, extents in lines.items():
            # A node that did not answer: from its beginning on, rather than with a hole.
            starts.setdefault(shard, extents[0].first if extents else 0)
        own.see(number, lines, starts)

    def _reshaped(self, lines: Lines) -> None:
        starts: dict[Shard, int] = {
            shard: extents[0].first for shard, extents in lines.items() if extents
        }
        for own in list(self._sessions.values()):
            for number, subscription in list(own.subscriptions.items()):
                if subscription.private is not None:
                    own.see(number, lines, starts)

    async def _send_retained(self, session: Session, number: int, filter_text: str) -> None:
        frames = [*self._topics.retained(filter_text)]
        for several in await self.context.cluster.retained(filter_text):
            frames += frames_in(several)
        known = [(one.topic, one.time_us, frame) for frame in frames for one in all_stored(frame)]
        for frame in newest_retained(known):
            session.send(RetainedMessage(number, frame))

    async def _unsubscribe(self, session: Session, call: UnsubscribeTopic) -> Answer:
        own = self._of(session)
        subscription = own.unsubscribe(call.subscription)
        if subscription is None:
            raise NotFound(f"there is no subscription {call.subscription} in this session")
        if own.row is not None:
            await self.context.sessions.unsubscribe(
                own.row.name, own.row.epoch, subscription.filter
            )
        return Done(call.call)

    # --- what becomes of messages -----------------------------------------------------------------

    def _ack(self, session: Session, messages: list[AckMessages]) -> Iterable[Answer]:
        own = self._sessions.get(session)
        if own is not None:
            for message in messages:
                own.reading.ack(message.feed, message.ranges)
        return ()

    def _reject(self, session: Session, messages: list[RejectMessage]) -> Iterable[Answer]:
        own = self._sessions.get(session)
        if own is not None:
            for message in messages:
                own.reading.reject(message.feed, message.offset)
        return ()

    def _give_back(self, session: Session, messages: list[GiveBack]) -> Iterable[Answer]:
        own = self._sessions.get(session)
        if own is not None:
            for message in messages:
                own.reading.give_back(message.feed, message.ranges)
        return ()

    def _for_leader(self, session: Session, messages: list[ForLeader]) -> Iterable[Answer]:
        link = self._links.get(session)
        if link is None:
            link = self._links[session] = Link(session)
            session.on_end.append(lambda: self._forget(session))
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
                await self.context.sessions.seen_all(held)
            for name in await self.context.sessions.remove_expired():
                log.info("a session has expired", extra={"member": name})
        except MoorlineError as error:
            log.warning("sessions were not looked after", extra={"error": str(error)})
