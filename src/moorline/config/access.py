"""Room: config. The section `[access]`: how a connection becomes a principal, and how long rights last."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from moorline import limits
from moorline.config.problem import Problem, text_setting
from moorline.core.access.principal import RULE_FORM, CertificateRules, Rule

MECHANISMS: Final = ("certificate", "password", "token", "anonymous")
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
    mechanisms: Annotated[
        list[str],
        text_setting(
            "What a listener takes as a proof. One that is named (password@tls://0.0.0.0:7411) takes only "
            "what it is named with; the others take what is without a name. Where anonymous is taken, the "
            "setting anonymous says from where.",
            MECHANISMS_FORM,
        ),
    ] = msgspec.field(default_factory=lambda: list(MECHANISMS))
    proxied: Annotated[
        list[str],
        text_setting(
            "Listeners behind a proxy on this machine: who comes there is not taken to be on this machine.",
            "a list of addresses of listen",
        ),
    ] = msgspec.field(default_factory=list)
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
            description="Time for which known rights go on without a word of the catalog.",
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

    def mechanisms_of(self, listener: str) -> frozenset[str]:
        """What that address of `listen` takes."""
        named = {
            mechanism for mechanism, at, address in self._mechanisms() if at and address == listener
        }
        return frozenset(named or {mechanism for mechanism, at, _ in self._mechanisms() if not at})

    def named_listeners(self) -> list[str]:
        return [address for _, at, address in self._mechanisms() if at]

    def problems(self) -> Iterator[Problem]:
        for text in self.certificates:
            try:
                Rule.parsed(text)
            except ValueError as error:
                yield Problem(("certificates",), f'"{text}": {error}')
        for text, (mechanism, _, _) in zip(self.mechanisms, self._mechanisms(), strict=True):
            if mechanism not in MECHANISMS:
                yield Problem(("mechanisms",), f'"{text}": accepted: {MECHANISMS_FORM}')

    def _mechanisms(self) -> list[tuple[str, str, str]]:
        return [text.partition("@") for text in self.mechanisms]
