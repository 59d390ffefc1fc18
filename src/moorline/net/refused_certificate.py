"""Room: net. Our certificate, refused by a node in the handshake: which error that is, by its alert.

An alert has a number and no text, and two of the numbers have several causes. The times in our own
certificate tell those apart, as far as our clock is right. Whom a node refuses, and by which revocation list,
is decided by its context of TLS (net/tls.py).
"""

import ssl
from pathlib import Path
from typing import Final

from moorline.core.access.validity import Validity, validity_of
from moorline.errors import (
    CertificateExpired,
    CertificateMisused,
    CertificateNotYetValid,
    CertificateRefused,
    CertificateRevoked,
    CertificateUntrusted,
    ConfigError,
)
from moorline.net.clock import wall_ms
from moorline.net.pem import Pem

_EXPIRED: Final = "SSLV3_ALERT_CERTIFICATE_EXPIRED"
_BAD: Final = "SSLV3_ALERT_BAD_CERTIFICATE"

_ALERTS: Final[dict[str, tuple[type[CertificateRefused], str]]] = {
    "SSLV3_ALERT_CERTIFICATE_REVOKED": (
        CertificateRevoked,
        "it is revoked: ask for another one",
    ),
    _EXPIRED: (CertificateExpired, "it has expired: renew it"),
    "TLSV1_ALERT_UNKNOWN_CA": (
        CertificateUntrusted,
        "the node does not know the authority that signed it: does the node's tls_client_ca hold that one, "
        "and its tls_client_crl, if there is one, the list of that one?",
    ),
    "TLSV1_ALERT_DECRYPT_ERROR": (
        CertificateUntrusted,
        "its signature is of another authority of the same name: which of the two does the node's "
        "tls_client_ca hold?",
    ),
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": (
        CertificateMisused,
        "it is not made for clients: ask for one whose extended key usage names client authentication",
    ),
    _BAD: (
        CertificateNotYetValid,
        "it is not valid yet: wait, or set the clock of one machine",
    ),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": (
        CertificateRefused,
        "the node says no more: its log does",
    ),
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": (
        CertificateRefused,
        "there is none, and the node wants one: give --certificate",
    ),
}

_BY_OUR_CLOCK: Final = {
    _EXPIRED: "it has not expired by the clock of this machine: the node's clock is ahead, or the node's "
    "revocation list is out of date: ask its operator",
    _BAD: "it is damaged, or not valid yet by the node's clock, or the node's revocation list is not: set "
    "the clock of one machine, or ask the node's operator",
}
"""Where our own certificate says that the likely cause is not the one."""


def alert_of(error: BaseException | None) -> str:
    """What the node said of our certificate when it hung up; empty if it was not about that.

    With TLS 1.3 a client is through its handshake before the node has looked at its certificate: the answer
    comes as an alert, at the end of a link that seemed to be open.
    """
    if not isinstance(error, ssl.SSLError) or error.reason not in _ALERTS:
        return ""
    return error.reason


def certificate_refused(
    alert: str, where: str = "", certificate: Path | None = None
) -> CertificateRefused:
    kind, text = _ALERTS[alert]
    validity = None if certificate is None else _validity(certificate)
    if validity is not None and alert in _BY_OUR_CLOCK:
        now_ms = wall_ms()
        is_over, is_early = now_ms >= validity.not_after_ms, now_ms < validity.not_before_ms
        if not (is_over if alert == _EXPIRED else is_early):
            kind, text = CertificateRefused, _BY_OUR_CLOCK[alert]
    of_file = f"{certificate}: " if certificate is not None else ""
    at = f"{where}: " if where else ""
    return kind(kind.code, f"{at}{of_file}the node refused our certificate: {text}")


def _validity(certificate: Path) -> Validity | None:
    """Of the first in a file: the one that is ours."""
    try:
        first = Pem("certificate", str(certificate)).blocks()[0]
        return validity_of(ssl.PEM_cert_to_DER_cert(first.decode("ascii")))
    except (ConfigError, OSError, ValueError):
        return None  # what was read a moment ago is gone: the alert itself has to do
