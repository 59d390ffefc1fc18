"""Room: config. Every setting of a node: its type, its range, its default and one line of help.

A section is a nested Struct: a field `queues: Queues = Queues()` makes the table `[queues]` in the
file, the key `queues.sync` and the variable `MOOR_QUEUES_SYNC`; nothing else has to know of it. The
sections are in sections.py and access.py. What types cannot say is in `problems()`, of the whole or of a
section.
"""

from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from moorline import ids, limits
from moorline.config.access import KERBEROS, Access
from moorline.config.addresses import (
    DEFAULT_ADDRESS,
    DEFAULT_MQTT,
    HTTP_FORM,
    LISTEN_FORM,
    MQTT_FORM,
    RESOLVER_LIST_FORM,
    Address,
    http_address,
    listen_address,
    mqtt_address,
    resolver_addresses,
)
from moorline.config.http import http_problems
from moorline.config.kerberos import Kerberos
from moorline.config.mqtt import (
    PROXY_SOURCES_FORM,
    REFERENCE_FORM,
    mqtt_problems,
    proxy_problems,
    reference_problems,
)
from moorline.config.oidc import Oidc
from moorline.config.problem import Problem, text_setting
from moorline.config.records import Records
from moorline.config.resolver import Resolver
from moorline.config.sections import Groups, Queues, Streams
from moorline.config.trace import Trace, trace_problems
from moorline.core.access.base_path import FORM as BASE_PATH_FORM
from moorline.core.access.web_origin import HOST_FORM, ORIGIN_FORM

__all__ = [
    "Access",
    "Config",
    "Groups",
    "Kerberos",
    "Oidc",
    "Problem",
    "Queues",
    "Records",
    "Resolver",
    "Streams",
]

ROLES = ("resolver", "broker", "records", "console")
"""The roles of the design."""

EXISTING_ROLES = ("resolver", "broker", "records", "console")
"""Those that this version can run; the others are refused with that said."""

OTHER_VARIABLES = {
    "MOOR_ADDRESS": "the node that a command calls, where --address does not name it",
    "MOOR_CONTEXT": "the context (`moor context`) that a command reaches, where --context does not name it",
    "MOOR_CONTEXTS": "the file with the contexts, in place of ~/.config/moorline/contexts.toml",
    "MOOR_USER": "the user whom a command is at the node, where --user does not name it",
    "MOOR_PASSWORD_FILE": "the file with its password, in place of --password-file",
    "MOOR_TOKEN_FILE": "the file with a token, in place of --token-file",
    "MOOR_KERBEROS": "1 proves who we are by Kerberos, with the default ticket cache, in place of --kerberos",
    "MOOR_KEYTAB": "the keytab that proves who we are, in place of --keytab",
    "MOOR_CCACHE": "the ticket cache that proves who we are, in place of --ccache",
    "MOOR_PRINCIPAL": "the principal of the keytab that we are, in place of --principal",
    "MOOR_SERVICE": "the service principal of the node, in place of --service",
    "MOOR_CONFIG": "the configuration file, where --config does not name it",
    "MOOR_DEBUG": "1 prints the traceback of an error",
}
"""Variables that begin like a setting and are none."""


