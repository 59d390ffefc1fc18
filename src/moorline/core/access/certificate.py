"""Room: core/access. What a peer's certificate says, as plain values, and why it may prove nobody.

The mapping rules (`access.certificates`) make a principal of it. They are written by people, for names
that they thought of; so what could never be a principal is refused here, before any rule is asked: a name
that is empty, that could be read as two, or that ends a line or a level of a path in the middle.
"""

import msgspec

from moorline.core.access.principal import ANONYMOUS, Certificate, has_control_character
from moorline.errors import (
    CertificateExpired,
    CertificateMisused,
    CertificateNotYetValid,
    CertificateOfNobody,
    CertificateUntrusted,
)
from moorline.limits import PRINCIPAL_CHARACTERS_MAX


class PeerCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate whose chain and signature the TLS handshake has verified."""

    common_names: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    issuer: str
    """As RFC 4514 writes it: `CN=users,O=Example`."""
    issuer_name: str = ""
    """The common name of the authority alone, for mapping rules; empty if it has none, or several."""
    serial: int
    not_before_ms: int
    not_after_ms: int
    is_for_clients: bool
    """Its extended key usage names client authentication."""
    is_of_client_authority: bool = True
    """It can be a user's."""
    is_of_node_authority: bool = False
    """It can be a node's: `tls_node_ca` is set, and a certificate of that file signed it."""
    fingerprint: bytes
    """SHA-256 of the whole. To tell certificates apart in a log; never an identity."""
    authority: bytes = b""
    """A hash of the name and key of the authority that signed it, if that is in one of our files."""

    @property
    def names(self) -> tuple[str, ...]:
        return (
            *self.common_names,
            *self.dns_names,
            *self.emails,
            *self.uris,
            *self.ip_addresses,
        )

    @property
    def named(self) -> Certificate:
        """What rules are asked about."""
        return Certificate(
            self.common_names, self.dns_names, self.emails, self.uris, self.issuer_name
        )


class CertificateProblem(msgspec.Struct, frozen=True):
    """A handshake succeeded, and its certificate is not taken all the same."""

    code: str
    """Of the error that its owner hears, by the cause."""
    text: str


def problem_of(certificate: PeerCertificate, now_ms: int) -> CertificateProblem | None:
    """Why nobody can be proven by it, and what to do; None if somebody may be."""
    # The handshake has looked at the times. One that was resumed has not: it trusts what was seen before.
    if now_ms < certificate.not_before_ms:
        text = "it is not valid yet: set the clock of this machine, or wait"
        return CertificateProblem(CertificateNotYetValid.code, text)
    if now_ms >= certificate.not_after_ms:
        return CertificateProblem(CertificateExpired.code, "it has expired: renew it")
    # A certificate of a server is in the hands of whoever runs that server, and proves no user.
    if not certificate.is_for_clients:
        return CertificateProblem(
            CertificateMisused.code,
            "it is not made for clients: issue one whose extended key usage names client authentication "
            "(clientAuth)",
        )
    if not (certificate.is_of_client_authority or certificate.is_of_node_authority):
        return CertificateProblem(
            CertificateUntrusted.code,
            "the authority that signed it is in neither tls_client_ca nor tls_node_ca: where nodes have an "
            "authority of their own, intermediate authorities stand in these files too",
        )
    text = name_problem_of(certificate)
    return CertificateProblem(CertificateOfNobody.code, text) if text else None


def name_problem_of(certificate: PeerCertificate) -> str:
    """The part of it that is about names."""
    if not any(certificate.names):
        return "it names nobody: issue one with a common name"
    # Which of them counts would be chosen by whoever made the certificate.
    if len(certificate.common_names) > 1:
        return f"it has {len(certificate.common_names)} common names: issue one with a single one"
    # All of its names, also those that no rule asks for today: a rule that is added tomorrow must not find
    # what was let in before.
    for name in certificate.names:
        if not name:
            return "a name in it is empty: issue one without that"
        if has_control_character(name):
            return "a name in it has a control character or a newline: issue one without that"
        if len(name) > PRINCIPAL_CHARACTERS_MAX:
            return f"a name in it has more than {PRINCIPAL_CHARACTERS_MAX} characters"
    for name in certificate.common_names:
        # It would be two levels of a path, and a row of rights for one would reach the other.
        if "/" in name:
            return (
                "its common name has a / in it, which parts the levels of a path: issue one without"
            )
        # However it is spelled: people read logs, and would take it for nobody.
        if name.strip().casefold() == ANONYMOUS:
            return "its common name is anonymous, which nobody can prove to be: issue another name"
    return ""
