"""Certificates over real handshakes: who is taken, as whom, and what both ends hear of a refusal."""

import hashlib
import ssl
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from cryptography import x509
from tests.net.authority import CLIENT, DAY, SERVER, Authority, Issued, meet

from moorline.core.access.certificate import CertificateProblem, PeerCertificate
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
from moorline.net.peer_certificate import Trust, load_trust
from moorline.net.refused_certificate import alert_of, certificate_refused
from moorline.net.tls import (
    client_context,
    server_context,
    why_refused_here,
    why_untrusted,
)

VERSIONS = ("1.2", "1.3")


class World(NamedTuple):
    """An authority, a node of it, and a folder for files."""

    folder: Path
    users: Authority
    ca: Path
    node: Path

    def server(
        self, *, crl: bytes = b"", node_ca: str = "", minimum: str = "1.2"
    ) -> ssl.SSLContext:
        lists = self.folder / "crl.pem"
        lists.write_bytes(crl)
        return server_context(
            str(self.node),
            str(self.node),
            str(self.ca),
            node_ca=node_ca,
            client_crl=str(lists) if crl else "",
            minimum=minimum,
        )

    def client(
        self, issued: Issued | None, *chain: x509.Certificate, version: str = "1.3"
    ) -> ssl.SSLContext:
        file = issued.write(self.folder / "client.pem", *chain) if issued else None
        context = client_context(self.ca, file, file)
        if version == "1.2":
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context

    def trust(self, node_ca: str = "") -> Trust:
        return load_trust(str(self.ca), node_ca, "")


@pytest.fixture
def world(tmp_path: Path) -> World:
    users = Authority("users")
    node = users.issue_node().write(tmp_path / "node.pem")
    return World(tmp_path, users, users.write(tmp_path / "ca.pem"), node)


def taken(found: PeerCertificate | CertificateProblem) -> PeerCertificate:
    assert isinstance(found, PeerCertificate), found
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_a_certificate_is_described_as_it_was_shown(world: World, version: str) -> None:
    names = [
        x509.DNSName("b.example"),
        x509.RFC822Name("b@example"),
        x509.UniformResourceIdentifier("urn:b"),
    ]
    issued = world.users.issue("billing", others=names)
    met = meet(world.server(), world.client(issued, version=version))
    assert met.client == issued.der
    found = taken(world.trust().describe(issued.der, wall_ms()))
    assert (found.common_names, found.dns_names) == (("billing",), ("b.example",))
    assert (found.emails, found.uris) == (("b@example",), ("urn:b",))
    assert (found.issuer, found.issuer_name) == ("CN=users", "users")
    assert found.serial == issued.certificate.serial_number
    assert found.not_after_ms == issued.certificate.not_valid_after_utc.timestamp() * 1_000
    assert found.fingerprint == hashlib.sha256(issued.der).digest()
    assert (found.is_for_clients, found.is_of_client_authority, found.is_of_node_authority) == (
        True,
        True,
        False,
    )


def test_one_without_a_certificate_is_let_through_the_handshake(world: World) -> None:
    met = meet(world.server(), world.client(None))
    assert (met.client, met.server_error, met.client_error) == (None, None, None)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("kind", "here", "there"),
    [
        ("expired", "it has expired", CertificateExpired),
        ("not yet valid", "not valid yet", CertificateNotYetValid),
        ("revoked", "it is revoked", CertificateRevoked),
        ("other authority", "does tls_client_ca hold", CertificateUntrusted),
        ("namesake", "does tls_client_ca hold", CertificateUntrusted),
        ("self-signed", "self-signed certificate", CertificateUntrusted),
        ("server only", "not made for clients", CertificateMisused),
    ],
)
def test_a_handshake_that_is_refused_is_told_apart_at_both_ends(
    world: World, version: str, kind: str, here: str, there: type[CertificateRefused]
) -> None:
    """A05, T18: seven kinds, each with its own words, in both versions of TLS."""
    revoked = world.users.issue("revoked")
    issued = {
        "expired": world.users.issue("expired", begin=-2 * DAY, end=-DAY),
        "not yet valid": world.users.issue("early", begin=DAY),
        "revoked": revoked,
        "other authority": Authority("others").issue("stranger"),
        "namesake": Authority("users").issue("stranger"),
        "self-signed": world.users.issue("self-signed", is_self_signed=True),
        "server only": world.users.issue("server", uses=(SERVER,)),
    }[kind]
    server = world.server(crl=world.users.revocations(revoked))
    met = meet(server, world.client(issued, version=version))
    assert met.client is None
    assert isinstance(met.server_error, ssl.SSLCertVerificationError)
    assert here in why_refused_here(met.server_error)
    refused = certificate_refused(
        alert_of(met.client_error), "", issued.write(world.folder / "it.pem")
    )
    assert (type(refused), refused.reason) == (there, there.code)
    # The same list lets everybody else in.
    assert meet(server, world.client(world.users.issue("good"), version=version)).client