NODE_FORM = "1 to 63 of a-z, 0-9 and -, beginning with a letter or digit"
CATALOG_FORM = '"embedded" or postgresql://USER:PASSWORD@HOST:PORT/DATABASE'
ROLES_FORM = "a list of " + ", ".join(EXISTING_ROLES)


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    data: Annotated[
        str, Meta(min_length=1, description="Folder of the node's journals and embedded catalog.")
    ] = "./moorline-data"
    node: Annotated[str, text_setting("Name of this node, unique in its cluster.", NODE_FORM)] = (
        "node-1"
    )
    roles: Annotated[
        list[str],
        text_setting("What this node does; an empty list is every role there is.", ROLES_FORM),
    ] = msgspec.field(default_factory=list)
    listen: Annotated[
        list[str], text_setting("Addresses of the native protocol.", f"a list of {LISTEN_FORM}")
    ] = msgspec.field(default_factory=lambda: [DEFAULT_ADDRESS])
    advertise: Annotated[
        list[str],
        text_setting(
            "Addresses at which other nodes reach this one; empty is those it listens on.",
            f"a list of {LISTEN_FORM}",
        ),
    ] = msgspec.field(default_factory=list)
    resolvers: Annotated[
        str,
        text_setting(
            "Resolvers that are asked where the other nodes are; empty: their rows in the catalog say it.",
            RESOLVER_LIST_FORM,
        ),
    ] = ""
    http: Annotated[
        str,
        text_setting(
            'Address of /livez, /readyz, /healthz, /metrics and the console, or "off"; https:// uses the '
            "files of TLS.",
            HTTP_FORM,
        ),
    ] = "127.0.0.1:7412"
    http_hosts: Annotated[
        list[str],
        text_setting(
            "Names by which the HTTP port may be called, besides its address and those of loopback.",
            f"a list of {HOST_FORM}",
        ),
        Meta(max_length=limits.HTTP_NAMES_MAX),
    ] = msgspec.field(default_factory=list)
    http_origins: Annotated[
        list[str],
        text_setting(
            "Origins of pages, besides its own, that may use the HTTP port.",
            f"a list of {ORIGIN_FORM}",
        ),
        Meta(max_length=limits.HTTP_NAMES_MAX),
    ] = msgspec.field(default_factory=list)
    http_base_path: Annotated[
        str,
        text_setting(
            "Path below which a proxy serves the HTTP port, as /moor; empty where it has a name of its own. "
            "The proxy may take the path away, or leave it.",
            BASE_PATH_FORM,
        ),
    ] = ""
    http_proxy_sources: Annotated[
        list[str],
        text_setting(
            "Proxies of the HTTP port: what they say of their clients is believed, and nobody's else. Who "
            "comes from there is never taken to be on this machine.",
            PROXY_SOURCES_FORM,
        ),
        Meta(max_length=limits.PROXY_SOURCES_MAX),
    ] = msgspec.field(default_factory=list)
    http_proxy_header: Annotated[
        Literal["x-forwarded", "forwarded"],
        Meta(
            description="What such a proxy writes: X-Forwarded-For, -Proto and -Host, or Forwarded. The "
            "other one is not read."
        ),
    ] = "x-forwarded"
    mqtt: Annotated[
        list[str],
        text_setting(
            "Addresses of MQTT 5 and 3.1.1; mqtts:// uses the files of TLS. Where the default is taken by "
            "another program, the node starts without it.",
            f"a list of {MQTT_FORM}",
        ),
    ] = msgspec.field(default_factory=lambda: [DEFAULT_MQTT])
    mqtt_reference: Annotated[
        str,
        text_setting(
            "How clients of MQTT 5 are told to reach this node when another one sends them here; empty: it "
            "is named to nobody.",
            REFERENCE_FORM,
        ),
    ] = ""
    mqtt_proxy: Annotated[
        list[str],
        text_setting(
            "Addresses of mqtt behind a proxy that speaks the PROXY protocol, version 1 or 2: each "
            "connection begins with who is behind it.",
            "a list of addresses of mqtt",
        ),
    ] = msgspec.field(default_factory=list)
    mqtt_proxy_sources: Annotated[
        list[str],
        text_setting(
            "Where such a proxy may come from; all others are cut at the addresses of mqtt_proxy.",
            PROXY_SOURCES_FORM,
        ),
        Meta(max_length=limits.PROXY_SOURCES_MAX),
    ] = msgspec.field(default_factory=lambda: ["127.0.0.0/8", "::1/128"])
    mqtt_packet_bytes_max: Annotated[
        int,
        Meta(ge=1_024, le=limits.MIB, description="Largest packet of MQTT that a client may send."),
    ] = limits.MQTT_PACKET_BYTES_MAX
    mqtt_retained_bytes_max: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 40,
            description="Bytes of all retained messages of this node together. A message beyond it is stored "
            "and delivered, and not retained.",
        ),
    ] = limits.MQTT_RETAINED_BYTES_MAX
    mqtt_session_expiry_s_max: Annotated[
        int,
        Meta(
            ge=0,
            le=limits.SESSION_EXPIRY_S_MAX,
            description="Longest time for which a session of MQTT outlives its connection; a client that "
            "asks for more is told this.",
        ),
    ] = limits.MQTT_SESSION_EXPIRY_S_MAX
    mqtt_keep_alive_s_max: Annotated[
        int,
        Meta(
            ge=1,
            le=65_535,
            description="Longest silence of a client of MQTT 5; one that asks for more, or for none, is told "
            "this.",
        ),
    ] = limits.MQTT_KEEP_ALIVE_S_MAX
    catalog: Annotated[
        str,
        text_setting(
            'The catalog: "embedded", or the postgresql:// URL of a shared one.', CATALOG_FORM
        ),
    ] = "embedded"
    catalog_file: Annotated[
        str,
        Meta(
            description="A file with the postgresql:// address of a shared catalog, password and all; it "
            "stands for `catalog`."
        ),
    ] = ""
    anonymous: Annotated[
        Literal["loopback", "everywhere", "never"],
        Meta(description="From where a client without an identity is let in."),
    ] = "loopback"
    tls_certificate: Annotated[
        str, Meta(description="PEM file of the server's certificate chain; empty is none.")
    ] = ""
    tls_key: Annotated[
        str, Meta(description="PEM file of the certificate's private key; empty is none.")
    ] = ""
    tls_client_ca: Annotated[
        str, Meta(description="PEM file of the CAs whose client certificates are taken.")
    ] = ""
    tls_client_crl: Annotated[
        str,
        Meta(
            description="PEM file of the revocation lists, one of each CA that signs certificates of "
            "clients or nodes; empty is none."
        ),
    ] = ""
    tls_node_ca: Annotated[
        str,
        Meta(
            description="PEM file of the CAs that sign certificates of nodes; with it only these can be a "
            "node's. Empty: nodes prove themselves with the cluster's secret alone."
        ),
    ] = ""
    tls_minimum: Annotated[
        Literal["1.2", "1.3"], Meta(description="The oldest version of TLS that is spoken.")
    ] = "1.2"
    log_format: Annotated[
        Literal["text", "json"], Meta(description="Log lines for people, or one object a line.")
    ] = "text"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="The least that is logged.")
    ] = "info"
    hello_timeout_ms: Annotated[
        int, Meta(ge=10, le=60_000, description="A peer without a whole hello by then is closed.")
    ] = limits.HELLO_TIMEOUT_MS
    keepalive_ms: Annotated[
        int,
        Meta(ge=10, le=3_600_000, description="Silence after which a peer is asked for a sign."),
    ] = limits.KEEPALIVE_MS
    connections_max: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Connections that the node accepts at once.")
    ] = limits.CONNECTIONS_MAX
    identity_lease_ms: Annotated[
        int,
        Meta(
            ge=500,
            le=3_600_000,
            description="How long this node keeps its identity without a word of the catalog. Behind that "
            "nothing is answered until the catalog is back; and if this node is gone, a copy of its data "
            "folder may be started elsewhere then.",
        ),
    ] = limits.IDENTITY_LEASE_MS
    queues: Queues = Queues()
    streams: Streams = Streams()
    groups: Groups = Groups()
    access: Access = Access()
    resolver: Resolver = Resolver()
    kerberos: Kerberos = Kerberos()
    oidc: Oidc = Oidc()
    records: Records = Records()
    trace: Trace = Trace()

    def active_roles(self) -> tuple[str, ...]:
        return tuple(role for role in EXISTING_ROLES if not self.roles or role in self.roles)

    @property
    def is_catalog_embedded(self) -> bool:
        return self.catalog == "embedded" and not self.catalog_file

    def listen_addresses(self) -> list[Address]:
        return [listen_address(text) for text in self.listen]

    def http_address(self) -> Address | None:
        return http_address(self.http)

    def mqtt_listeners(self) -> list[str]:
        """As they are written; none if it is off."""
        return [text for text in self.mqtt if text != "off"]

    def mqtt_addresses(self) -> list[Address]:
        return [mqtt_address(text) for text in self.mqtt_listeners()]

    def http_listener(self) -> str:
        """What the HTTP port is called where listeners are named; empty if it is off."""
        address = self.http_address()
        return str(address) if address is not None else ""

    def problems(self) -> Iterator[Problem]:
        if ids.NODE_NAME.fullmatch(self.node) is None:
            yield Problem(("node",), f"accepted: {NODE_FORM}")
        yield from _roles_problems(self)
        yield from _listen_problems(self)
        for given in self.advertise:
            try:
                listen_address(given)
            except ValueError as error:
                yield Problem(("advertise",), f'"{given}": {error}; accepted: {LISTEN_FORM}')
        if self.resolvers and (text := _resolvers_problem(self.resolvers)) is not None:
            yield Problem(("resolvers",), text)
        yield from http_problems(self)
        yield from mqtt_problems(
            self.mqtt,
            has_tls=bool(self.tls_certificate and self.tls_key),
            anonymous=self.anonymous,
            mechanisms_of=self.access.mechanisms_of,
        )
        yield from proxy_problems(self.mqtt, self.mqtt_proxy, self.mqtt_proxy_sources)
        yield from reference_problems(self.mqtt_reference)
        yield from trace_problems(self.trace)
        yield from _access_problems(self)
        yield from _kerberos_problems(self)
        if (text := _catalog_problem(self.catalog)) is not None:
            yield Problem(("catalog",), text)
        if self.catalog_file and self.catalog != "embedded":
            yield Problem(("catalog_file", "catalog"), "give one of them, the file or the address")
        if bool(self.tls_certificate) != bool(self.tls_key):
            given, other = (
                ("tls_certificate", "tls_key")
                if self.tls_certificate
                else ("tls_key", "tls_certificate")
            )
            yield Problem((given, other), f"it needs {other} beside it: set both or neither")
        if self.tls_client_crl and not (self.tls_client_ca or self.tls_node_ca):
            yield Problem(
                ("tls_client_crl", "tls_client_ca", "tls_node_ca"),
                "it revokes certificates that nobody takes: set tls_client_ca or tls_node_ca too",
            )


