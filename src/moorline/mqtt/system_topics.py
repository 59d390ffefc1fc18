"""Room: mqtt. `$SYS` as dashboards know it from other brokers: figures of the node, told and never stored.

A client that subscribes to one gets its value at once, and then every few seconds. They are made for those
who read them: no stream has them, and no group.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from moorline.core.mqtt.effects import MessagePosition
from moorline.core.mqtt.outbound import NO_FEED, Outgoing
from moorline.core.stream import Shard
from moorline.core.topic import matches
from moorline.limits import MQTT_SYSTEM_TOPICS_MS
from moorline.net.clock import monotonic_ms
from moorline.version import SOFTWARE

if TYPE_CHECKING:
    from moorline.mqtt.broker import MqttBroker

PREFIX = "$SYS/broker/"
_NOWHERE = MessagePosition("$SYS", Shard("", 0), 0)


class SystemTopics:
    def __init__(self, broker: "MqttBroker") -> None:
        self._broker = broker
        self._started_ms = monotonic_ms()

    def values(self) -> dict[str, str]:
        """Those that mosquitto's dashboards and exporters read."""
        broker, counts = self._broker, self._broker.counts
        clients = list(broker.clients.values())
        store = broker.topics.streams.store
        received = counts.received_publishes + sum(one.counts.received for one in clients)
        sent = counts.sent
        received_bytes = counts.received_bytes + sum(one.counts.received_bytes for one in clients)
        sent_bytes = counts.sent_bytes + sum(one.counts.sent_bytes for one in clients)
        subscriptions = sum(
            len(one.session.filters) + len(one.session.shared)
            for one in clients
            if one.session is not None
        )
        dropped = counts.denied + counts.refused + counts.expired + counts.too_large + counts.lost
        return {
            "version": SOFTWARE,
            "uptime": f"{(monotonic_ms() - self._started_ms) // 1_000} seconds",
            "clients/connected": str(len(clients)),
            "clients/active": str(len(clients)),
            "clients/total": str(len(clients)),
            "clients/maximum": str(counts.most_clients),
            "messages/received": str(received),
            "messages/sent": str(sent),
            "publish/messages/received": str(received),
            "publish/messages/sent": str(sent),
            "publish/messages/dropped": str(dropped),
            "bytes/received": str(received_bytes),
            "bytes/sent": str(sent_bytes),
            "subscriptions/count": str(subscriptions),
            "retained messages/count": str(store.retained_count),
            "store/messages/count": str(broker.topics.counts.published),
        }

    def now(self, filter_text: str) -> Iterator[Outgoing]:
        """What a filter takes of them; only one that names `$SYS` takes any."""
        if not filter_text.startswith("$SYS"):
            return
        for name, value in self.values().items():
            if matches(filter_text, PREFIX + name):
                yield Outgoing(_NOWHERE, NO_FEED, PREFIX + name, value.encode(), 0, True)

    async def tell_forever(self) -> None:
        while True:
            await asyncio.sleep(MQTT_SYSTEM_TOPICS_MS / 1_000)
            values = self.values()
            for client in list(self._broker.clients.values()):
                session = client.session
                if session is None or not session.filters.names_system_topics:
                    continue
                if not session.outlet.has_room:
                    continue  # who does not read is not told: the next values replace these
                found = [
                    Outgoing(_NOWHERE, NO_FEED, PREFIX + name, value.encode(), 0)
                    for name, value in values.items()
                    if session.filters.granted(PREFIX + name) is not None
                ]
                session.outlet.send(found)
                client.flush()
