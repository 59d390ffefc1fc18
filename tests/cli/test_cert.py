"""`moor cert`: the real command, and what it made in real handshakes."""

import json
import shutil
import ssl
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.net.authority import Authority, meet
from tests.process.nodes import clean_environment
from tests.process.warm import run_warm

from moorline.net.clock import wall_ms
from moorline.net.peer_certificate import load_trust
from moorline.net.tls import client_context, server_context, why_refused_here
from moorline.net.tls_files import TlsFiles, TlsPaths

pytestmark = pytest.mark.slow


def run(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    return run_warm(["cert", *map(str, arguments)], clean_environment(), timeout_s=60)


def cert(*arguments: str | Path) -> str:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr
    return done.stdout.decode()


def answer(*arguments: str | Path) -> Any:
    return json.loads(cert(*arguments, "--json"))


def refused(*arguments: str | Path, code: int = 3) -> str:
    done = run(*arguments)
    (line,) = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout) == (code, b""), line
    return line


class World:
    """An authority with a node and a client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "authority"
        self.of = f"--authority={self.folder}"

    def make(self) -> None:
        cert("authority", self.folder, "--name=ours")
        cert("node", "node-1", "--host=127.0.0.1", "--host=node-1.example", self.of)
        cert("client", "billing", "--email=billing@example.org", self.of)

    def file(self, name: str) -> Path:
        return self.folder / name

    def server(self) -> ssl.SSLContext:
        certificate, key, ca, crl = (
            str(self.file(name)) for name in ("node-1.pem", "node-1.key", "ca.pem", "crl.pem")
        )
        return server_context(certificate, key, ca, client_crl=crl)

    def client(self, name: str) -> ssl.SSLContext:
        return client_context(
            self.file("ca.pem"), self.file(f"{name}.pem"), self.file(f"{name}.key")
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Made once: three commands for each test would be most of the time of all of them."""
    world = World(tmp_path_factory.mktemp("made"))
    world.make()
    return world


@pytest.fixture
def world(made: World, tmp_path: Path) -> World:
    """A copy, with the modes of its files: each test changes its own."""
    world = World(tmp_path)
    shutil.copytree(made.folder, world.folder)
    return world


def test_what_is_made_is_taken_by_both_ends(world: World) -> None:
    met = meet(world.server(), world.client("billing"))
    assert (met.server_error, met.client_error) == (None, None)
    assert met.client is not None
    trust = load_trust(str(world.file("ca.pem")), "", "")
    found = trust.describe(met.client, wall_ms())
    assert getattr(found, "common_names", None) == ("billing",)
    # A node is a client of other nodes too; and it is verified by its name.
    assert meet(world.server(), world.client("node-1")).client is not None
    assert meet(world.server(), world.client("billing"), host="node-1.example").client_error is None
    other = meet(world.server(), world.client("billing"), host="node-2.example")
    assert isinstance(other.client_error, ssl.SSLCertVerificationError)


def test_keys_are_for_their_owner_alone(world: World) -> None:
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in world.folder.iterdir()}
    assert {name for name, mode in modes.items() if mode == 0o600} == {
        "ca.key",
        "node-1.key",
        "billing.key",
    }
    assert stat.S_IMODE(world.folder.stat().st_mode) == 0o700


def test_a_certificate_is_revoked_once_and_for_all(world: World) -> None:
    cert("client", "other", world.of)
    assert "1 certificate revoked" in cert("revoke", world.file("billing.pem"), world.of, "--yes")
    met = meet(world.server(), world.client("billing"))
    assert isinstance(met.server_error, ssl.SSLCertVerificationError)
    assert "it is revoked" in why_refused_here(met.server_error)
    assert meet(world.server(), world.client("other")).client is not None
    # Again, with another one, and renewed without any.
    twice = (world.file("billing.pem"), world.file("other.pem"))
    assert answer("revoke", *twice, world.of, "--yes") == {
        "list": str(world.file("crl.pem")),
        "revoked": 2,
    }
    assert answer("revoke", world.of, "--days=7")["revoked"] == 2
    assert meet(world.server(), world.client("other")).client is None


def test_two_that_revoke_at_once_lose_nothing(world: World) -> None:
    names = [f"client-{number}" for number in range(6)]
    for name in names:
        cert("client", name, world.of)
    with ThreadPoolExecutor(len(names)) as threads:
        done = threads.map(
            lambda name: run("revoke", world.file(f"{name}.pem"), world.of, "--yes"), names
        )
        assert [one.returncode for one in done] == [0] * len(names)
    assert answer("revoke", world.of)["revoked"] == len(names)