def _roles_problems(config: Config) -> Iterator[Problem]:
    accepted = ", ".join(EXISTING_ROLES)
    for role in config.roles:
        if role in EXISTING_ROLES:
            continue
        if role in ROLES:
            text = f'the role "{role}" is designed but does not exist yet; accepted: {accepted}'
        else:
            text = f'"{role}" is not a role; accepted: {accepted}'
        yield Problem(("roles",), text)


def _listen_problems(config: Config) -> Iterator[Problem]:
    if not config.listen:
        yield Problem(("listen",), f"accepted: at least one of {LISTEN_FORM}")
    seen: set[Address] = set()
    for text in config.listen:
        try:
            address = listen_address(text)
        except ValueError as error:
            yield Problem(("listen",), f'"{text}": {error}; accepted: {LISTEN_FORM}')
            continue
        if address in seen and address.port != 0:
            yield Problem(("listen",), f'"{text}" is listed twice; list it once')
        seen.add(address)
        if address.scheme == "tls" and not (config.tls_certificate and config.tls_key):
            yield Problem(
                ("listen", "tls_certificate", "tls_key"),
                f'"{text}" needs a certificate: set tls_certificate and tls_key',
            )
        # Without TLS a client has no identity, so that everyone who reaches it would be anonymous.
        if (
            address.scheme == "tcp"
            and not address.is_loopback
            and config.anonymous == "loopback"
            and KERBEROS not in config.access.mechanisms_of(text)
        ):
            yield Problem(
                ("listen", "anonymous"),
                f'"{text}" is not loopback and anonymous is "loopback", so nobody could log on '
                'there: use tls://, let it take gssapi, or set anonymous to "everywhere" on a network that '
                "you trust",
            )

    if config.anonymous == "never" and config.listen and not _can_prove(config):
        yield Problem(
            ("anonymous", "listen", "tls_client_ca"),
            'nobody could log on: "never" needs an address where a proof can be given: a tls:// listen '
            "address with tls_client_ca for certificates, tls:// or loopback for passwords and tokens, or "
            "gssapi anywhere",
        )


