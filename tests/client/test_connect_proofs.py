"""Whom a node takes a client for: by a file, by an object, by a certificate; and what a refusal is called."""

import pickle
import ssl
from pathlib import Path

import pytest
from tests.client.proving_node import PASSWORD, TOKEN, WRONG, ProvingNode, secret_file
from tests.net.authority import DAY, Authority, Issued

import moorline
from moorline.client.credentials import ClientProof, PrivateCredentials
from moorline.errors import (
    CertificateExpired,
    CertificateRefused,
    CertificateRevoked,
    CertificateUntrusted,
    ConfigError,
    Refused,
)
from moorline.net.tls import server_context

USERS = Authority("users")
REVOKED = USERS.issue("revoked")


async def echoed(address: str, proof: ClientProof) -> bytes:
    async with moorline.connect(
        address,
        user=proof.user,
        password_file=proof.password_file,
        token_file=proof.token_file,
        credentials=proof.credentials,
    ) as moor:
        return await moor.echo(b"ahoy")


async def test_a_file_or_an_object_says_who_we_are(tmp_path: Path) -> None:
    password = secret_file(tmp_path / "password", PASSWORD)
    token = secret_file(tmp_path / "token", TOKEN)
    node = ProvingNode("password", "token")
    proofs = [
        ClientProof("alice", password),
        ClientProof(token_file=token),
        ClientProof(credentials=moorline.PasswordCredentials("alice", PASSWORD)),
        ClientProof(credentials=moorline.TokenCredentials(TOKEN)),
    ]
    async with node.open() as address:
        for proof in proofs:
            assert await echoed(address, proof) == b"ahoy"
    assert node.entered == ["alice", "spark", "alice", "spark"]


async def test_a_file_is_read_for_each_connection(tmp_path: Path) -> None:
    token = secret_file(tmp_path / "token", "moor_old")
    node = ProvingNode("token")
    async with node.open() as address:
        connecting = moorline.connect(address, token_file=token)
        with pytest.raises(Refused):
            await connecting
        secret_file(token, TOKEN)
        async with connecting as moor:
            assert await moor.echo(b"ahoy") == b"ahoy"
    assert node.entered == ["spark"]


@pytest.mark.parametrize(
    "credentials",
    [moorline.PasswordCredentials("alice", "guessed"), moorline.TokenCredentials("moor_guessed")],
)
async def test_a_proof_that_is_refused_is_called_so(credentials: PrivateCredentials) -> None:
    async with ProvingNode("password", "token").open() as address:
        with pytest.raises(Refused, match=WRONG) as refused:
            await moorline.connect(address, credentials=credentials)
    assert refused.value.reason == "AUTH"
    assert "guessed" not in f"{refused.value!r}"


async def test_a_mechanism_that_is_not_taken_is_named_with_those_that_are() -> None:
    async with ProvingNode("password").open() as address:
        with pytest.raises(Refused, match="password") as refused:
            await moorline.connect(address, credentials=moorline.TokenCredentials(TOKEN))
    assert refused.value.reason == "AUTH"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"user": "alice"}, "user 'alice': give its password_file too"),
        ({"password_file": Path("p")}, "password_file: whose password is it"),
        ({"user": "alice", "token_file": Path("t")}, "user and token_file: give one proof"),
        (
            {"user": "a", "password_file": Path("p"), "token_file": Path("t")},
            "user and password_file and token_file: give one proof",
        ),
        (
            {"token_file": Path("t"), "credentials": moorline.TokenCredentials(TOKEN)},
            "token_file and credentials: give one proof",
        ),
    ],
)
def test_proofs_that_do_not_go_together_are_refused_by_name(
    given: dict[str, str | Path], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        moorline.connect("tcp://127.0.0.1:1", **given)  # type: ignore[arg-type]


async def test_nothing_is_said_aloud(tmp_path: Path) -> None:
    """Refused before anything is sent: nobody listens there, and that is not what is told."""
    token = secret_file(tmp_path / "token", TOKEN)
    with pytest.raises(ConfigError, match="a token would be sent for everybody between to read"):
        await moorline.connect("tcp://192.0.2.1:7411", token_file=token)


def test_a_proof_shows_names_and_no_secret(tmp_path: Path) -> None:
    proof = ClientProof("alice", secret_file(tmp_path / "password", PASSWORD))
    assert PASSWORD not in repr(proof)
    assert PASSWORD.encode() not in pickle.dumps(proof)


@pytest.mark.parametrize(
    ("issued", "said", "kind"),
    [
        (REVOKED, "it is revoked: ask for another one", CertificateRevoked),
        (USERS.issue("late", begin=-2 * DAY, end=-DAY), "it has expired", CertificateExpired),
        (
            Authority("others").issue("stranger"),
            "the node does not know the authority",
            CertificateUntrusted,
        ),
    ],
)
@pytest.mark.parametrize("version", ["1.2", "1.3"])
async def test_a_certificate_that_the_node_refuses_is_not_an_unreachable_node(
    tmp_path: Path, issued: Issued, said: str, kind: type[CertificateRefused], version: str
) -> None:
    ca, crl = USERS.write(tmp_path / "ca.pem"), tmp_path / "crl.pem"
    crl.write_bytes(USERS.revocations(REVOKED))
    node = str(USERS.issue_node().write(tmp_path / "node.pem"))
    shown = issued.write(tmp_path / "client.pem")
    tls = server_context(node, node, str(ca), client_crl=str(crl))
    if version == "1.2":
        tls.maximum_version = ssl.TLSVersion.TLSv1_2
    async with ProvingNode("certificate").open(tls) as address:
        with pytest.raises(kind, match=said) as refused:
            await moorline.connect(address, ca=ca, certificate=shown, key=shown)
    assert refused.value.reason == kind.code
    assert refused.value.text.startswith(f"{address}: {shown}: the node refused our certificate")
