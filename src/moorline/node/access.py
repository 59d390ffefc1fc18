"""Room: node. Who may do what on this node: the table of rights, proofs, the audit and quotas, put together.

    the catalog ──► RightsTable ──► rights of each session, and who is judged again at a change
                └─► PrincipalProofs ──► what a listener takes besides certificates
    the folder  ──► Audit ──► Trail ──► Guard: what each message needs, before its handler

A session whose proof does not hold any more ends within `access.revocation_ms`: its user was changed,
disabled or removed, its token was revoked, or its node left the catalog.
"""

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from pathlib import Path
from typing import Final, Protocol, get_args

from moorline.access.audit import Audit, open_audit
from moorline.access.audit_commands import AuditCommands
from moorline.access.commands import AccessBroker
from moorline.access.directory import CatalogDirectory
from moorline.access.guard import Declarations, Guard, anybody
from moorline.access.kerberos import KerberosProofs
from moorline.access.known_nodes import KnownNodes
from moorline.access.negotiate import NegotiateLogins
from moorline.access.oidc import OidcLogins
from moorline.access.passes import Passes
from moorline.access.proofs import PrincipalProofs
from moorline.access.quota_commands import QuotaCommands
from moorline.access.quotas import Allowance, Quotas, QuotaTable, account_of
from moorline.access.rights import Rights
from moorline.access.rights_table import RightsTable
from moorline.access.trail import Trail
from moorline.catalog import Catalog
from moorline.catalog.users import Users
from moorline.config.access import KERBEROS, MECHANISMS
from moorline.config.access import Access as AccessSettings
from moorline.config.quotas import bounds_by_subject
from moorline.config.settings import Config
from moorline.console.serving import PATH as PAGE_PATH
from moorline.console.serving import Ways
from moorline.core.access.freshness import Freshness
from moorline.core.access.node_proof import ClusterSecrets
from moorline.core.access.owner import name_of
from moorline.core.access.principal import (
    ANONYMOUS,
    AUTHENTICATED,
    EVERYONE,
    LOOPBACK,
    NODE_PREFIX,
    Proof,
)
from moorline.core.access.quota import UNBOUNDED, Bounds, Quota
from moorline.core.access.right import EVERYTHING
from moorline.core.access.web_origin import WebNames
from moorline.core.queue.queue import NODES_OWN
from moorline.errors import FrameTooLarge, Malformed, MoorlineError, OverQuota, Tampered
from moorline.journal.disk import FileDisk
from moorline.limits import ACCESS_LOOKS_PER_REVOCATION, ACCOUNTS_LOOK_MS, HOMES_TOLD_MAX
from moorline.metrics import Metrics
from moorline.net.authentication import Authentication
from moorline.net.http.logins import Proxies, WebAdmission
from moorline.net.http.peer import Peer
from moorline.net.kerberos import KerberosService
from moorline.net.listener import CUT_BY, LOGIN, LoginRefused
from moorline.net.negotiate import NegotiatedService
from moorline.net.pem import Pem
from moorline.net.session import Handlers, Session, each
from moorline.net.session_rights import SessionRights
from moorline.node.folder import opening
from moorline.wire.access import EndPasses, MakePass
from moorline.wire.link import Goodbye, Hello, Ping, Pong, Response
from moorline.wire.message import CallsGivenUp
from moorline.wire.protocol import HeardByNode
from moorline.wire.publication import COMMANDS as OF_PUBLICATIONS
from moorline.wire.record_tables import ListRecordTables
from moorline.wire.records import RecordMessages, ResumeRecords
from moorline.wire.resolver import COMMANDS as OF_RESOLVERS

log = logging.getLogger("moorline.node")

FOLDER = "audit"
BY_NODE: Final = "node"
"""The mechanism of nodes, which every listener takes that Kerberos does not protect."""

OF_LINKS: Final = frozenset({Hello, Response, Ping, Pong, Goodbye, CallsGivenUp})
"""What a node hears without a handler: the link and the session know what to do."""

BROKEN: Final = frozenset({Malformed.code, FrameTooLarge.code, Tampered.code})
"""Codes of a link whose peer broke the protocol."""

CONNECTION: Final = (Quota.CONNECTIONS, 1)
KINDS: Final = frozenset(quota.value for quota in Quota)


class NodeLinks(Protocol):
    """Those that this node opened."""

    def kept(self) -> frozenset[str]: ...

    def cut(self, node: str) -> None: ...

    def renewed(self, secrets: ClusterSecrets) -> None: ...