def _resolvers_problem(resolvers: str) -> str | None:
    try:
        resolver_addresses(resolvers)
    except ValueError as error:
        return f'"{resolvers}": {error}; accepted: {RESOLVER_LIST_FORM}'
    return None


def _access_problems(config: Config) -> Iterator[Problem]:
    # Rights are refused with a word; behind the lease nothing is answered at all. So they end first.
    kept_ms = config.identity_lease_ms - config.identity_lease_ms // limits.IDENTITY_MARGIN_PARTS
    if config.access.stale_ms > kept_ms:
        yield Problem(
            ("access.stale_ms", "identity_lease_ms"),
            f"without the catalog this node answers nothing behind {kept_ms} ms, by its identity_lease_ms: "
            "rights cannot go on for longer; make the one shorter, or the other longer",
        )
    try:
        http = config.http_listener()
    except ValueError:
        http = ""  # told by itself
    for key, listeners in (
        ("access.mechanisms", config.access.named_listeners()),
        ("access.proxied", config.access.proxied),
        ("access.quotas", config.access.bounded_listeners()),
    ):
        for listener in listeners:
            if listener not in (*config.listen, *config.mqtt, http):
                yield Problem(
                    (key, "listen"),
                    f'"{listener}" is no listener; accepted: one of listen or mqtt, or the HTTP port with '
                    "its scheme",
                )


