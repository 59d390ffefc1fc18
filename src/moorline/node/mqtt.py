"""Room: node. MQTT at a node: its addresses, opened behind the native ones, and its figures."""

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import AsyncIterator, Callable

from moorline.access.demands import Demands
from moorline.catalog import Catalog
from moorline.catalog.mqtt_sessions import MqttSessions
from moorline.config.addresses import DEFAULT_MQTT, Address
from moorline.config.settings import Config
from moorline.errors import AddressTaken
from moorline.metrics import Metrics
from moorline.mqtt.broker import MqttBroker
from moorline.mqtt.listener import MqttListeners
from moorline.mqtt.logins import MqttAdmission
from moorline.mqtt.websocket import register as register_sockets
from moorline.net.acceptor import Acceptor
from moorline.net.http.peer import Peer
from moorline.net.http.routes import Routes
from moorline.net.listener import ServerTls
from moorline.net.session_rights import SessionRights
from moorline.node.access import NodeAccess
from moorline.node.topics import Topics

log = logging.getLogger("moorline.node")


class Mqtt:
    """Made by `open_mqtt`."""

    def __init__(self, broker: MqttBroker, listeners: MqttListeners) -> None:
        self.broker = broker
        self.listeners = listeners
        self.addresses: list[Address] = []


@contextlib.asynccontextmanager
async def open_mqtt(
    config: Config,
    home: str,
    catalog: Catalog,
    topics: Topics,
    access: NodeAccess,
    acceptor: Acceptor,
    tls: ServerTls | None,
    entered: Callable[[Peer], SessionRights],
    opened: Callable[[Mqtt], None],
    routes: Routes,
) -> AsyncIterator[Mqtt]:
    """`opened` hears of it before anybody may come."""
    broker = MqttBroker(
        config,
        home,
        topics.broker,
        topics.sessions,
        MqttSessions(catalog),
        lambda principal, proof, is_local: access.table.rights(principal, proof, is_local=is_local),
        access.allowance_of,
        Demands(access.trail, access.trail),
    )
    mqtt = Mqtt(broker, MqttListeners(broker, acceptor))
    opened(mqtt)
    stop = access.table.on_change(broker.judge_soon)
    tasks = [
        asyncio.create_task(broker.wills.look_forever()),
        asyncio.create_task(broker.system_topics.tell_forever()),
        asyncio.create_task(broker.redirects.look_forever()),
        asyncio.create_task(broker.pass_forever()),
    ]
    try:
        sources = [ipaddress.ip_network(one) for one in config.mqtt_proxy_sources]
        for text, address in zip(config.mqtt_listeners(), config.mqtt_addresses(), strict=True):
            admission = MqttAdmission(
                text,
                access.authentication(text),
                config.anonymous,
                text in config.access.proxied or text in config.mqtt_proxy,
                tls if address.scheme == "mqtts" else None,
                config.access.certificate_rules(),
                entered,
                access.trail.login_refused,
            )
            try:
                mqtt.addresses += await mqtt.listeners.open(
                    address, admission, sources if text in config.mqtt_proxy else None
                )
            except AddressTaken:
                if config.mqtt != [DEFAULT_MQTT]:
                    raise
                log.warning(
                    "another program has the default address of MQTT: this node has none (mqtt says "
                    "where it is to listen)",
                    extra={"address": DEFAULT_MQTT},
                )
        register_sockets(routes, mqtt.listeners, _over_http(config, access, entered))
        yield mqtt
    finally:
        stop()
        for task in tasks:
            task.cancel()
        await mqtt.listeners.close()
        await broker.close()


def _over_http(
    config: Config, access: NodeAccess, entered: Callable[[Peer], SessionRights]
) -> MqttAdmission:
    """Whoever comes by a WebSocket: the transport, with its TLS, is the HTTP port's."""
    listener = config.http_listener()
    return MqttAdmission(
        listener,
        access.authentication(listener),
        config.anonymous,
        listener in config.access.proxied,
        None,
        config.access.certificate_rules(),
        entered,
        access.trail.login_refused,
    )


def watch(metrics: Metrics, mqtt: Mqtt) -> None:
    """Shows the figures of MQTT on /metrics."""
    broker, counts = mqtt.broker, mqtt.broker.counts
    figures: dict[str, tuple[str, Callable[[], float]]] = {
        "mqtt_clients": ("Clients of MQTT that are connected.", lambda: len(broker.clients)),
        "mqtt_connections": ("Connections of MQTT.", lambda: mqtt.listeners.connections),
        "mqtt_connects_total": ("CONNECTs that were accepted.", lambda: counts.connected),
        "mqtt_taken_over_total": (
            "Connections whose client id another connection has taken.",
            lambda: counts.taken_over,
        ),
        "mqtt_kicked_total": ("Connections that an operator ended.", lambda: counts.kicked),
        "mqtt_violations_total": (
            "Connections that ended for a breach of the protocol.",
            lambda: counts.violations,
        ),
        "mqtt_timeouts_total": ("Clients that were silent for too long.", lambda: counts.timeouts),
        "mqtt_wills_total": ("Wills that were published.", lambda: counts.wills),
        "mqtt_sent_total": ("PUBLISHes that left.", lambda: counts.sent),
        "mqtt_denied_total": ("PUBLISHes that no grant covers.", lambda: counts.denied),
        "mqtt_refused_total": (
            "PUBLISHes that a bound, a quota or a full disk refused.",
            lambda: counts.refused,
        ),
        "mqtt_not_retained_total": (
            "Messages that were stored and not retained: the bound of retained bytes is reached.",
            lambda: counts.not_retained,
        ),
        "mqtt_expired_total": (
            "Messages that expired before a client had them.",
            lambda: counts.expired,
        ),
        "mqtt_too_large_total": (
            "Messages that are larger than their client takes.",
            lambda: counts.too_large,
        ),
        "mqtt_lost_total": (
            "Messages that retention or damage took before a client had them.",
            lambda: counts.lost,
        ),
        "mqtt_filters_denied_total": (
            "Filters that let nothing through any more, since they are not granted.",
            lambda: counts.filters_denied,
        ),
        "mqtt_retained_bytes": (
            "Retained messages in memory.",
            lambda: broker.topics.streams.store.retained_bytes,
        ),
    }
    for name, (help_text, read) in figures.items():
        metrics.watch(name, help_text, read)
