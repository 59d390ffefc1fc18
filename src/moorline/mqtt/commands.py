"""Room: mqtt. What operators ask of this node's clients: to list them, to look at one, to end one."""

from collections.abc import Callable, Iterable
from typing import Final

from moorline.access.demands import Demands
from moorline.access.guard import Declarations, heavy, needs
from moorline.catalog.mqtt_sessions import ListedSession, MqttSessions
from moorline.core.access.right import ADMINISTER, LIST
from moorline.errors import NotFound
from moorline.limits import MQTT_CLIENT_FILTERS_SHOWN_MAX
from moorline.mqtt.broker import PREFIX, MqttBroker
from moorline.mqtt.client import Client
from moorline.mqtt.stored import decode_filters
from moorline.net.clock import monotonic_ms
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.sessions.checks import path_of_session
from moorline.wire.message import Answer
from moorline.wire.mqtt_client import (
    KickMqttClient,
    ListMqttClients,
    MqttClientFacts,
    MqttClientShown,
    MqttClientsListed,
    ShowMqttClient,
)
from moorline.wire.queue import Done

CLIENTS: Final = "/sessions/mqtt"
VERSIONS: Final = {5: "5", 4: "3.1.1", 3: "3.1"}
DROPPED: Final = (
    "denied",
    "refused",
    "not_retained",
    "expired",
    "too_large",
    "lost",
    "filters_denied",
)


class MqttCommands:
    """Answers also where no address of MQTT is open: sessions may be kept nonetheless."""

    def __init__(
        self,
        broker: Callable[[], MqttBroker | None],
        sessions: MqttSessions,
        node: str,
        demands: Demands,
    ) -> None:
        self._broker = broker
        self._sessions = sessions
        self._node = node
        self._demands = demands
        self._turns = Turns()

    def declared(self) -> Declarations:
        turns = self._turns
        return {
            ListMqttClients: heavy(needs(LIST, _all_clients, turns.spawned(self._list))),
            ShowMqttClient: needs(LIST, _one_client, turns.spawned(self._show)),
            KickMqttClient: needs(ADMINISTER, _one_client, turns.spawned(self._kick)),
        }

    def close(self) -> None:
        self._turns.close()

    # --- calls ------------------------------------------------------------------------------------

    async def _list(self, session: Session, call: ListMqttClients) -> Answer:  # noqa: ARG002
        kept = {
            row.name: row
            for row in await self._sessions.page(PREFIX + call.after, call.count + 1)
            if row.name.startswith(PREFIX)
        }
        here = {name: client for name, client in self._here().items() if name > PREFIX + call.after}
        names = sorted({*kept, *here})
        page = names[: call.count]
        facts = tuple(self._facts(name, here.get(name), kept.get(name)) for name in page)
        return MqttClientsListed(call.call, facts, len(names) == len(page))

    async def _show(self, session: Session, call: ShowMqttClient) -> Answer:  # noqa: ARG002
        name = PREFIX + call.client_id
        client, row = self._here().get(name), await self._row(name)
        if client is None and row is None:
            raise _no_client(call.client_id)
        if client is not None and client.session is not None:
            filters = [(one.filter, one.qos) for one in client.session.filters.kept]
            filters += [(text, client.session.qos_of(text)) for text in client.session.shared]
        else:
            assert row is not None
            filters = [(one.filter, one.qos) for one in decode_filters(row.subscriptions)]
        return MqttClientShown(
            call.call,
            self._facts(name, client, row),
            tuple(filters[:MQTT_CLIENT_FILTERS_SHOWN_MAX]),
        )

    async def _kick(self, session: Session, call: KickMqttClient) -> Answer:  # noqa: ARG002
        name = PREFIX + call.client_id
        client, row = self._here().get(name), await self._row(name)
        if client is None and row is None:
            raise _no_client(call.client_id)
        if client is None and not call.ends_session:
            raise NotFound(
                f"the client {call.client_id!r} is not connected here; its session was last at "
                f"{row.node if row else ''}: ask that node, or end the session too"
            )
        broker = self._broker()
        if client is not None and broker is not None:
            broker.counts.kicked += 1
            client.close("KICKED", "an operator has ended this connection")
            await broker.settled(name)
        if call.ends_session:
            await self._sessions.remove(name)
        return Done(call.call)

    # --- inside -----------------------------------------------------------------------------------

    def _here(self) -> dict[str, Client]:
        broker = self._broker()
        return broker.by_name if broker is not None else {}

    async def _row(self, name: str) -> ListedSession | None:
        return next((row for row in await self._sessions.page(name, 1, at=True)), None)

    def _facts(
        self, name: str, client: Client | None, row: ListedSession | None
    ) -> MqttClientFacts:
        client_id = name.removeprefix(PREFIX)
        if client is None or client.session is None:
            assert row is not None
            filters = len(decode_filters(row.subscriptions))
            return MqttClientFacts(
                client_id, row.owner, row.node, False, "", "", row.expiry_s, 0, filters, 0, 0, 0, {}
            )
        session, counts = client.session, client.counts
        dropped = {cause: getattr(counts, cause) for cause in DROPPED}
        dropped["expired"] = session.outbound.expired
        return MqttClientFacts(
            client_id,
            client.rights.principal,
            self._node,
            True,
            client.peer_address,
            VERSIONS.get(client.level, ""),
            client.session_expiry_s,
            monotonic_ms() - client.connected_ms,
            len(session.filters) + len(session.shared),
            session.in_flight,
            counts.received,
            counts.sent,
            {cause: count for cause, count in dropped.items() if count},
        )


def _no_client(client_id: str) -> NotFound:
    return NotFound(f"there is no client {client_id!r}, and no session of it")


def _all_clients(_: object) -> Iterable[str]:
    return (CLIENTS,)


def _one_client(call: ShowMqttClient | KickMqttClient) -> Iterable[str]:
    return (path_of_session(PREFIX + call.client_id),)
