"""Room: net. TLS contexts for both ends, and the identity that a certificate proves."""

import hashlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from moorline.errors import ConfigError


class Identity(msgspec.Struct, frozen=True):
    """Who is at the other end. `fingerprint` is the SHA-256 of the certificate, or empty."""

    name: str
    fingerprint: bytes = b""

    @property
    def is_anonymous(self) -> bool:
        return not self.fingerprint


ANONYMOUS = Identity("anonymous")


def server_context(certificate: str, key: str, client_ca: str) -> ssl.SSLContext:
    """A context for a listener; with `client_ca` clients may prove who they are."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load("tls_certificate and tls_key", lambda: context.load_cert_chain(certificate, key))
    if client_ca:
        _load("tls_client_ca", lambda: context.load_verify_locations(client_ca))
        # Optional: whether a stranger may enter is the listener's question, not TLS's.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """A context for a client; `ca` in place of the system's authorities."""
    context = ssl.create_default_context(cafile=None)
    if ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load("ca", lambda: context.load_verify_locations(ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        _load("certificate and key", lambda: context.load_cert_chain(certificate, key))
    return context


def identity_of(ssl_object: Any) -> Identity:
    """The identity behind a finished handshake."""
    if ssl_object is None:
        return ANONYMOUS
    encoded = ssl_object.getpeercert(True)
    if not encoded:
        return ANONYMOUS
    subject = {name: value for part in ssl_object.getpeercert()["subject"] for name, value in part}
    fingerprint = hashlib.sha256(encoded).digest()
    return Identity(subject.get("commonName", fingerprint.hex()[:16]), fingerprint)


def _load(what: str, load: Callable[[], object]) -> None:
    try:
        load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{what}: cannot be read: {error}") from error
