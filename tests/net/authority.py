"""Authorities that issue every kind of certificate, wrong ones included; and handshakes of real sockets."""

import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
DAY = timedelta(days=1)
PATIENCE_S = 20


def name_of(*common_names: str) -> x509.Name:
    # Unchecked: authorities of others have issued all of these.
    return x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, one, _validate=False) for one in common_names]
    )


class Issued(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pem(self) -> bytes:
        """Both in one."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + self.certificate.public_bytes(Encoding.PEM)

    def write(self, path: Path, *chain: x509.Certificate) -> Path:
        path.write_bytes(self.pem + b"".join(one.public_bytes(Encoding.PEM) for one in chain))
        return path


class Authority:
    def __init__(
        self,
        name: str = "users",
        *,
        above: "Authority | None" = None,
        key: ec.EllipticCurvePrivateKey | None = None,
    ) -> None:
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        self.name = name_of(name)
        signer = above or self
        now = datetime.now(UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(signer.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 100 * DAY)
            .not_valid_after(now + 1_000 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(signer.key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.pem)
        return path

    def issue(
        self,
        *common_names: str,
        uses: Sequence[x509.ObjectIdentifier] | None = (CLIENT,),
        others: Sequence[x509.GeneralName] = (),
        begin: timedelta = -DAY,
        end: timedelta = DAY * 90,
        is_self_signed: bool = False,
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name_of(*common_names))
            .issuer_name(name_of(*common_names) if is_self_signed else self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begin)
            .not_valid_after(now + end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        )
        if uses is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        if others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        return Issued(builder.sign(key if is_self_signed else self.key, hashes.SHA256()), key)

    def issue_node(self, name: str = "node-1", *, end: timedelta = DAY * 90) -> Issued:
        here = x509.IPAddress(ip_address("127.0.0.1"))
        return self.issue(name, uses=(SERVER, CLIENT), others=[here], end=end)

    def revocations(self, *revoked: Issued, end: timedelta = DAY) -> bytes:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.name)
            .last_update(now - 10 * DAY)
            .next_update(now + end)
        )
        for one in revoked:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(one.certificate.serial_number)
                .revocation_date(now - DAY)
                .build()
            )
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)


class Met(NamedTuple):
    """What two ends had of each other."""

    client: bytes | None
    """The certificate that the server saw; none if there was no handshake, or no certificate."""
    server: bytes | None
    server_error: ssl.SSLError | None
    client_error: OSError | None


def meet(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "127.0.0.1") -> Met:
    """A handshake over a real connection, and one byte behind it: an alert of TLS 1.3 comes with that."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        ThreadPoolExecutor(1) as thread,
    ):
        listening.settimeout(PATIENCE_S)
        accepting = thread.submit(_accept, listening, server)
        seen, error = _connect(listening.getsockname()[1], client, host)
        found = accepting.result(PATIENCE_S)
    if isinstance(found, ssl.SSLError):
        return Met(None, seen, found, error)
    return Met(found, seen, None, error)


def _accept(listening: socket.socket, context: ssl.SSLContext) -> bytes | ssl.SSLError | None:
    accepted, _ = listening.accept()
    accepted.settimeout(PATIENCE_S)
    with accepted:
        try:
            with context.wrap_socket(accepted, server_side=True) as link:
                link.sendall(b"k")
                return link.getpeercert(True)
        except ssl.SSLError as error:
            return error


def _connect(port: int, context: ssl.SSLContext, host: str) -> tuple[bytes | None, OSError | None]:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=host) as link:
                assert link.recv(1) == b"k"
                return link.getpeercert(True), None
        except OSError as error:
            return None, error
