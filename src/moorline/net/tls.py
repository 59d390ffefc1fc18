"""Room: net. TLS contexts for both ends, and the identity that a certificate proves."""

import hashlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from moorline.errors import ConfigError
from moorline.limits import PEM_BYTES_MAX

CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
PRIVATE_KEY = b"PRIVATE KEY-----"
ENCRYPTED = b"ENCRYPTED"


class Identity(msgspec.Struct, frozen=True):
    """Who is at the other end. `fingerprint` is the SHA-256 of its certificate or of its name, or empty."""

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
    _load_chain(context, Pem("tls_certificate", certificate), Pem("tls_key", key, PRIVATE_KEY))
    if client_ca:
        _load_authorities(context, Pem("tls_client_ca", client_ca))
        # Optional: whether a stranger may enter is the listener's question, not TLS's.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """A context for a client; `ca` in place of the system's authorities."""
    if key is not None and certificate is None:
        raise ConfigError("key: proves nothing without a certificate: give that too, or neither")
    context = ssl.create_default_context(cafile=None)
    if ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_authorities(context, Pem("ca", str(ca)))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        own = Pem("certificate", str(certificate))
        # One file may hold both.
        _load_chain(context, own, Pem("key", str(key or certificate), PRIVATE_KEY))
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


def identity_of_principal(name: str) -> Identity:
    """The identity behind a proof. What it owns is known by a fingerprint too; a certificate never begins as
    these bytes do."""
    return Identity(name, hashlib.sha256(b"moorline principal " + name.encode()).digest())


_NOT_YET_VALID, _EXPIRED, _OTHER_NAME, _OTHER_IP = 9, 10, 62, 64
"""Codes of OpenSSL's verification (X509_V_ERR_…), which Python has no names for."""


def why_untrusted(error: ssl.SSLCertVerificationError, ca: Path | None) -> str:
    """What is wrong with the certificate of a node, and what to do."""
    if error.verify_code in (_NOT_YET_VALID, _EXPIRED):
        remedy = "renew it on the node, or set the clock of this machine"
    elif error.verify_code in (_OTHER_NAME, _OTHER_IP):
        remedy = (
            "name the node in the address as its certificate does, or give the node a certificate for this "
            "address"
        )
    else:
        remedy = f"is {ca} the CA that signed it?" if ca else "name its CA with --ca (or ca=)"
    what = error.verify_message.rstrip(".")
    return f"the certificate of the node cannot be verified ({what}): {remedy}"


# --- files, and what is wrong with them -----------------------------------------------------------


class Pem(msgspec.Struct, frozen=True):
    """A file by the setting that names it, and by what must be in it."""

    setting: str
    path: str
    mark: bytes = CERTIFICATE

    def __str__(self) -> str:
        return f"{self.setting}: {self.path!r}"

    def problem(self) -> str:
        """What is wrong with the file, and what to do; empty if it looks as it should."""
        try:
            with Path(self.path).open("rb") as file:
                text = file.read(PEM_BYTES_MAX)
        except FileNotFoundError:
            return "there is no such file: give the path of a PEM file"
        except IsADirectoryError:
            return "this is a folder: give the path of a PEM file in it"
        except PermissionError:
            return "this user may not read it: change its owner or its mode"
        except (OSError, ValueError) as error:
            return f"it cannot be read: {error}"
        kind = "certificate" if self.mark is CERTIFICATE else "private key"
        if b"-----BEGIN " not in text:
            return f"it is not a PEM file: convert it with openssl, or give the {kind}'s PEM file"
        if self.mark not in text:
            return f"there is no {kind} in it: give the file that holds the {kind}"
        if self.mark is PRIVATE_KEY and ENCRYPTED in text:
            return "the key needs a passphrase: give one without, that only this user may read"
        return ""


def _load_chain(context: ssl.SSLContext, certificate: Pem, key: Pem) -> None:
    # A passphrase is never asked for: a node has nobody to ask, and a client would ask in a prompt.
    _load(
        lambda: context.load_cert_chain(certificate.path, key.path, password=""), certificate, key
    )


def _load_authorities(context: ssl.SSLContext, ca: Pem) -> None:
    _load(lambda: context.load_verify_locations(ca.path), ca)


def _load(load: Callable[[], object], *files: Pem) -> None:
    """Loads; the files are looked at only when that fails, since a pipe can be read but once."""
    try:
        load()
    except (OSError, ValueError) as error:
        for file in files:
            problem = file.problem()
            if problem:
                raise ConfigError(f"{file}: {problem}") from error
        names = " and ".join(map(str, files))
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            what = "they do not belong together: give the key that the certificate was made with"
        else:
            reason = getattr(error, "reason", None) or error
            what = f"OpenSSL cannot use what is in there ({reason}): make it anew"
        raise ConfigError(f"{names}: {what}") from error
