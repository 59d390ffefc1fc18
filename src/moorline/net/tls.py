"""Room: net. TLS contexts for both ends, and the words for a handshake that failed.

What a finished handshake proved is described by `net/peer_certificate.py`; which files there are, and when
they are read again, is the subject of `net/tls_files.py`.
"""

import ssl
from pathlib import Path

import msgspec

from moorline.core.access.certificate import PeerCertificate
from moorline.core.access.principal import ANONYMOUS as ANONYMOUS_NAME
from moorline.core.access.principal import Proof
from moorline.errors import ConfigError
from moorline.limits import PROOF_MARK_BYTES
from moorline.net.alerts import AlertingContext
from moorline.net.pem import PRIVATE_KEY, REVOCATION_LIST, Pem, load_pem


class Identity(msgspec.Struct, frozen=True):
    """Who is at the other end, and how it has shown that."""

    principal: str
    proof: Proof = Proof.NOTHING
    expires_ms: int | None = None
    """When the proof ends, by the wall clock; None while nothing is changed in the catalog."""
    certificate: PeerCertificate | None = None
    """The one that proved it, by itself or beside a node's secret."""
    user_version: int = 0
    """Of a user: the version in the catalog under which it was proven."""
    token: bytes = b""
    """The hash of the token that proved it."""
    token_version: int = 0
    proven_name: str = ""
    """What Kerberos, or an issuer, calls it; the principal is made by rules."""
    groups: frozenset[str] = frozenset()
    """Groups of users that the proof itself gives, beside those of the catalog."""

    @property
    def name(self) -> str:
        return self.principal

    @property
    def mark(self) -> bytes:
        """Which password or token it was, for who judges later whether that would be taken still; nothing for
        other proofs. Only a half of the token's hash: nobody finds a token by that."""
        if not self.user_version:
            return b""
        versions = self.user_version.to_bytes(8, "big") + self.token_version.to_bytes(8, "big")
        return versions + self.token[: PROOF_MARK_BYTES - len(versions)]

    @property
    def fingerprint(self) -> bytes:
        """What an owner was known by before there were principals; never an identity."""
        return self.certificate.fingerprint if self.certificate is not None else b""


ANONYMOUS = Identity(ANONYMOUS_NAME)

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
"""By the value of `tls_minimum`. Older ones are broken, and not offered."""


def server_context(
    certificate: str,
    key: str,
    client_ca: str,
    *,
    node_ca: str = "",
    client_crl: str = "",
    minimum: str = "1.2",
) -> ssl.SSLContext:
    """A context for a listener; with `client_ca` or `node_ca` peers may prove who they are."""
    context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[minimum]
    # Nothing of a handshake is taken from an earlier one: a certificate is looked at anew for every link,
    # and no key of tickets, which would undo forward secrecy, stays in memory.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    _load_chain(context, Pem("tls_certificate", certificate), Pem("tls_key", key, PRIVATE_KEY))
    for ca in (Pem("tls_client_ca", client_ca), Pem("tls_node_ca", node_ca)):
        if ca.path:
            _load_authorities(context, ca)
            # Optional: whether a stranger may enter is the listener's question, not TLS's.
            context.verify_mode = ssl.CERT_OPTIONAL
    # Who is in the file is trusted, also an intermediate authority without the root above it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if client_crl:
        lists = Pem("tls_client_crl", client_crl, REVOCATION_LIST)
        lists.blocks()  # OpenSSL takes a file without any
        _load_authorities(context, lists)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def client_context(
    ca: Path | None, certificate: Path | None, key: Path | None, *, minimum: str = "1.2"
) -> ssl.SSLContext:
    """A context for a client; `ca` in place of the system's authorities."""
    if key is not None and certificate is None:
        raise ConfigError("key: proves nothing without a certificate: give that too, or neither")
    context = ssl.create_default_context(cafile=None)
    if ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_authorities(context, Pem("ca", str(ca)))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    assert context.check_hostname, "a node that is not the one that was named is nobody"
    context.minimum_version = VERSIONS[minimum]
    if certificate is not None:
        own = Pem("certificate", str(certificate))
        # One file may hold both.
        _load_chain(context, own, Pem("key", str(key or certificate), PRIVATE_KEY))
    return context


# --- handshakes that failed -----------------------------------------------------------------------

_NO_LIST, _NOT_YET_VALID, _EXPIRED, _LIST_NOT_YET_VALID, _LIST_EXPIRED = 3, 9, 10, 11, 12
_REVOKED, _OTHER_USE, _OTHER_NAME, _OTHER_IP = 23, 26, 62, 64
"""Codes of OpenSSL's verification (X509_V_ERR_…), which Python has no names for."""

_REFUSED_HERE = {
    _NO_LIST: "tls_client_crl has no revocation list of the authority that signed it: add that list",
    _NOT_YET_VALID: "it is not valid yet: is the clock of one machine wrong?",
    _EXPIRED: "it has expired: its owner must renew it",
    _LIST_NOT_YET_VALID: "the revocation list of its authority in tls_client_crl is not valid yet: is the "
    "clock of this machine wrong?",
    _LIST_EXPIRED: "the revocation list of its authority in tls_client_crl is out of date: put a newer one "
    "in its place",
    _REVOKED: "it is revoked, by a list in tls_client_crl",
    _OTHER_USE: "it is not made for clients: its extended key usage does not name client authentication",
}


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


def why_refused_here(error: ssl.SSLCertVerificationError) -> str:
    """What is wrong with the certificate of a client, for the log of the node that refused it."""
    known = _REFUSED_HERE.get(error.verify_code)
    if known is not None:
        return known
    return (
        f"{error.verify_message.rstrip('.')}: does tls_client_ca hold the authority that signed it?"
    )


def _load_chain(context: ssl.SSLContext, certificate: Pem, key: Pem) -> None:
    # A passphrase is never asked for: a node has nobody to ask, and a client would ask in a prompt.
    load_pem(
        lambda: context.load_cert_chain(certificate.path, key.path, password=""), certificate, key
    )


def _load_authorities(context: ssl.SSLContext, ca: Pem) -> None:
    load_pem(lambda: context.load_verify_locations(ca.path), ca)
