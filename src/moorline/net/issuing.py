"""Room: net. A small authority in a folder: it issues certificates to nodes and clients, and revokes them.

    FOLDER/ca.pem     its certificate: for tls_client_ca, tls_node_ca and --ca
    FOLDER/ca.key     its key, for its owner alone: whoever has it can be anybody
    FOLDER/crl.pem    its revocation list: for tls_client_crl

It is for trying out and for small set-ups. There is no password on the key, no hardware behind it, and nobody
who checks what is asked for. Nothing is ever written over, but the list.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorline.core.access.certificate import name_problem_of
from moorline.errors import ConfigError
from moorline.limits import CERTIFICATE_BACKDATED_S, COMMON_NAME_CHARACTERS_MAX
from moorline.net.peer_certificate import described, load_certificates
from moorline.net.pem import Pem

SECRET_MODE, PUBLIC_MODE = 0o600, 0o644


class Made(msgspec.Struct, frozen=True):
    """The files of a new certificate."""

    certificate: str
    key: str
    subject: str
    not_after: str
    fingerprint: str


def make_authority(folder: Path, name: str, days: int) -> Made:
    """In a folder that is made, or that has none yet."""
    _check_name(name)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _begun(subject, subject, key, days).add_extension(
        # It signs nobody who signs others: what it issues is the end of every chain.
        x509.BasicConstraints(ca=True, path_length=0),
        critical=True,
    )
    builder = builder.add_extension(_key_usage(is_authority=True), critical=True)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )
    certificate = builder.sign(key, hashes.SHA256())
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"FOLDER: {str(folder)!r} cannot be made: {error.strerror}") from error
    _check_free(folder / "crl.pem")
    made = _write(folder, "ca", certificate, key)
    _write_new(folder / "crl.pem", _signed_list(certificate, key, [], None), PUBLIC_MODE)
    return made


class Authority:
    """One that `make_authority` made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ca = Pem("--authority", str(folder / "ca.pem"))
        if not (folder / "ca.pem").exists():
            raise ConfigError(
                f"--authority: there is no authority in {str(folder)!r}: `moor cert authority` makes one"
            )
        self.certificate = load_certificates(ca)[0]
        key_file = folder / "ca.key"
        try:
            key = load_pem_private_key(key_file.read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"--authority: {str(key_file)!r} cannot be used: {error}") from error
        assert isinstance(key, ec.EllipticCurvePrivateKey), "we make no others"
        if key.public_key() != self.certificate.public_key():
            raise ConfigError(f"--authority: {str(key_file)!r} is not the key of {ca.path!r}")
        self._key = key

    def issue_node(self, name: str, hosts: Sequence[str], days: int, out: Path) -> Made:
        """For a node: it proves itself to clients by its hosts, and to other nodes as a client."""
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(name, uses, [_host(host) for host in hosts], days, out)

    def issue_client(self, name: str, emails: Sequence[str], days: int, out: Path) -> Made:
        try:
            others: list[x509.GeneralName] = [x509.RFC822Name(email) for email in emails]
        except ValueError as error:
            raise ConfigError(f"--email: {error}") from error
        return self._issue(name, [ExtendedKeyUsageOID.CLIENT_AUTH], others, days, out)

    def revoke(self, files: Sequence[Path], days: int | None) -> int:
        """Adds them to the list, and renews it; how many are in it now."""
        path = self._folder / "crl.pem"
        added: list[x509.RevokedCertificate] = []
        now = datetime.now(UTC)
        for file in files:
            certificate = load_certificates(Pem("FILE", str(file)))[0]
            if certificate.issuer != self.certificate.subject or not self._signed(certificate):
                raise ConfigError(
                    f"FILE: {str(file)!r}: another authority issued it: only that one can revoke it"
                )
            added.append(_revoked(certificate.serial_number, now))
        with self._locked():
            before: list[x509.RevokedCertificate] = []
            if path.exists():
                try:
                    before = list(x509.load_pem_x509_crl(path.read_bytes()))
                except ValueError as error:
                    # Not made anew: what was revoked would be valid again.
                    raise ConfigError(
                        f"{str(path)!r}: it is damaged: put a copy of it there, or take it away and revoke "
                        "everything again"
                    ) from error
            known = {one.serial_number for one in before}
            revoked = [*before, *(one for one in added if one.serial_number not in known)]
            _replace(path, _signed_list(self.certificate, self._key, revoked, days))
        return len({one.serial_number for one in revoked})

    def _issue(
        self,
        name: str,
        uses: list[x509.ObjectIdentifier],
        others: Sequence[x509.GeneralName],
        days: int,
        out: Path,
    ) -> Made:
        _check_name(name)
        if not out.is_dir():
            raise ConfigError(f"--out: {str(out)!r} is no folder: make it, or give another one")
        end = self.certificate.not_valid_after_utc
        if datetime.now(UTC) + timedelta(days=days) > end:
            raise ConfigError(
                f"--days: the authority itself ends on {end:%Y-%m-%d}: give fewer days, or make another one"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            _begun(subject, self.certificate.subject, key, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        return _write(out, name, builder.sign(self._key, hashes.SHA256()), key)

    def _signed(self, certificate: x509.Certificate) -> bool:
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except Exception:
            return False
        return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Two that revoke at once would each write a list without the other's."""
        with (self._folder / "ca.key").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(seconds=CERTIFICATE_BACKDATED_S))
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _signed_list(
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    revoked: Sequence[x509.RevokedCertificate],
    days: int | None,
) -> bytes:
    """Until the authority itself ends, if nobody says otherwise: a list that is not renewed shuts all out."""
    now = datetime.now(UTC)
    end = certificate.not_valid_after_utc if days is None else now + timedelta(days=days)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(certificate.subject)
        .last_update(now - timedelta(seconds=CERTIFICATE_BACKDATED_S))
        .next_update(end)
    )
    for one in revoked:
        builder = builder.add_revoked_certificate(one)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _revoked(serial: int, now: datetime) -> x509.RevokedCertificate:
    return x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        pass
    try:
        return x509.DNSName(text)
    except ValueError as error:
        raise ConfigError(f"--host: {text!r} is no name of a machine: {error}") from error


