"""Room: net. Whom the certificate of a TLS handshake makes: for every port that takes certificates as a
proof."""

from typing import Final, Protocol

from moorline.core.access.certificate import CertificateProblem, PeerCertificate
from moorline.core.access.principal import Certificate, CertificateRules, Proof
from moorline.errors import CertificateOfNobody, CertificateUntrusted
from moorline.net.tls import Identity

OWN_NAME: Final = CertificateRules()
"""Without rules the common name is the principal."""


class PrincipalOf(Protocol):
    """Which principal a certificate proves: `core.access.principal.CertificateRules`."""

    def principal_of(self, certificate: Certificate, /) -> str: ...


def identity_by(certificate: PeerCertificate, rules: PrincipalOf) -> Identity | CertificateProblem:
    """Whom it proves, until its end; or why that is nobody."""
    if not certificate.is_of_client_authority:
        text = "it is of the nodes' authority: a user needs one of tls_client_ca"
        return CertificateProblem(CertificateUntrusted.code, text)
    try:
        principal = rules.principal_of(certificate.named)
    except ValueError as error:
        return CertificateProblem(CertificateOfNobody.code, str(error))
    return Identity(principal, Proof.CERTIFICATE, certificate.not_after_ms, certificate)
