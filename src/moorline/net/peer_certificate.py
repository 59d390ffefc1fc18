"""Room: net. What a peer's certificate says, and whose it can be: a user's or a node's.

Of a node only: a client does without the package `cryptography`.

Python shows the chain that a handshake verified from 3.13 on only. So where nodes have an authority of
their own (`tls_node_ca`), a certificate belongs to the file that holds the certificate which signed it
directly. Intermediate authorities therefore stand in these files; one that a peer sends along, and that no
file has, makes nobody a node, and no user either.
"""

import hashlib
import warnings
from datetime import datetime

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorline.core.access.certificate import CertificateProblem, PeerCertificate, problem_of
from moorline.errors import CertificateOfNobody, ConfigError
from moorline.net.pem import REVOCATION_LIST, Pem

# A name of any length is refused by us, with a reason; a stranger's certificate prints nothing to stderr.
warnings.filterwarnings("ignore", message="Attribute's length must be", category=UserWarning)


class Authorities:
    """The certificates of one file of authorities."""

    def __init__(self, file: Pem) -> None:
        self.file = file
        self._by_name: dict[bytes, list[x509.Certificate]] = {}
        self.keys: set[bytes] = set()
        self.ends: list[tuple[int, str]] = []
        """Of each: when it expires, and its name."""
        for certificate in load_certificates(file):
            self._by_name.setdefault(certificate.subject.public_bytes(), []).append(certificate)
            self.keys.add(_key_of(certificate))
            end_ms = milliseconds(certificate.not_valid_after_utc)
            self.ends.append((end_ms, certificate.subject.rfc4514_string()))

    def signer_of(self, certificate: x509.Certificate) -> bytes:
        """Which one signed it, by `keys`; empty if none here did."""
        for authority in self._by_name.get(certificate.issuer.public_bytes(), ()):
            try:
                certificate.verify_directly_issued_by(authority)
            except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
                continue
            return _key_of(authority)
        return b""


class RevocationList(msgspec.Struct, frozen=True):
    """One list of the file `tls_client_crl`."""

    issuer: str
    serials: frozenset[int]
    next_update_ms: int | None
    """When a newer one should be there: behind that the handshake takes nobody of its authority."""


class Trust(msgspec.Struct, frozen=True):
    """Whose certificates are taken now."""

    clients: Authorities | None
    nodes: Authorities | None
    revoked: tuple[RevocationList, ...] = ()

    def describe(self, encoded: bytes, now_ms: int) -> PeerCertificate | CertificateProblem:
        """What the certificate of a finished handshake says; DER, as `getpeercert(True)` gives it."""
        try:
            found = self._described(encoded)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            # OpenSSL has read it, and we cannot: whom two readers may understand differently is nobody.
            text = "it cannot be read: issue one with plain names"
            return CertificateProblem(CertificateOfNobody.code, text)
        return problem_of(found, now_ms) or found

    def problem_of(self, certificate: PeerCertificate, now_ms: int) -> str:
        """Why one that was taken before is not taken any more; empty if it is."""
        if now_ms >= certificate.not_after_ms:
            return "the certificate has expired"
        for one in self.revoked:
            if one.issuer == certificate.issuer and certificate.serial in one.serials:
                return "the certificate is revoked"
        known = {
            key
            for authorities in (self.clients, self.nodes)
            if authorities is not None
            for key in authorities.keys
        }
        # One that was signed by an authority which its peer sent along is not known by that: it stays.
        if certificate.authority and certificate.authority not in known:
            return "the authority of the certificate is not trusted any more"
        return ""

    def _described(self, encoded: bytes) -> PeerCertificate:
        certificate = x509.load_der_x509_certificate(encoded)
        of_clients = self.clients.signer_of(certificate) if self.clients is not None else b""
        of_nodes = self.nodes.signer_of(certificate) if self.nodes is not None else b""
        return described(
            certificate,
            # Without an authority of the nodes' the handshake itself has said that it is a client's.
            is_of_client_authority=bool(of_clients) or self.nodes is None,
            is_of_node_authority=bool(of_nodes),
            authority=of_clients or of_nodes,
        )


def described(
    certificate: x509.Certificate,
    *,
    is_of_client_authority: bool = True,
    is_of_node_authority: bool = False,
    authority: bytes = b"",
) -> PeerCertificate:
    names = _alternative_names(certificate)
    issuers = _common_names(certificate.issuer)
    return PeerCertificate(
        common_names=_common_names(certificate.subject),
        dns_names=tuple(names.get_values_for_type(x509.DNSName)),
        emails=tuple(names.get_values_for_type(x509.RFC822Name)),
        uris=tuple(names.get_values_for_type(x509.UniformResourceIdentifier)),
        ip_addresses=tuple(map(str, names.get_values_for_type(x509.IPAddress))),
        issuer=certificate.issuer.rfc4514_string(),
        issuer_name=issuers[0] if len(issuers) == 1 else "",
        serial=certificate.serial_number,
        not_before_ms=milliseconds(certificate.not_valid_before_utc),
        not_after_ms=milliseconds(certificate.not_valid_after_utc),
        is_for_clients=ExtendedKeyUsageOID.CLIENT_AUTH in _uses(certificate),
        is_of_client_authority=is_of_client_authority,
        is_of_node_authority=is_of_node_authority,
        fingerprint=_fingerprint(certificate),
        authority=authority,
    )


def load_trust(client_ca: str, node_ca: str, client_crl: str) -> Trust:
    """From the files of the settings; an empty path is none."""
    return Trust(
        Authorities(Pem("tls_client_ca", client_ca)) if client_ca else None,
        Authorities(Pem("tls_node_ca", node_ca)) if node_ca else None,
        load_revocations(Pem("tls_client_crl", client_crl, REVOCATION_LIST)) if client_crl else (),
    )


def load_certificates(file: Pem) -> list[x509.Certificate]:
    try:
        return [x509.load_pem_x509_certificate(block) for block in file.blocks()]
    except ValueError as error:
        raise ConfigError(f"{file}: a certificate in it cannot be read: make it anew") from error


def load_revocations(file: Pem) -> tuple[RevocationList, ...]:
    try:
        return tuple(_revocation_list(x509.load_pem_x509_crl(block)) for block in file.blocks())
    except ValueError as error:
        raise ConfigError(
            f"{file}: a revocation list in it cannot be read: make it anew"
        ) from error


def uses_of(certificate: x509.Certificate) -> list[str]:
    """Its extended key usage, for people."""
    named = {
        ExtendedKeyUsageOID.CLIENT_AUTH: "client",
        ExtendedKeyUsageOID.SERVER_AUTH: "server",
    }
    return [named.get(use, use.dotted_string) for use in _uses(certificate)]


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000)


def _revocation_list(found: x509.CertificateRevocationList) -> RevocationList:
    end = found.next_update_utc
    return RevocationList(
        found.issuer.rfc4514_string(),
        frozenset(one.serial_number for one in found),
        milliseconds(end) if end is not None else None,
    )


def _common_names(name: x509.Name) -> tuple[str, ...]:
    return tuple(str(one.value) for one in name.get_attributes_for_oid(NameOID.COMMON_NAME))


def _alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return x509.SubjectAlternativeName([])


def _uses(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    try:
        return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return []


def _key_of(authority: x509.Certificate) -> bytes:
    """Its name and key: an authority that renewed its own certificate is the same one."""
    key = authority.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(authority.subject.public_bytes() + key).digest()


def _fingerprint(certificate: x509.Certificate) -> bytes:
    return hashlib.sha256(certificate.public_bytes(Encoding.DER)).digest()