Entrant = Session | Peer
"""Who comes in: by a native listener, or by the HTTP port."""


class NodeAccess:
    """Made by `open_access`."""

    def __init__(
        self,
        config: Config,
        users: Users,
        nodes: KnownNodes,
        audit: Audit,
        proofs: PrincipalProofs,
        sessions: Callable[[], Iterable[Entrant]],
        by_issuer: OidcLogins | None = None,
        negotiated: NegotiatedService | None = None,
    ) -> None:
        """`sessions` are those that are open."""
        self.table = RightsTable(
            users,
            revocation_ms=config.access.revocation_ms,
            stale_ms=config.access.stale_ms,
            is_embedded=config.is_catalog_embedded,
        )
        self.users = users
        self.nodes = nodes
        self.audit = audit
        self.trail = Trail(audit)
        self.guard = Guard(self.trail, self.trail)
        self.broker = AccessBroker(users, self.table, self.trail, _expires_us)
        self.audit_commands = AuditCommands(audit)
        self.quotas = Quotas(QuotaTable(), self._groups_of)
        self.passes = Passes()
        self.by_issuer = by_issuer
        """Logins to the console by OpenID Connect; None where no issuer is named."""
        self.negotiated = negotiated
        """As what browsers call the node that show a ticket; None where they show none."""
        self.quota_commands = QuotaCommands(
            self.quotas,
            {Quota.GROUPS: users.groups_owned_by, Quota.SESSIONS: users.sessions_owned_by},
        )
        self.ended = 0
        """Sessions that a change of the catalog ended."""
        self._config = config
        self._quota_settings = config.access
        self._sessions = sessions
        self._newest = 0
        self._proofs = proofs

    # --- listeners --------------------------------------------------------------------------------

    def authentication(self, listener: str) -> Authentication:
        """What that address of `listen` takes."""
        taken = self._config.access.mechanisms_of(listener)
        mechanisms: list[str] = [name for name in MECHANISMS if name in taken]
        # The secret alone protects nothing of what follows it: it is no way round a listener of Kerberos.
        is_open_to_secret = not self._config.kerberos.nodes and (
            KERBEROS not in taken or listener.startswith("tls://")
        )
        if is_open_to_secret:
            mechanisms.append(BY_NODE)
        is_proxied = listener in self._config.access.proxied
        return Authentication(tuple(mechanisms), self._proofs.at_address(is_proxied=is_proxied))

    def web_admission(
        self, entered: Callable[[Peer], SessionRights], refused: Callable[[LoginRefused], None]
    ) -> WebAdmission:
        """What the HTTP port demands: of the mechanisms those that HTTP knows."""
        config, listener = self._config, self._config.http_listener()
        taken = config.access.mechanisms_of(listener) - {KERBEROS}
        mechanisms = tuple(name for name in MECHANISMS if name in taken)
        address = config.http_address()
        is_proxied = listener in config.access.proxied

        def demanded(*, is_proxied: bool) -> Authentication | None:
            if not mechanisms:
                return None
            return Authentication(mechanisms, self._proofs.at_address(is_proxied=is_proxied))

        return WebAdmission(
            WebNames([*config.http_hosts, address.host] if address else (), config.http_origins),
            config.anonymous,
            demanded(is_proxied=is_proxied),
            demanded(is_proxied=True),
            listener,
            is_proxied,
            config.access.certificate_rules(),
            entered,
            refused,
            self.passes.find,
            Proxies(
                tuple(map(ipaddress.ip_network, config.http_proxy_sources)),
                config.http_proxy_header,
            ),
            self.by_issuer,
        )

    def ways(self) -> Ways:
        """By what somebody may log in to the page."""
        taken = self._config.access.mechanisms_of(self._config.http_listener())
        return Ways(
            self.by_issuer.host if self.by_issuer is not None else "",
            tuple(name for name in ("certificate", "password", "token") if name in taken),
            self.negotiated is not None,
        )

    def by_ticket(self) -> NegotiateLogins | None:
        """What takes the tickets that browsers show; None where none are taken."""
        if self.negotiated is None:
            return None
        rules = self._config.access.kerberos_rules()
        return NegotiateLogins(self.negotiated, rules, self.passes, self.trail.login_refused)

    def entered(self, session: Entrant) -> Rights:
        """The rights of somebody who has come in, or is sent away again."""
        identity = session.identity
        rights = self.table.rights(
            identity.principal,
            identity.proof,
            is_local=session.is_local,
            claimed=identity.groups,
        )
        self.trail.entered(session)
        session.at_end(lambda: self._tell_if_cut(session))
        self.judge(session)
        if session.is_open and identity.proof is not Proof.NODE:
            self._take_place(session)
        return rights

    def _tell_if_cut(self, session: Entrant) -> None:
        """Who says what nobody may, or what only the other end of a link says, loses it: a refusal too."""
        if session.end_code in BROKEN and session.is_ended_here:
            self.trail.refused(session, CUT_BY[session.end_code], "/", session.end_code)

    def _take_place(self, session: Entrant) -> None:
        name = account_of(session.identity.principal, session.is_local)
        held = self.quotas.held_by(name, session.listener)
        try:
            self.quotas.take(held, CONNECTION)
        except OverQuota as error:
            self.trail.refused(session, LOGIN, error.path, error.code)
            session.close(error.code, str(error))
        else:
            session.allowance = Allowance(self.quotas, held, name, session.listener)
            session.at_end(lambda: self.quotas.give_back(held, CONNECTION))

    def allowance_of(self, principal: str, is_local: bool) -> Allowance:
        """Of somebody who need not be here, as of a client whose will is due: it came by no listener now."""
        name = account_of(principal, is_local)
        return Allowance(self.quotas, self.quotas.held_by(name), name)

    # --- who is judged again ----------------------------------------------------------------------

    def changed(self) -> None:
        """The table is another one: whose proof does not hold any more goes."""
        version = self.table.version
        number = version.number if version is not None else 0
        # A catalog that was brought back from a copy has lower numbers: nothing that it does not know counts.
        is_older, self._newest = number < self._newest, number
        self.quotas.load(_quota_table(self.table, self._quota_settings))
        for session in list(self._sessions()):
            if session.is_open:
                self.judge(session, knows_all=is_older)

    def take_quotas(self, settings: AccessSettings) -> None:
        """The lines of `access.quotas` are others now; those of the table stay."""
        self._quota_settings = settings
        self.quotas.load(_quota_table(self.table, settings))

    def judge(self, session: Entrant, *, knows_all: bool = False) -> None:
        why = self._why_over(session, knows_all=knows_all)
        if why:
            self.ended += 1
            session.close("EXPIRED", f"{why}: connect again with another proof")

    def _why_over(self, session: Entrant, *, knows_all: bool) -> str:
        identity, version = session.identity, self.table.version
        if identity.proof is Proof.OIDC:
            # Whoever it is there need not be a user here. One that is disabled here is so for both.
            known = self.table.user(identity.principal)
            return "this user is disabled" if known is not None and known.is_disabled else ""
        if identity.proof not in (Proof.PASSWORD, Proof.TOKEN) or version is None:
            return ""
        if max(identity.user_version, identity.token_version) > version.number and not knows_all:
            return ""  # it was proven by what the table has yet to hear of
        user = self.table.user(identity.principal)
        if user is None or user.is_disabled or user.version != identity.user_version:
            return "this user was changed"
        if identity.token and self.table.token(identity.token) is None:
            return "this token was taken back"
        return ""

    async def watch_nodes_forever(self, links: "NodeLinks") -> None:
        """Ends the links of nodes whose rows left the catalog, and those that were proven by a secret which
        is not taken any more; `links` are the ones that this node opened."""
        pause_s = self._config.access.revocation_ms / ACCESS_LOOKS_PER_REVOCATION / 1_000
        while True:
            await asyncio.sleep(pause_s)
            # Before the catalog is asked: whoever is found meanwhile may be newer than its answer. And not
            # who was in the answer before: a node may come and leave between two looks.
            kept = links.kept()
            try:
                homes = await self.nodes.look()
            except (MoorlineError, TimeoutError):
                continue  # who is of the cluster is not known to have changed
            for home in kept - homes:
                links.cut(home)
            secrets = self.nodes.secrets_known()
            links.renewed(secrets)
            marks = secrets.marks()
            for session in list(self._sessions()):
                principal = session.identity.principal
                if session.identity.proof is not Proof.NODE or not session.is_open:
                    continue
                if principal.removeprefix(NODE_PREFIX) not in homes:
                    self.ended += 1
                    session.close("EXPIRED", "this node is not of the cluster any more")
                elif session.identity.token not in marks:
                    self.ended += 1
                    session.close("EXPIRED", "the cluster's secret was renewed: connect again")

    async def forget_accounts_forever(self) -> None:
        while True:
            await asyncio.sleep(ACCOUNTS_LOOK_MS / 1_000)
            self.quotas.forget_idle()

    # --- the node's own ---------------------------------------------------------------------------

    def declared(self) -> Declarations:
        return {
            **self.broker.declared(),
            **self.audit_commands.declared(),
            **self.quota_commands.declared(),
            MakePass: anybody(each(self.passes.make)),
            EndPasses: anybody(each(self.passes.end)),
        }

    def guarded(self, declared: Declarations, roles: Collection[str]) -> Handlers:
        """The handlers of the node, each behind what it needs."""
        if "broker" in roles:
            check_all_declared(declared, roles)
        return self.guard.guarded(declared)

    def not_known(self) -> str:
        if self.table.freshness is not Freshness.EXPIRED:
            return ""
        return "the catalog does not say who may do what: nearly everything is refused"

    def stored_bytes_max(self, owner: bytes) -> int:
        """What may wait in the queues of an owner; those of nobody are of whoever is on this machine."""
        if owner == NODES_OWN:
            return UNBOUNDED
        name = LOOPBACK if not owner else name_of(owner)
        return self.quotas.bound_of(name, Quota.STORED_BYTES)

    def _groups_of(self, name: str) -> frozenset[str]:
        if name == LOOPBACK:
            return self.table.groups_of(ANONYMOUS) | {EVERYONE, LOOPBACK}
        built_in = {EVERYONE} if name == ANONYMOUS else {EVERYONE, AUTHENTICATED}
        return self.table.groups_of(name) | built_in


