"""Room: node. Where clients come in: the native addresses, those of MQTT, the HTTP port, and their TLS.

Native addresses are opened first and the HTTP port last, behind all routes that the subjects have added. They
all share the node's descriptors: who comes in by one takes from the others.
"""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from moorline.catalog import Catalog
from moorline.config.addresses import Address
from moorline.config.settings import Config
from moorline.console.http import Health
from moorline.console.http import register as register_pages
from moorline.console.negotiate import register as register_negotiate
from moorline.console.serving import register as register_console
from moorline.core.descriptors import Descriptors
from moorline.metrics import Metrics
from moorline.net.http.routes import Routes
from moorline.net.http.server import HttpServer
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.native_json import NativeSockets
from moorline.net.session import Handlers
from moorline.net.session_rights import SessionRights
from moorline.net.tls_files import TlsFiles, TlsPaths
from moorline.node.access import Entrant, NodeAccess
from moorline.node.health import Problems, Severity
from moorline.node.mqtt import Mqtt, open_mqtt
from moorline.node.mqtt import watch as watch_mqtt
from moorline.node.topics import Topics
from moorline.wire.link import Welcome

HTTP_ROLES = frozenset({"console", "records"})
"""Those that need the HTTP port."""


class Behind(NamedTuple):
    """What of the node is behind its doors, when they are opened."""

    home: str
    catalog: Catalog
    access: NodeAccess
    topics: Topics | None
    handlers: Handlers
    welcome: Callable[[int, int], Welcome]
    metrics: Metrics
    problems: Problems
    health: Callable[[str], Health]


class Doors:
    """Shut until `open`; then `addresses` and `http` say where they are."""

    def __init__(
        self,
        config: Config,
        descriptors: Descriptors,
        entered: Callable[[Entrant], SessionRights],
        access: Callable[[], NodeAccess],
    ) -> None:
        """`entered` hears of everybody who has come in. `access` is there before anybody may come."""
        self._config = config
        self._descriptors = descriptors
        self._entered = entered
        self.listeners = Listeners(
            Admission(
                anonymous=config.anonymous,
                connections_max=config.connections_max,
                hello_timeout_ms=config.hello_timeout_ms,
                keepalive_ms=config.keepalive_ms,
            ),
            descriptors,
            entered,
            rules=config.access.certificate_rules(),
            refused=lambda refused: access().trail.login_refused(refused),
        )
        self.routes = Routes(config.http_base_path)
        """What the HTTP port serves; the subjects add theirs before it is opened."""
        self.web: HttpServer | None = None
        self.mqtt: Mqtt | None = None
        self.addresses: list[Address] = []
        self.http: Address | None = None
        self._tls: TlsFiles | None = None

    def entrants(self) -> list[Entrant]:
        """Whoever is in, by a native listener, by MQTT or by the HTTP port."""
        return [
            *self.listeners.sessions,
            *(self.web.peers if self.web is not None else ()),
            *(self.mqtt.listeners.peers if self.mqtt is not None else ()),
        ]

    def take(self, config: Config) -> None:
        """Files of TLS that have other names now; whether there is TLS at all a start decides."""
        if self._tls is not None and config.tls_certificate:
            self._tls.rename(TlsPaths.of(config))

    def reload(self) -> None:
        """The files of TLS are read now."""
        if self._tls is not None:
            self._tls.reload_soon()

    async def open(self, stack: contextlib.AsyncExitStack, behind: Behind) -> None:
        config, access = self._config, behind.access
        native = NativeProtocol(behind.handlers, behind.welcome)
        http = config.http_address()
        has_http = http is not None and not HTTP_ROLES.isdisjoint(config.active_roles())
        is_https = has_http and http is not None and http.scheme == "https"
        has_mqtts = any(address.scheme == "mqtts" for address in config.mqtt_addresses())
        has_tls = any(address.scheme == "tls" for address in config.listen_addresses())
        if is_https or has_mqtts or has_tls:
            await self._open_tls(stack, behind)
        stack.push_async_callback(self.listeners.close)
        for text, address in zip(config.listen, config.listen_addresses(), strict=True):
            self.addresses += await self.listeners.open(
                address,
                self._tls if address.scheme == "tls" else None,
                native,
                access.authentication(text),
                listener=text,
                is_proxied=text in config.access.proxied,
            )
        if behind.topics is not None and config.mqtt_listeners():
            await self._open_mqtt(stack, behind, behind.topics)
        if http is not None and has_http:
            await self._open_http(stack, behind, http)

    async def _open_tls(self, stack: contextlib.AsyncExitStack, behind: Behind) -> None:
        def changed() -> None:
            behind.access.passes.judge_again(files.trust)
            self.listeners.judge_again(files.trust)
            if self.mqtt is not None:
                self.mqtt.listeners.judge_again(files.trust)
            if self.web is not None:
                self.web.judge_again(files.trust)

        files = TlsFiles(TlsPaths.of(self._config), changed=changed)
        self._tls = await stack.enter_async_context(files)
        behind.problems.watch(Severity.WANTS_CARE, files.problem)

    async def _open_mqtt(
        self, stack: contextlib.AsyncExitStack, behind: Behind, topics: Topics
    ) -> None:
        def opened(mqtt: Mqtt) -> None:
            self.mqtt = mqtt

        mqtt = await stack.enter_async_context(
            open_mqtt(
                self._config,
                behind.home,
                behind.catalog,
                topics,
                behind.access,
                self.listeners.acceptor,
                self._tls,
                self._entered,
                opened,
                self.routes,
            )
        )
        watch_mqtt(behind.metrics, mqtt)

    async def _open_http(
        self, stack: contextlib.AsyncExitStack, behind: Behind, wanted: Address
    ) -> None:
        register_pages(self.routes, behind.metrics, behind.health)
        if "console" in self._config.active_roles():
            register_console(
                self.routes,
                NativeSockets(
                    behind.handlers,
                    behind.welcome,
                    self.listeners.turns,
                    keepalive_ms=self._config.keepalive_ms,
                ),
                behind.access.ways(),
            )
            by_ticket = behind.access.by_ticket()
            if by_ticket is not None:
                register_negotiate(self.routes, by_ticket)
        self.web = web = HttpServer(
            self.routes,
            behind.access.web_admission(self._entered, behind.access.trail.login_refused),
            self._descriptors,
            tls=self._tls if wanted.scheme == "https" else None,
            long_stays=self.listeners.door,
            keepalive_ms=self._config.keepalive_ms,
        )
        stack.push_async_callback(web.close)
        behind.metrics.watch("websockets", "WebSockets open now.", lambda: web.websockets)
        self.http = await web.open(wanted)
