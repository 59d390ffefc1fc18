"""Room: mqtt. The clients of this node: who has which id, how sessions open and end, and what all share.

CONNECT ─► judged ─► the id is ours: whoever had it here is ended, and has stored what it had
                 ─► the session of the catalog, if it is to outlive the connection, or nodes share one
                 ─► will kept ─► CONNACK ─► filters and groups go on
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final
from weakref import WeakValueDictionary

from moorline.access.demands import Demands
from moorline.access.guard import demand
from moorline.access.judging import Judging
from moorline.catalog.mqtt_sessions import MqttSessions
from moorline.config.settings import Config
from moorline.core.access.principal import Proof
from moorline.core.access.right import PUBLISH
from moorline.core.mqtt.connection import ConnectionTerms
from moorline.core.mqtt.effects import EndConnection, MessagePosition, OpenSession
from moorline.core.mqtt.packets import MQTT_5, Connect
from moorline.core.mqtt.reason import ReasonCode, Violation
from moorline.errors import ConnectionLost, Denied, MoorlineError, OverQuota, RightsUnknown
from moorline.limits import (
    MQTT_ALIASES_MAX,
    MQTT_CLIENT_ID_BYTES_MAX,
    MQTT_CONNECT_MS,
    MQTT_PLACES_PASS_MS,
    MQTT_RECEIVE_MAX,
)
from moorline.mqtt.client import Client
from moorline.mqtt.counts import NodeCounts
from moorline.mqtt.logins import Logins, Refused
from moorline.mqtt.publishing import Publishing
from moorline.mqtt.redirects import Redirects
from moorline.mqtt.retained import SOURCE, RetainedMessages
from moorline.mqtt.session import ClientSession
from moorline.mqtt.stored import ExchangeCommits, decode_exchanges, decode_filters
from moorline.mqtt.system_topics import SystemTopics
from moorline.mqtt.wills import Wills
from moorline.net.session_rights import SessionAllowance, SessionRights
from moorline.net.tasks import Tasks
from moorline.net.tls import Identity
from moorline.sessions.checks import path_of_session
from moorline.sessions.commands import SessionBroker
from moorline.topics.commands import TopicBroker
from moorline.topics.producer import producer_number
from moorline.wire.topic import OpenSession as OpenDurable

log = logging.getLogger("moorline.mqtt")

PREFIX: Final = "mqtt/"
"""What stands before a client id in the name of its session."""

RightsOf = Callable[[str, Proof, bool], SessionRights]
AllowanceOf = Callable[[str, bool], SessionAllowance]


class MqttBroker:
    def __init__(
        self,
        config: Config,
        home: str,
        topics: TopicBroker,
        sessions: SessionBroker,
        mqtt_sessions: MqttSessions,
        rights_of: RightsOf,
        allowance_of: AllowanceOf,
        demands: Demands,
    ) -> None:
        self.config = config
        self.home = home
        self.topics = topics
        self.sessions = sessions
        self.context = sessions.context
        self.mqtt_sessions = mqtt_sessions
        self.rights_of = rights_of
        self.allowance_of = allowance_of
        self.demands = demands
        self.counts = NodeCounts()
        self.logins = Logins()
        is_shared = not config.is_catalog_embedded
        self.redirects = Redirects(mqtt_sessions, home, is_shared=is_shared)
        self.clients: dict[str, Client] = {}
        """Those that are connected, by their id."""
        self.by_name: dict[str, Client] = {}
        """The same by the name of the session."""
        self._open_sessions: dict[ClientSession, None] = {}
        """Of every connection, also of one that is about to have its id."""
        self.exchanges = ExchangeCommits(mqtt_sessions)
        self._tasks = Tasks("a client of MQTT was not served")
        self._judging = Judging(self._judge_all, self._tasks.spawn)
        self.publishing = Publishing(
            topics,
            demands,
            self.counts,
            message_bytes_max=config.streams.message_bytes_max,
            retained_bytes_max=config.mqtt_retained_bytes_max,
        )
        self.retained = RetainedMessages(self)
        self.system_topics = SystemTopics(self)
        self.wills = Wills(self)
        self._settling: dict[str, asyncio.Task[None]] = {}
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._terms: dict[frozenset[str], ConnectionTerms] = {}
        """Those of each listener: its connections share them."""
        self.is_shared = is_shared
        """Whether other nodes may go on with a session."""

    def terms(self, methods: frozenset[str]) -> ConnectionTerms:
        known = self._terms.get(methods)
        if known is None:
            known = self._terms[methods] = self._terms_for(methods)
        return known

    def _terms_for(self, methods: frozenset[str]) -> ConnectionTerms:
        return ConnectionTerms(
            receive_max=MQTT_RECEIVE_MAX,
            packet_bytes_max=self.config.mqtt_packet_bytes_max,
            topic_alias_max=MQTT_ALIASES_MAX,
            keep_alive_s_max=self.config.mqtt_keep_alive_s_max,
            connect_timeout_ms=min(MQTT_CONNECT_MS, self.config.hello_timeout_ms),
            session_expiry_s_max=self.config.mqtt_session_expiry_s_max,
            methods=methods,
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.spawn(work)

    def identity_of(self, principal: str, proof: Proof) -> Identity:
        return Identity(principal, proof)

    def judge_soon(self) -> None:
        """Behind a change of rights: filters that are not granted any more let nothing through, in slices."""
        self._judging.soon()

    def _judge_all(self) -> Generator[None, None, None]:
        for session in list(self._open_sessions):
            if session in self._open_sessions:
                yield from session.judge_again()
            yield

    async def close(self) -> None:
        """Clients are gone by now; what they left is stored."""
        if self._settling:
            await asyncio.wait(list(self._settling.values()), timeout=5)
        self.wills.close()
        self.exchanges.close()
        self._tasks.cancel()

    async def pass_forever(self) -> None:
        """Sessions whose client gets nothing for a long time read nothing: their places come along, so that a
        killed node does not have them read all of it later. Some at a time, so that it is no burst."""
        while True:
            sessions = list(self._open_sessions)
            pause_s = MQTT_PLACES_PASS_MS / 1_000 / (len(sessions) + 1)
            for session in sessions:
                await asyncio.sleep(pause_s)
                if session in self._open_sessions and session.row is not None:
                    session.own.delivery.pass_slept()
            await asyncio.sleep(pause_s)

    # --- CONNECT ----------------------------------------------------------------------------------

    async def open(self, client: Client, effect: OpenSession) -> None:
        connect = effect.connect
        client_id = connect.client_id
        if len(client_id.encode()) > MQTT_CLIENT_ID_BYTES_MAX:
            raise Refused(
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                f"a client id has at most {MQTT_CLIENT_ID_BYTES_MAX} bytes here",
            )
        assigned = "" if client_id else f"moor-{secrets.token_hex(8)}"
        client.client_id = client_id or assigned
        client.name = PREFIX + client.client_id
        principal = client.rights.principal
        client.producer = producer_number(principal, client.client_id)
        client.numbered_producer = producer_number(principal, f"{client.client_id}\0qos2")
        # It is there as long as anybody holds it, or waits for it.
        lock = self._opening.setdefault(client.name, asyncio.Lock())
        try:
            async with lock:
                await self._open(client, connect, assigned)
        except (Denied, RightsUnknown) as error:
            self.demands.tell(client, "Connect", error)
            raise Refused(ReasonCode.NOT_AUTHORIZED, str(error)) from error
        except OverQuota as error:
            self.demands.tell(client, "Connect", error)
            raise Refused(ReasonCode.QUOTA_EXCEEDED, str(error)) from error
        except ConnectionLost as error:
            raise Refused(ReasonCode.UNSPECIFIED_ERROR, str(error)) from error
        except (MoorlineError, OSError) as error:
            log.warning("a session was not opened", extra={"error": str(error)})
            raise Refused(
                ReasonCode.SERVER_UNAVAILABLE, "the catalog does not answer: connect again later"
            ) from error

    async def _open(self, client: Client, connect: Connect, assigned: str) -> None:
        name = client.name
        await self._end_other(client, name)
        if not client.is_open:
            raise ConnectionLost("the client went before its session was opened")
        expiry_s = client.session_expiry_s
        session = ClientSession(client, self, name)
        client.session = session
        self._open_sessions[session] = None
        client.at_end(lambda: self._open_sessions.pop(session, None))
        present = await self._opened(client, session, connect, expiry_s)
        try:
            await self.wills.connected(
                client, name, expiry_s, connect.will, clean_start=connect.clean_start
            )
            if not client.is_open:
                raise ConnectionLost("the client went while its session was opened")
        except BaseException:
            # Nobody heard CONNACK: a will of such a client is not published, and its life is over.
            self.wills.disconnected(name, is_normal=True, expiry_s=expiry_s)
            raise
        self.clients[client.client_id] = self.by_name[name] = client
        self.counts.connected += 1
        self.counts.most_clients = max(self.counts.most_clients, len(self.clients))
        client.keep_alive_s = connect.keep_alive_s
        kept, reader, again = present or ([], 0, [])
        session.connected()
        client.accepted(session_present=present is not None, assigned_client_id=assigned or None)
        session.begin()
        client.flush()
        await session.requests.begin(kept, reader)
        if again:
            await self.retained.send_again(session, again)

    async def _opened(
        self, client: Client, session: ClientSession, connect: Connect, expiry_s: int
    ) -> tuple[list[Any], int, list[MessagePosition]] | None:
        """Filters, the reader, and places of retained messages that are out, of a session that goes on."""
        name = session.name
        if expiry_s:
            demand(client.rights, PUBLISH, path_of_session(name))
        elif connect.clean_start and not self.is_shared:
            # It is nobody's but this connection's: only an older one is to be ended.
            owner = await self.mqtt_sessions.owner_of(name)
            if owner is None:
                return None
            self._check_owner(owner, client)
            await self.context.sessions.remove(name)
            return None
        if self.redirects and expiry_s and not connect.clean_start and connect.level == MQTT_5:
            await self._send_where_it_is_known(client, name)
        own = session.own
        await self.sessions.durable.hand_over(own, name)
        call = OpenDurable(0, name, expiry_s)
        try:
            row = await self.sessions.durable.take_over(own, call)
        except Denied as error:
            raise Refused(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, TAKEN) from error
        if connect.clean_start and not row.is_new:
            await self.context.sessions.remove(name)
            row = await self.sessions.durable.take_over(own, call)
        filters, exchanges = await self.mqtt_sessions.load(name)
        if row.is_new:
            return None
        kept = decode_exchanges(exchanges)
        session.restore(kept)
        reader = next((one.reader or 0 for one in row.subscriptions if one.filter == "#"), 0)
        retained = [sent for sent in kept.unfinished() if sent.position.source.startswith(SOURCE)]
        session.sendings = max([sent.position.shard.number for sent in retained], default=0)
        again = [sent.position for sent in retained if not sent.is_released]
        return decode_filters(filters), reader, again

    async def _send_where_it_is_known(self, client: Client, name: str) -> None:
        """A PUBLISH of QoS 2 whose PUBREC has not left: whether it is stored, only the node of the last
        connection may know. Here it would be stored once more."""
        known = next(iter(await self.mqtt_sessions.page(name, 1, at=True)), None)
        reference = self.redirects.of(known.node) if known is not None else None
        if known is None or reference is None or known.owner != client.rights.principal:
            return
        _, exchanges = await self.mqtt_sessions.load(name)
        if decode_exchanges(exchanges).has_unknown:
            text = "the node of your last connection knows your unfinished publishes of QoS 2"
            raise Refused(ReasonCode.USE_ANOTHER_SERVER, text, reference)

    def _check_owner(self, owner: str, client: Client) -> None:
        if owner != client.rights.principal:
            raise Refused(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, TAKEN)

    async def _end_other(self, client: Client, name: str) -> None:
        """Whoever has the id on this node; one that is just over has stored what it had."""
        other = self.by_name.get(name)
        if other is not None:
            self._check_owner(other.rights.principal, client)
            self.counts.taken_over += 1
            other.close("TAKEN_OVER", "another connection has this client id")
        await self.settled(name)

    # --- what clients do, for the figures ---------------------------------------------------------

    def violated(self, client: Client, violation: Violation) -> None:
        self.counts.violations += 1
        log.info(
            "a client broke the protocol",
            extra={
                "client": client.client_id,
                "address": client.peer_address,
                "reason": violation.reason.name,
                "text": violation.text,
            },
        )

    def ended(self, client: Client, end: EndConnection) -> None:
        session = client.session
        if session is None:
            return
        name = session.name
        was_open = self.by_name.get(name) is client
        if was_open:
            del self.by_name[name]
            self.clients.pop(client.client_id, None)
        if end.reason is ReasonCode.KEEP_ALIVE_TIMEOUT:
            self.counts.timeouts += 1
        self.counts.received_publishes += client.counts.received
        self.counts.received_bytes += client.counts.received_bytes
        self.counts.sent_bytes += client.counts.sent_bytes
        expiry_s = end.session_expiry_s
        session.end()
        settling = asyncio.create_task(self._settle(session, expiry_s))
        self._settling[name] = settling
        settling.add_done_callback(lambda done: self._settled(name, done))
        if was_open:
            self.wills.disconnected(name, is_normal=end.is_normal, expiry_s=expiry_s)

    async def _settle(self, session: ClientSession, expiry_s: int) -> None:
        own = session.own_if_any
        row = session.row
        if own is not None and row is not None and session.client.end_code != "TAKEN_OVER":
            own.ends_with_connection = expiry_s == 0
            if expiry_s and expiry_s != row.expiry_s:
                await self.mqtt_sessions.set_expiry(row.name, row.epoch, expiry_s)
        await session.settle()
        if own is not None:
            # Its last places too: whoever comes next begins behind them.
            await own.settled()

    async def settled(self, name: str) -> None:
        """Returns when a session whose connection is over has stored what it had."""
        settling = self._settling.get(name)
        if settling is not None:
            await asyncio.wait([settling])

    def _settled(self, name: str, done: "asyncio.Task[None]") -> None:
        if self._settling.get(name) is done:
            del self._settling[name]
        if not done.cancelled() and done.exception() is not None:
            log.warning("a session was not settled", extra={"error": str(done.exception())})


TAKEN: Final = "this client id is not yours: choose another one"
"""The same whether there is a session or a right is missing."""