@contextlib.asynccontextmanager
async def open_access(
    config: Config,
    folder: Path,
    catalog: Catalog,
    home: str,
    sessions: Callable[[], Iterable[Entrant]],
) -> AsyncIterator[NodeAccess]:
    """Behind the identity of the node: what it changes in the catalog, it changes as itself."""
    users = Users(catalog)
    nodes = KnownNodes(
        users, revocation_ms=config.access.revocation_ms, stale_ms=config.access.stale_ms
    )
    async with contextlib.AsyncExitStack() as stack:
        with opening(folder / FOLDER):
            audit = await stack.enter_async_context(
                open_audit(
                    FileDisk(folder / FOLDER),
                    home,
                    sync=config.queues.sync == "power",
                    full=config.access.audit_full,
                )
            )
        proofs = await stack.enter_async_context(
            PrincipalProofs(
                CatalogDirectory(users, nodes),
                home,
                node_rules=config.access.node_certificate_rules() if config.tls_node_ca else None,
                kerberos=await _kerberos(config),
            )
        )
        by_issuer = _by_issuer(config)
        if by_issuer is not None:
            stack.push_async_callback(by_issuer.close)
        negotiated = await _negotiated(config)
        access = NodeAccess(config, users, nodes, audit, proofs, sessions, by_issuer, negotiated)
        for part in (access.guard, access.broker, access.audit_commands, access.quota_commands):
            stack.callback(part.close)
        await _carry_operators(config, users)
        await stack.enter_async_context(access.table.running())
        access.changed()
        stack.callback(access.table.on_change(access.changed))
        forgetting = asyncio.create_task(access.forget_accounts_forever())
        stack.callback(forgetting.cancel)
        await _tell_of_rows(access)
        _tell_of_own_certificate(config, home)
        yield access