async def test_a_node_reads_the_list_again(world: World) -> None:
    paths = TlsPaths(
        certificate=str(world.file("node-1.pem")),
        key=str(world.file("node-1.key")),
        client_ca=str(world.file("ca.pem")),
        client_crl=str(world.file("crl.pem")),
    )
    async with TlsFiles(paths) as files:
        assert files.problem() == ""
        assert meet(files.context, world.client("billing")).client is not None
        cert("revoke", world.file("billing.pem"), world.of, "--yes")
        assert await files.reload() == ""
        assert meet(files.context, world.client("billing")).client is None


def test_nothing_is_written_over(world: World) -> None:
    before = {file.name: file.read_bytes() for file in world.folder.iterdir()}
    for arguments in (
        ("authority", world.folder),
        ("node", "node-1", "--host=x", world.of),
        ("client", "billing", world.of),
        ("client", "ca", world.of),
    ):
        assert "is there already, and is not written over" in refused(*arguments)
    world.file("billing.pem").rename(world.file("moved.pem"))
    assert "billing.key' is there already" in refused("client", "billing", world.of)
    assert not world.file("billing.pem").exists()
    world.file("moved.pem").rename(world.file("billing.pem"))
    assert before == {file.name: file.read_bytes() for file in world.folder.iterdir()}


def test_a_certificate_may_be_written_elsewhere(world: World, tmp_path: Path) -> None:
    made = answer("client", "reports", world.of, f"--out={tmp_path}", "--days=10")
    assert made["certificate"] == str(tmp_path / "reports.pem")
    assert (tmp_path / "reports.key").exists()
    assert "no folder" in refused("client", "x", world.of, f"--out={tmp_path / 'none'}")


def test_show_says_who_it_proves(world: World) -> None:
    (row,) = answer("show", world.file("billing.pem"))
    assert (row["subject"], row["principal"], row["refused"]) == ("CN=billing", "billing", "")
    assert (row["names"], row["issuer"]) == (["billing@example.org"], "CN=ours")
    assert row["uses"] == ["client"]
    assert len(row["fingerprint"]) == 64
    text = cert("show", world.file("node-1.pem"))
    assert "node-1.example, 127.0.0.1" in text
    assert "server, client" in text


def test_show_says_why_a_node_would_refuse_it(world: World, tmp_path: Path) -> None:
    (row,) = answer("show", world.file("ca.pem"))
    assert (row["principal"], "clientAuth" in row["refused"]) == (None, True)
    users = Authority("users")
    chain = users.issue("a", "b").write(tmp_path / "two.pem", users.certificate)
    first, second = answer("show", chain)
    assert "2 common names" in first["refused"]
    assert second["subject"] == "CN=users"
    hostile = users.issue("red\x1b[31m\nalert").write(tmp_path / "hostile.pem")
    assert "\x1b" not in cert("show", hostile)


@pytest.mark.parametrize(
    "name", ["a/b", "anonymous", "Anonymous", "", ".hidden", "@everyone", "$node", "a\nb", "x" * 65]
)
def test_a_name_that_could_be_nobodys_is_not_issued(world: World, name: str) -> None:
    before = set(world.folder.iterdir())
    assert refused("client", world.of, "--", name).startswith("moor: NAME: ")
    assert set(world.folder.iterdir()) == before


def test_what_cannot_be_done_is_refused_by_name(world: World, tmp_path: Path) -> None:
    none = f"--authority={tmp_path / 'none'}"
    assert "`moor cert authority` makes one" in refused("client", "x", none)
    assert "--days: the authority itself ends on" in refused("client", "x", world.of, "--days=9999")
    assert "--host: " in refused("node", "x", "--host=bücher", world.of)
    assert "there is no certificate in it" in refused("show", world.file("ca.key"))
    assert "there is no such file" in refused("revoke", tmp_path / "none", world.of, "--yes")
    stranger = Authority("ours").issue("x").write(tmp_path / "stranger.pem")
    assert "another authority issued it" in refused("revoke", stranger, world.of, "--yes")
    assert "--host" in refused("node", "x", world.of, code=2)
    (tmp_path / "file").write_text("")
    assert "cannot be made" in refused("authority", tmp_path / "file" / "below")


def test_a_damaged_list_or_key_is_not_made_anew(world: World) -> None:
    damaged = b"-----BEGIN X509 CRL-----\nnone\n-----END X509 CRL-----\n"
    world.file("crl.pem").write_bytes(damaged)
    assert "it is damaged" in refused("revoke", world.file("billing.pem"), world.of, "--yes")
    assert world.file("crl.pem").read_bytes() == damaged
    world.file("ca.key").write_bytes(world.file("billing.key").read_bytes())
    assert "is not the key of" in refused("client", "x", world.of)


@pytest.mark.parametrize("command", ["authority", "node", "client", "revoke", "show"])
def test_the_help_of_a_command_ends_with_an_example(command: str) -> None:
    lines = [line for line in cert(command, "--help").splitlines() if line.strip()]
    assert f"Example: moor cert {command}" in lines[-1]