@pytest.mark.parametrize(
    ("kind", "said"),
    [("old", "tls_client_crl is out of date"), ("of another", "has no revocation list of the")],
)
def test_a_revocation_list_that_says_nothing_any_more_refuses_and_is_named(
    world: World, kind: str, said: str
) -> None:
    lists = {"old": world.users.revocations(end=-DAY), "of another": Authority("x").revocations()}
    met = meet(world.server(crl=lists[kind]), world.client(world.users.issue("billing")))
    assert isinstance(met.server_error, ssl.SSLCertVerificationError)
    assert said in why_refused_here(met.server_error)


@pytest.mark.parametrize(
    ("issued", "said"),
    [
        (("a", "b"), "2 common names"),
        (("",), "names nobody"),
        ((), "names nobody"),
        (("a\0b",), "control character"),
        (("a\nb",), "newline"),
        (("a/b",), "has a / in it"),
        (("anonymous",), "is anonymous"),
    ],
)
@pytest.mark.filterwarnings("ignore:Attribute's length")
def test_what_is_no_name_is_refused_behind_the_handshake(
    world: World, issued: tuple[str, ...], said: str
) -> None:
    """A04: before a hello is read."""
    met = meet(world.server(), world.client(world.users.issue(*issued)))
    assert met.client is not None
    found = world.trust().describe(met.client, wall_ms())
    assert isinstance(found, CertificateProblem)
    assert said in found.text


def test_a_certificate_for_no_named_use_is_refused(world: World) -> None:
    """OpenSSL takes it for any use: who issued it did not think of clients."""
    met = meet(world.server(), world.client(world.users.issue("billing", uses=None)))
    assert met.client is not None
    found = world.trust().describe(met.client, wall_ms())
    assert isinstance(found, CertificateProblem)
    assert "clientAuth" in found.text


@pytest.mark.parametrize("encoded", [b"", b"\x30\x03\x02\x01\x01", bytes(500)])
def test_what_cannot_be_read_is_refused(world: World, encoded: bytes) -> None:
    found = world.trust().describe(encoded, wall_ms())
    assert found == CertificateProblem(
        "CERTIFICATE_OF_NOBODY", "it cannot be read: issue one with plain names"
    )


def test_every_damaged_byte_is_refused_or_described(world: World) -> None:
    """No other exception leaves: it would end the loop's turn, not the link."""
    der = world.users.issue("billing", others=[x509.DNSName("b.example")]).der
    trust = world.trust()
    for place in range(len(der)):
        damaged = der[:place] + bytes([der[place] ^ 0x81]) + der[place + 1 :]
        assert isinstance(trust.describe(damaged, wall_ms()), (PeerCertificate, CertificateProblem))


# --- nodes and users ------------------------------------------------------------------------------


def test_only_the_authority_of_the_nodes_makes_a_node(world: World) -> None:
    nodes = Authority("nodes")
    file = str(nodes.write(world.folder / "nodes.pem"))
    server, trust = world.server(node_ca=file), world.trust(file)
    of_node = meet(server, world.client(nodes.issue_node("node-2"))).client
    of_user = meet(server, world.client(world.users.issue("node-2"))).client
    assert of_node is not None
    assert of_user is not None
    node, user = (
        taken(trust.describe(of_node, wall_ms())),
        taken(trust.describe(of_user, wall_ms())),
    )
    assert (node.is_of_node_authority, node.is_of_client_authority) == (True, False)
    assert (user.is_of_node_authority, user.is_of_client_authority) == (False, True)