def _kerberos_problems(config: Config) -> Iterator[Problem]:
    takers = [text for text in config.listen if KERBEROS in config.access.mechanisms_of(text)]
    of_mqtt = [
        text for text in config.mqtt_listeners() if KERBEROS in config.access.mechanisms_of(text)
    ]
    if (takers or of_mqtt) and not (config.kerberos.keytab and config.kerberos.service):
        yield Problem(
            ("access.mechanisms", "kerberos.keytab", "kerberos.service"),
            f'"{(takers or of_mqtt)[0]}" takes gssapi: set kerberos.keytab and kerberos.service',
        )
    for text in takers:
        # Who may come in with less would not trouble with a ticket, and its bytes would be read by all.
        beside = {"certificate"} if text.startswith("tls://") else set()
        if weaker := config.access.mechanisms_of(text) - beside - {KERBEROS}:
            yield Problem(
                ("access.mechanisms",),
                f'"{text}" takes gssapi, and {", ".join(sorted(weaker))} is weaker: name the weaker ones at '
                "another listener (MECHANISM@LISTENER)",
            )
    if config.kerberos.nodes and not takers:
        yield Problem(
            ("kerberos.nodes", "access.mechanisms"),
            "other nodes could not come: let a listener take gssapi",
        )
    closed = [text for text in takers if not text.startswith("tls://")]
    if not config.is_catalog_embedded and not config.kerberos.nodes and closed == config.listen:
        yield Problem(
            ("kerberos.nodes", "access.mechanisms"),
            "other nodes could not come where all listeners take gssapi without TLS: set kerberos.nodes",
        )


def _can_prove(config: Config) -> bool:
    """Whether somebody could prove to be somebody at one of the addresses."""
    for text in config.listen:
        try:
            address = listen_address(text)
        except ValueError:
            continue
        taken, is_tls = config.access.mechanisms_of(text), address.scheme == "tls"
        is_private = is_tls or (address.is_loopback and text not in config.access.proxied)
        if KERBEROS in taken:
            return True
        if is_private and taken & {"password", "token"}:
            return True
        if is_tls and config.tls_client_ca and "certificate" in taken:
            return True
    return False


def _catalog_problem(catalog: str) -> str | None:
    if catalog == "embedded":
        return None
    if not catalog.startswith("postgresql://"):
        return f"accepted: {CATALOG_FORM}"
    try:
        _ = urlsplit(catalog).port
    except ValueError:
        # Its own text could quote a part of the password.
        return "its host or port cannot be read (write :/@ in a password as %3A %2F %40)"
    return None