def _check_name(name: str) -> None:
    """What is issued here can be a principal, and is a name of a file."""
    if not 0 < len(name) <= COMMON_NAME_CHARACTERS_MAX or name.startswith("."):
        raise ConfigError(
            f"NAME: accepted: 1 to {COMMON_NAME_CHARACTERS_MAX} characters, the first no dot"
        )
    if name[0] in "@$%" or any(not character.isprintable() for character in name):
        raise ConfigError("NAME: it begins with @, $ or %, or cannot be printed: no principal does")
    if "/" in name or name.strip().casefold() == "anonymous":
        raise ConfigError("NAME: it has a / in it, or is anonymous: nobody can be called that")


def _write(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> Made:
    assert not name_problem_of(described(certificate)), "we issue what nodes take"
    files = folder / f"{name}.pem", folder / f"{name}.key"
    for file in files:
        _check_free(file)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write_new(files[1], secret, SECRET_MODE)
    _write_new(files[0], certificate.public_bytes(Encoding.PEM), PUBLIC_MODE)
    found = described(certificate)
    return Made(
        str(files[0]),
        str(files[1]),
        certificate.subject.rfc4514_string(),
        certificate.not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ"),
        found.fingerprint.hex(),
    )


def _check_free(path: Path) -> None:
    if os.path.lexists(path):
        raise ConfigError(f"{str(path)!r} is there already, and is not written over: move it away")


def _write_new(path: Path, text: bytes, mode: int) -> None:
    """Never over a file that is there; a key is never, not for a moment, for others to read."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be written: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _replace(path: Path, text: bytes) -> None:
    """Whole or not at all: a node may read it at any moment."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    _write_new(new, text, PUBLIC_MODE)
    new.replace(path)