def test_an_intermediate_that_a_peer_sends_along_makes_neither_node_nor_user(world: World) -> None:
    nodes = Authority("nodes")
    file = str(nodes.write(world.folder / "nodes.pem"))
    below = Authority("below", above=nodes)
    issued = below.issue("alice", uses=(CLIENT, SERVER))
    met = meet(world.server(node_ca=file), world.client(issued, below.certificate))
    assert met.client is not None
    found = world.trust(file).describe(met.client, wall_ms())
    assert isinstance(found, CertificateProblem)
    assert "neither tls_client_ca nor tls_node_ca" in found.text
    # In the file it is what the file says, with or without the root above it.
    below.write(Path(file))
    met = meet(world.server(node_ca=file), world.client(issued))
    assert met.client is not None
    assert taken(world.trust(file).describe(met.client, wall_ms())).is_of_node_authority


def test_without_an_authority_of_the_nodes_a_chain_may_be_of_any_length(world: World) -> None:
    below = Authority("below", above=world.users)
    met = meet(world.server(), world.client(below.issue("billing"), below.certificate))
    assert met.client is not None
    assert taken(world.trust().describe(met.client, wall_ms())).is_of_client_authority


def test_a_client_takes_no_node_of_another_name_or_authority(world: World) -> None:
    met = meet(world.server(), world.client(None), host="localhost")
    assert isinstance(met.client_error, ssl.SSLCertVerificationError)
    assert "name the node in the address" in why_untrusted(met.client_error, world.ca)
    stranger = client_context(Authority("x").write(world.folder / "x.pem"), None, None)
    met = meet(world.server(), stranger)
    assert isinstance(met.client_error, ssl.SSLCertVerificationError)
    assert "the CA that signed it?" in why_untrusted(met.client_error, world.ca)


# --- later ----------------------------------------------------------------------------------------


def test_what_was_taken_is_judged_again_by_other_files(world: World) -> None:
    issued = world.users.issue("billing")
    found = taken(world.trust().describe(issued.der, wall_ms()))
    lists = world.folder / "crl.pem"
    lists.write_bytes(Authority("x").revocations(issued) + world.users.revocations())
    trust = load_trust(str(world.ca), "", str(lists))
    assert trust.problem_of(found, wall_ms()) == ""
    lists.write_bytes(Authority("x").revocations() + world.users.revocations(issued))
    trust = load_trust(str(world.ca), "", str(lists))
    assert trust.problem_of(found, wall_ms()) == "the certificate is revoked"
    assert world.trust().problem_of(found, found.not_after_ms) == "the certificate has expired"
    Authority("users").write(world.ca)
    assert "not trusted any more" in world.trust().problem_of(found, wall_ms())
    # The same key with a newer certificate is the same authority.
    Authority("users", key=world.users.key).write(world.ca)
    assert world.trust().problem_of(found, wall_ms()) == ""


def test_a_renewed_certificate_says_the_same_but_for_its_own_numbers(world: World) -> None:
    trust = world.trust()
    first, second = (
        taken(trust.describe(world.users.issue("billing").der, wall_ms())) for _ in range(2)
    )
    assert first.fingerprint != second.fingerprint
    same = {"serial": 0, "fingerprint": b"", "not_before_ms": 0, "not_after_ms": 0}
    assert msgspec.structs.replace(first, **same) == msgspec.structs.replace(second, **same)


# --- settings -------------------------------------------------------------------------------------


def test_the_oldest_version_is_a_setting(world: World) -> None:
    issued = world.users.issue("billing")
    assert meet(world.server(), world.client(issued, version="1.2")).client
    met = meet(world.server(minimum="1.3"), world.client(issued, version="1.2"))
    assert met.server_error is not None
    assert met.server_error.reason == "UNSUPPORTED_PROTOCOL"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b"", "it is not a PEM file"),
        (b"-----BEGIN X509 CRL-----\n", "is cut short"),
        (None, "there is no such file"),
    ],
)
def test_a_revocation_list_that_is_none_is_refused_by_name(
    world: World, written: bytes | None, said: str
) -> None:
    lists = world.folder / "lists.pem"
    if written is not None:
        lists.write_bytes(written)
    node = str(world.node)
    with pytest.raises(ConfigError, match=f"tls_client_crl: .*lists.pem.*{said}"):
        server_context(node, node, str(world.ca), client_crl=str(lists))
    lists.write_bytes(world.ca.read_bytes())
    with pytest.raises(ConfigError, match="there is no revocation list in it"):
        server_context(node, node, str(world.ca), client_crl=str(lists))
