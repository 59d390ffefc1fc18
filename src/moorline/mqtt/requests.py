"""Room: mqtt. SUBSCRIBE and UNSUBSCRIBE of one client, in their order; those that wait are done together.

A durable session's filters are written to the catalog once for all that wait, before any of them is
answered: 8,000 SUBSCRIBEs at a start are some tens of statements.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from moorline.access.guard import demand
from moorline.core.access.quota import Quota
from moorline.core.access.right import SUBSCRIBE
from moorline.core.mqtt.packets import Suback, Subscribe, Subscription, Unsuback, Unsubscribe
from moorline.core.mqtt.reason import ReasonCode, Violation
from moorline.core.topic import check_filter, shared_name
from moorline.errors import (
    BadTopic,
    Denied,
    MoorlineError,
    OverQuota,
    RightsUnknown,
)
from moorline.limits import (
    MQTT_FILTERS_BYTES_MAX,
    MQTT_FILTERS_MAX,
    MQTT_FILTERS_PER_BATCH,
    MQTT_FILTERS_PER_SLICE,
    MQTT_FILTERS_WAITING_MAX,
    MQTT_IN_FLIGHT_MAX,
)
from moorline.mqtt.filters import Starts
from moorline.mqtt.outlet import Member
from moorline.mqtt.stored import KeptFilter, encode_filters
from moorline.net.session_rights import SessionAllowance
from moorline.topics.paths import path_of_topic
from moorline.wire.mqtt.encoder import encode

if TYPE_CHECKING:
    from moorline.mqtt.broker import MqttBroker
    from moorline.mqtt.session import ClientSession

log = logging.getLogger("moorline.mqtt")

ACT: Final = "Subscribe"
WAIT: Final = "requests"
Request = Subscribe | Unsubscribe

_MAY_COME_BACK: Final = frozenset({Denied.code, RightsUnknown.code})
"""Why a membership ended that may go on when rights change."""


class Requests:
    __slots__ = (
        "_allowance",
        "_broker",
        "_client",
        "_done",
        "_filters_waiting",
        "_is_over",
        "_is_working",
        "_looks_again",
        "_lost",
        "_members",
        "_places",
        "_session",
        "_waiting",
    )

    def __init__(self, session: "ClientSession", broker: "MqttBroker") -> None:
        self._session = session
        self._broker = broker
        self._client = session.client
        self._waiting: list[Request] = []
        self._filters_waiting = 0
        """Of all of them: one may name thousands."""
        self._is_working = True
        """Also until the session goes on: what comes meanwhile waits."""
        self._is_over = False
        self._done = 0
        """Filters, for the slices they are done in."""
        self._members: dict[str, KeptFilter] = {}
        """Shared subscriptions, as they are kept; also those that are not granted now."""
        self._lost: dict[str, None] = {}
        """Those of them that are not granted now; not one whose member an operator has ended."""
        self._looks_again = False
        """Whether what is not granted is to be tried once more."""
        self._places: dict[str, None] = {}
        """Plain filters that have a place in the quota of the client's principal."""
        self._allowance: SessionAllowance | None = None
        """That they were taken from: the client has none any more when they are given back."""

    def take(self, request: Request) -> None:
        self._waiting.append(request)
        self._filters_waiting += _filters_of(request)
        if self._filters_waiting >= MQTT_FILTERS_WAITING_MAX:
            self._client.hold_reading(WAIT)
        if not self._is_working:
            self._is_working = True
            self._broker.spawn(self._work())

    def rights_changed(self) -> None:
        """What was withheld may be granted again."""
        if self._session.filters.withheld or self._lost:
            self._look_again()

    def membership_over(self, text: str, code: str) -> None:
        if code in _MAY_COME_BACK:
            self._lost[text] = None
        elif code == "DELETED" and self._members.pop(text, None) is not None:
            # A session that came back with it would make the group anew.
            self._look_again()

    def _look_again(self) -> None:
        self._looks_again = True
        if not self._is_working and not self._is_over:
            self._is_working = True
            self._broker.spawn(self._work())

    def close(self) -> None:
        self._is_over = True
        self._waiting.clear()
        self._filters_waiting = 0

    async def _work(self) -> None:
        try:
            while (self._waiting or self._looks_again) and not self._is_over:
                if self._looks_again:
                    self._looks_again = False
                    await self._go_on_again()
                    continue
                await self._answer(self._batch())
                if self._filters_waiting < MQTT_FILTERS_WAITING_MAX // 2:
                    self._client.release_reading(WAIT)
        except (MoorlineError, OSError) as error:
            if not self._is_over:
                log.warning("filters were not stored", extra={"error": str(error)})
                self._client.close("CATALOG", "the catalog does not answer: connect again later")
        finally:
            self._is_working = False

    async def _go_on_again(self) -> None:
        """With what comes from now on; of a group where it stands. What is refused again stays as it is, and
        is not told: nobody asked."""
        session = self._session
        for text in session.filters.withheld:
            await self._give_way()
            if self._is_over:
                return
            if self._client.rights.at(path_of_topic(text)) & SUBSCRIBE:
                with contextlib.suppress(OverQuota):
                    self._take(text)
                    session.filters.restore(text)
        for text in list(self._lost):
            await self._give_way()
            kept = self._members.get(text)
            if kept is not None and not self._is_over:
                with contextlib.suppress(Denied, RightsUnknown, OverQuota):
                    await self.join(kept.subscription, kept.identifier, is_new=False)
        await self._store()

    def _batch(self) -> list[Request]:
        """Those that are answered together: one at least, however many filters it names."""
        count = filters = 0
        for request in self._waiting:
            if count and filters + _filters_of(request) > MQTT_FILTERS_PER_BATCH:
                break
            count += 1
            filters += _filters_of(request)
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        self._filters_waiting -= filters
        return batch

    async def _give_way(self) -> None:
        """After each slice of filters others have their turn of the loop."""
        self._done += 1
        if not self._done % MQTT_FILTERS_PER_SLICE:
            await asyncio.sleep(0)

    async def _answer(self, batch: Sequence[Request]) -> None:
        session, client = self._session, self._client
        starts = self._broker.sessions.ends() if session.reading else None
        answers: list[bytes] = []
        wanted: list[tuple[Subscription, int | None]] = []
        figures: set[str] = set()
        """Filters of `$SYS`: its values are told once for each, however often it comes."""
        for request in batch:
            if isinstance(request, Subscribe):
                reasons = []
                found = request.properties.subscription_identifiers
                identifier = found[0] if found else None
                for one in request.subscriptions:
                    reason, is_retained = await self._subscribe(one, identifier, starts)
                    reasons.append(reason)
                    if is_retained and one.filter not in figures:
                        wanted.append((one, identifier))
                        if one.filter.startswith("$SYS"):
                            figures.add(one.filter)
                    await self._give_way()
                    if self._is_over:
                        return
                answer: Suback | Unsuback = Suback(request.packet_id, tuple(reasons))
            else:
                outcome = []
                for text in request.filters:
                    outcome.append(await self._unsubscribe(text))
                    await self._give_way()
                    if self._is_over:
                        return
                answer = Unsuback(request.packet_id, tuple(outcome))
            answers.append(encode(answer, client.level))
        await self._read()
        await self._store()
        if self._is_over:
            return
        client.write(b"".join(answers))
        client.flush()
        for one, identifier in wanted:
            await self._broker.retained.send(session, one, identifier)

    async def _read(self) -> None:
        """The client's place begins with its first plain filter."""
        session = self._session
        if session.reading or not len(session.filters) or self._is_over:
            return
        reader, row = 0, session.row
        if row is not None:
            known = await self._broker.context.sessions.subscribe(row.name, row.epoch, "#", 2)
            if known is None:
                session.taken_over()
                return
            reader = known.reader or 0
        session.reading = await self._broker.sessions.begin_reading(
            session.own, reader, MQTT_IN_FLIGHT_MAX, session.filters, session.sleeper
        )
        if reader:
            await session.own.commit()

    async def _store(self) -> None:
        session = self._session
        if not session.is_kept or self._is_over:
            return
        encoded = encode_filters([*session.filters.kept, *self._members.values()])
        if not await self._broker.mqtt_sessions.save_subscriptions(
            session.name, session.epoch, encoded
        ):
            session.taken_over()

    # --- one filter -------------------------------------------------------------------------------

    async def _subscribe(
        self, one: Subscription, identifier: int | None, starts: Starts | None
    ) -> tuple[ReasonCode, bool]:
        """Its reason, and whether retained messages are to follow."""
        client = self._client
        try:
            group = shared_name(one.filter)
            if group is None:
                check_filter(one.filter)
                demand(client.rights, SUBSCRIBE, path_of_topic(one.filter))
                is_new = self._put(_of_bridge(one) if client.is_bridge else one, identifier, starts)
            else:
                if one.no_local:
                    text = "no local means nothing in a shared subscription (3.8.3.1)"
                    client.broke(Violation(ReasonCode.PROTOCOL_ERROR, text))
                    return ReasonCode.PROTOCOL_ERROR, False
                await self.join(one, identifier, is_new=True)
                is_new = False
        except (Denied, RightsUnknown, OverQuota) as error:
            self._broker.demands.tell(client, ACT, error)
            if isinstance(error, OverQuota):
                return ReasonCode.QUOTA_EXCEEDED, False
            return ReasonCode.NOT_AUTHORIZED, False
        except BadTopic:
            return ReasonCode.TOPIC_FILTER_INVALID, False
        handling = one.retain_handling
        is_retained = group is None and (handling == 0 or (handling == 1 and is_new))
        return ReasonCode(one.qos), is_retained

    def _put(self, one: Subscription, identifier: int | None, starts: Starts | None) -> bool:
        filters = self._session.filters
        is_full = (
            len(filters) >= MQTT_FILTERS_MAX
            or filters.bytes + len(one.filter) > MQTT_FILTERS_BYTES_MAX
        )
        if is_full and one.filter not in filters:
            raise OverQuota(f"a client has at most {MQTT_FILTERS_MAX} filters")
        self._take(one.filter)
        return filters.put(one, identifier, starts)

    def _take(self, text: str) -> None:
        """A place for a filter; once, however often it comes."""
        allowance = self._client.allowance
        if allowance is None or text in self._places:
            return
        allowance.take((Quota.SUBSCRIPTIONS, 1))
        self._places[text] = None
        if self._allowance is None:
            self._allowance = allowance
            self._client.at_end(self._give_all_back)

    def _give_back(self, text: str) -> None:
        if text in self._places and self._allowance is not None:
            del self._places[text]
            self._allowance.give_back((Quota.SUBSCRIPTIONS, 1))

    def _give_all_back(self) -> None:
        allowance, places = self._allowance, len(self._places)
        self._allowance = None
        self._places.clear()
        if allowance is not None and places:
            allowance.give_back((Quota.SUBSCRIPTIONS, places))

    async def join(self, one: Subscription, identifier: int | None, *, is_new: bool) -> None:
        session = self._session
        number = await self._broker.sessions.join_group(
            session.own, one.filter, MQTT_IN_FLIGHT_MAX, min(one.qos, 1), is_new=is_new
        )
        session.shared[one.filter] = number
        self._lost.pop(one.filter, None)
        self._members[one.filter] = KeptFilter.of(one, identifier)
        group = shared_name(one.filter)
        session.outlet.members[number] = Member(
            str(group),
            one.qos,
            one.retain_as_published,
            () if identifier is None else (identifier,),
        )

    async def _unsubscribe(self, text: str) -> ReasonCode:
        session = self._session
        number = session.shared.pop(text, None)
        if number is not None:
            self._members.pop(text, None)
            subscription = session.own.unsubscribe(number)
            if session.own.row is not None and subscription is not None:
                row = session.own.row
                await self._broker.context.sessions.unsubscribe(row.name, row.epoch, text)
            # This one is needed until its feeds are drained: those that were left before it go.
            members = session.outlet.members
            for known in [one for one in members if one not in session.own.subscriptions]:
                del members[known]
            return ReasonCode.SUCCESS
        self._lost.pop(text, None)
        if self._members.pop(text, None) is not None:
            # It was not granted any more, and is not to go on if it is again.
            if session.own.row is not None:
                row = session.own.row
                await self._broker.context.sessions.unsubscribe(row.name, row.epoch, text)
            return ReasonCode.SUCCESS
        if session.filters.remove(text):
            self._give_back(text)
            return ReasonCode.SUCCESS
        return ReasonCode.NO_SUBSCRIPTION_EXISTED

    # --- a session that goes on -------------------------------------------------------------------

    async def begin(self, kept: Sequence[KeptFilter], reader: int) -> None:
        """What the session had goes on; then what came meanwhile is done."""
        await self._resume(kept, reader)
        self._is_working = bool(self._waiting) or self._looks_again
        if self._is_working:
            self._broker.spawn(self._work())

    async def _resume(self, kept: Sequence[KeptFilter], reader: int) -> None:
        """Filters that are not granted by now stay the client's, and let nothing through."""
        session, client = self._session, self._client
        plain: list[str] = []
        for one in kept:
            await self._give_way()
            if self._is_over:
                return
            try:
                if shared_name(one.filter) is not None:
                    await self.join(one.subscription, one.identifier, is_new=False)
                    continue
                session.filters.put(one.subscription, one.identifier, None)
                demand(client.rights, SUBSCRIBE, path_of_topic(one.filter))
                plain.append(one.filter)
            except (Denied, OverQuota, RightsUnknown) as error:
                if not session.filters.withhold(one.filter):
                    self._members[one.filter] = one
                    self._lost[one.filter] = None
                self._broker.demands.tell(client, ACT, error)
        if reader:
            session.reading = await self._broker.sessions.begin_reading(
                session.own, reader, MQTT_IN_FLIGHT_MAX, session.filters, session.sleeper
            )
            session.pass_places()
        # Behind the place in the streams, which needs one of the quota too, and all of them need it.
        for text in plain:
            try:
                if text in session.filters:
                    self._take(text)
            except OverQuota as error:
                session.filters.withhold(text)
                self._broker.demands.tell(client, ACT, error)


def _of_bridge(one: Subscription) -> Subscription:
    """Another broker, of before MQTT 5, cannot ask for it: what it passed on itself would come back for ever,
    and what is retained here would not be there."""
    return msgspec.structs.replace(one, no_local=True, retain_as_published=True)


def _filters_of(request: Request) -> int:
    return len(request.subscriptions if isinstance(request, Subscribe) else request.filters)