async def _kerberos(config: Config) -> KerberosProofs | None:
    """A keytab that cannot be used is told at the start, and not to whoever comes."""
    if not config.kerberos.keytab:
        return None
    service = KerberosService(
        Path(config.kerberos.keytab),
        config.kerberos.service,
        clock_skew_s=config.kerberos.clock_skew_s,
    )
    await service.check()
    return KerberosProofs(service, config.access.kerberos_rules(), config.kerberos.node_patterns())


async def _negotiated(config: Config) -> NegotiatedService | None:
    """The same of the name that browsers know."""
    if not config.kerberos.http_service or "console" not in config.active_roles():
        return None
    service = NegotiatedService(
        Path(config.kerberos.keytab),
        config.kerberos.http_service,
        clock_skew_s=config.kerberos.clock_skew_s,
    )
    await service.check()
    return service


def _by_issuer(config: Config) -> OidcLogins | None:
    """The issuer itself is asked only when somebody logs in: a node starts without it."""
    if not config.oidc.issuer or "console" not in config.active_roles():
        return None
    return OidcLogins(config.oidc, redirect_path=config.http_base_path + PAGE_PATH)


def check_all_declared(declared: Declarations, roles: Collection[str]) -> None:
    """A message that nobody answers, or that anybody could send, is our mistake: no node starts with one."""
    missing = set(get_args(HeardByNode)) - OF_LINKS - set(declared)
    if "resolver" not in roles:
        missing -= set(get_args(OF_RESOLVERS))
    if "records" not in roles:
        missing -= {RecordMessages, ResumeRecords, ListRecordTables}
        missing -= set(get_args(OF_PUBLICATIONS))
    names = ", ".join(sorted(kind.__name__ for kind in missing))
    assert not missing, f"nobody says what these need: {names}"


