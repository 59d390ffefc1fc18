"""Room: config. The section `[access]`: how a connection becomes a principal, and how long rights last."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from moorline import limits
from moorline.config.problem import Problem, text_setting
from moorline.config.quotas import DEFAULTS, LINE_FORM, QuotaLine, parsed
from moorline.core.access.kerberos_name import RULE_FORM as KERBEROS_RULE_FORM
from moorline.core.access.kerberos_name import KerberosRule, KerberosRules
from moorline.core.access.principal import RULE_FORM, CertificateRules, Rule

BY_DEFAULT: Final = ("certificate", "password", "token", "anonymous")
KERBEROS: Final = "gssapi"
MECHANISMS: Final = (KERBEROS, *BY_DEFAULT)
"""What clients may prove a principal with. Nodes prove theirs on every listener."""

MECHANISMS_FORM: Final = (
    f"a list of MECHANISM or MECHANISM@LISTENER with MECHANISM one of {', '.join(MECHANISMS)}"
)


class Access(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[access]`."""

    certificates: Annotated[
        list[str],
        text_setting(
            "Rules by which a client's certificate is a principal, tried in order; * in the pattern is {} "
            "in the principal. Without rules the common name is the principal.",
            f"a list of {RULE_FORM}",
        ),
    ] = msgspec.field(default_factory=list)
    node_certificates: Annotated[
        list[str],
        text_setting(
            "The same rules for certificates of tls_node_ca: each makes its owner the node of that home, and "
            "no other. Without rules the common name is the home. Of several names that match, as of a "
            "certificate that all nodes share, each is a home.",
            f"a list of {RULE_FORM}",
        ),
    ] = msgspec.field(default_factory=list)
    kerberos: Annotated[
        list[str],
        text_setting(
            "Rules by which a name of Kerberos is a principal, tried in order; * in the pattern is {} in the "
            "principal, and never a / or @. Without rules the whole name, user@REALM, is the principal.",
            f"a list of {KERBEROS_RULE_FORM}",
        ),
    ] = msgspec.field(default_factory=list)
    mechanisms: Annotated[
        list[str],
        text_setting(
            "What a listener takes as a proof. One that is named (password@tls://0.0.0.0:7411) takes only "
            "what it is named with; the others take what is without a name. Where anonymous is taken, the "
            "setting anonymous says from where. One that takes gssapi (Kerberos) takes nothing weaker.",
            MECHANISMS_FORM,
        ),
    ] = msgspec.field(default_factory=lambda: list(BY_DEFAULT))
    proxied: Annotated[
        list[str],
        text_setting(
            "Listeners behind a proxy on this machine: who comes there is not taken to be on this machine.",
            "a list of addresses of listen",
        ),
    ] = msgspec.field(default_factory=list)
    quotas: Annotated[
        list[str],
        text_setting(
            "What each principal may have at this node where `moor quota` says nothing, and what all may "
            "have together who come by an address. An empty list bounds nobody.",
            LINE_FORM,
        ),
        Meta(max_length=limits.QUOTA_LINES_MAX),
    ] = msgspec.field(default_factory=lambda: list(DEFAULTS))
    revocation_ms: Annotated[
        int,
        Meta(
            ge=200,
            le=60_000,
            description="Time within which what is not granted any more ends on this node.",
        ),
    ] = limits.ACCESS_REVOCATION_MS
    stale_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=3_600_000,
            description="Time for which known rights, and known nodes, go on without a word of the catalog; "
            "at most what identity_lease_ms lets this node answer.",
        ),
    ] = limits.ACCESS_STALE_MS
    audit_full: Annotated[
        Literal["go_on", "stop"],
        Meta(
            description="What operators and changes of rights do while the audit cannot be written: go on, "
            "counted, or stop."
        ),
    ] = "go_on"

    def certificate_rules(self) -> CertificateRules:
        return CertificateRules.parsed(self.certificates)

    def node_certificate_rules(self) -> CertificateRules:
        return CertificateRules.parsed(self.node_certificates)

    def kerberos_rules(self) -> KerberosRules:
        return KerberosRules.parsed(self.kerberos)

    def mechanisms_of(self, listener: str) -> frozenset[str]:
        """What that address of `listen` takes."""
        named = {
            mechanism for mechanism, at, address in self._mechanisms() if at and address == listener
        }
        return frozenset(named or {mechanism for mechanism, at, _ in self._mechanisms() if not at})

    def named_listeners(self) -> list[str]:
        return [address for _, at, address in self._mechanisms() if at]

    def quota_lines(self) -> list[QuotaLine]:
        return [parsed(text) for text in self.quotas]

    def bounded_listeners(self) -> list[str]:
        """Also of lines that are wrong, which `problems` tells."""
        return [text.split()[0] for text in self.quotas if "://" in text.partition(" ")[0]]

    def problems(self) -> Iterator[Problem]:
        for text in self.quotas:
            try:
                parsed(text)
            except ValueError as error:
                yield Problem(("quotas",), f'"{text}": {error}')
        for setting in ("certificates", "node_certificates"):
            for text in getattr(self, setting):
                try:
                    Rule.parsed(text)
                except ValueError as error:
                    yield Problem((setting,), f'"{text}": {error}')
        for text in self.kerberos:
            try:
                KerberosRule.parsed(text)
            except ValueError as error:
                yield Problem(("kerberos",), f'"{text}": {error}')
        for text, (mechanism, _, _) in zip(self.mechanisms, self._mechanisms(), strict=True):
            if mechanism not in MECHANISMS:
                yield Problem(("mechanisms",), f'"{text}": accepted: {MECHANISMS_FORM}')

    def _mechanisms(self) -> list[tuple[str, str, str]]:
        return [text.partition("@") for text in self.mechanisms]