def watch(metrics: Metrics, access: NodeAccess) -> None:
    """Shows on /metrics who comes and what is refused."""
    trail, audit = access.trail, access.audit
    figures = {
        "logins_total": ("Connections that proved a principal, or none.", lambda: trail.logins),
        "logins_refused_total": ("Connections that were refused.", lambda: trail.logins_refused),
        "calls_denied_total": ("Calls refused for want of a right.", lambda: trail.denied),
        "proofs_ended_total": (
            "Sessions that ended because the catalog changed: users, tokens, nodes.",
            lambda: access.ended,
        ),
        "rights_generation": (
            "Changes of rights that this node has taken since its start.",
            lambda: access.table.generation,
        ),
        "audit_lines_total": ("Lines of the audit trail.", lambda: audit.lines),
        "audit_lost_total": ("Acts whose line was not written.", lambda: audit.lost),
    }
    for name, (help_text, read) in figures.items():
        metrics.watch(name, help_text, read)


async def _carry_operators(config: Config, users: Users) -> None:
    """What old settings said becomes rows, once."""
    names = list(dict.fromkeys([*config.queues.operators, *config.groups.operators]))
    if not names:
        return
    carried = await users.carry_operators(names)
    log.warning(
        "queues.operators and groups.operators are no settings any more: take them out, and use `moor grant`",
        extra={"got_their_rows_now": ", ".join(carried) or "nobody"},
    )


async def _tell_of_rows(access: NodeAccess) -> None:
    local = access.table.rights(ANONYMOUS, Proof.NOTHING, is_local=True)
    if local.everywhere("/") == EVERYTHING:
        log.info(
            "whoever is on this machine may do everything: the row of @loopback at / says so "
            "(`moor grant remove / @loopback` ends that)"
        )
    rows = await access.users.upgraded_rows()
    if rows:
        log.warning(
            "this catalog is older than rights: rows keep what was allowed before. Look at them with "
            "`moor grant list`, remove what is too much, or say `moor grant keep`",
            extra={"rows": rows},
        )


def homes_of_own_certificate(config: Config) -> Collection[str] | None:
    """The homes that our certificate names, as other nodes see it; None where they do not look."""
    if not config.tls_node_ca or not config.tls_certificate:
        return None
    # Not at the top: a node without TLS needs no package for certificates.
    from moorline.net.peer_certificate import described, load_certificates

    own = load_certificates(Pem("tls_certificate", config.tls_certificate))[0]
    try:
        return config.access.node_certificate_rules().homes_of(described(own).named)
    except ValueError as error:
        return (f"nobody ({error})",)


def _tell_of_own_certificate(config: Config, home: str) -> None:
    """Other nodes refuse a link by a certificate that names another home: here is where to mend it."""
    named = homes_of_own_certificate(config)
    if named is not None and home not in named:
        log.warning(
            "tls_certificate does not name the home of this node: other nodes refuse its links. Issue one "
            "whose common name is the home, or map its names by access.node_certificates on all nodes",
            extra={"home": home, "certificate": sorted(named)[:HOMES_TOLD_MAX]},
        )


def _quota_table(table: RightsTable, settings: AccessSettings) -> QuotaTable:
    lines = settings.quota_lines()
    # A newer node may know more kinds.
    return QuotaTable(
        {
            subject: Bounds(**{kind: amount for kind, amount in kinds.items() if kind in KINDS})
            for subject, kinds in table.quotas.items()
        },
        bounds_by_subject(line for line in lines if not line.is_listeners),
        bounds_by_subject(line for line in lines if line.is_listeners),
    )


def _expires_us(session: Session) -> int:
    """Of a proof that does not end by itself: 0."""
    return (session.identity.expires_ms or 0) * 1_000
