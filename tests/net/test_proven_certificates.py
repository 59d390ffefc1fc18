"""Certificates as proofs, over real sockets: whom they prove, who is refused, and when that ends."""

import contextlib
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.net.authority import CLIENT, DAY, SERVER, Authority, Issued
from tests.waiting import until

from moorline.client.connecting import Connecting, connect
from moorline.config.addresses import Address
from moorline.core.access.principal import CertificateRules, Proof
from moorline.errors import (
    CertificateExpired,
    CertificateMisused,
    CertificateNotYetValid,
    CertificateOfNobody,
    CertificateRefused,
    CertificateRevoked,
    CertificateUntrusted,
    Expired,
)
from moorline.net.clock import wall_ms
from moorline.net.listener import Admission, Listeners, LoginRefused
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.net.tls_files import TlsFiles, TlsPaths
from moorline.wire.link import Welcome
from moorline.wire.node import Echo, Echoed

USERS, NODES = Authority("users"), Authority("nodes")


class World:
    """A listener with files that can be replaced."""

    def __init__(self, folder: Path, *, has_node_authority: bool = False) -> None:
        self.folder = folder
        self.refused: list[LoginRefused] = []
        self.node = NODES.issue_node() if has_node_authority else USERS.issue_node()
        node = str(self.node.write(folder / "node.pem"))
        self.ca = USERS.write(folder / "users.pem")
        self.crl = folder / "crl.pem"
        self.crl.write_bytes(USERS.revocations() + NODES.revocations())
        paths = TlsPaths(
            certificate=node,
            key=node,
            client_ca=str(self.ca),
            node_ca=str(NODES.write(folder / "nodes.pem")) if has_node_authority else "",
            client_crl=str(self.crl),
        )
        self._trusted = (NODES if has_node_authority else USERS).write(folder / "trusted.pem")
        self.files = TlsFiles(paths, changed=self._judge_again)
        self.listeners = Listeners(
            Admission("everywhere", 10, 30_000, 600_000),
            refused=self.refused.append,
        )
        self.address = ""

    def use(self, *rules: str) -> None:
        self.listeners._rules = CertificateRules.parsed(rules)

    def _judge_again(self) -> None:
        self.listeners.judge_again(self.files.trust)

    def connect(self, shown: Issued) -> Connecting:
        self._shown = shown.write(self.folder / f"{shown.certificate.serial_number}.pem")
        # One connection: what ends it is to be seen, and not what the next one meets.
        return connect(
            self.address,
            ca=self._trusted,
            certificate=self._shown,
            key=self._shown,
            reconnect=False,
        )

    @property
    def session(self) -> Session:
        (session,) = self.listeners.sessions
        return session


@contextlib.asynccontextmanager
async def serving(world: World) -> AsyncIterator[World]:
    def echo(_: Session, calls: list[Echo]) -> list[Echoed]:
        return [Echoed(call.call, call.body) for call in calls]

    protocol = NativeProtocol(
        {Echo: echo}, lambda version, keepalive_ms: Welcome(version, "n", keepalive_ms=keepalive_ms)
    )
    async with world.files as files:
        (address,) = await world.listeners.open(Address("tls", "127.0.0.1", 0), files, protocol)
        world.address = str(address)
        try:
            yield world
        finally:
            await world.listeners.close()


async def test_a_certificate_proves_its_common_name_and_says_until_when(tmp_path: Path) -> None:
    async with serving(World(tmp_path)) as world, world.connect(USERS.issue("billing")) as moor:
        await moor.echo(b"in")
        found = world.session.identity
        assert (found.principal, found.proof) == ("billing", Proof.CERTIFICATE)
        assert found.expires_ms is not None
        assert abs(found.expires_ms - wall_ms() - 90 * 86_400_000) < 3_600_000


async def test_a02_a_renewed_certificate_is_the_same_principal(tmp_path: Path) -> None:
    """A02: its fingerprint is another one."""
    async with serving(World(tmp_path)) as world:
        found = []
        for _ in range(2):
            async with world.connect(USERS.issue("billing")) as moor:
                await moor.echo(b"in")
                found.append(world.session.identity)
            await until(lambda: not world.listeners.sessions)
        assert found[0].fingerprint != found[1].fingerprint
        assert found[0].principal == found[1].principal == "billing"


async def test_a03_a_certificate_under_another_rule_is_another_principal(tmp_path: Path) -> None:
    """A03: and none where no rule matches."""
    async with serving(World(tmp_path)) as world:
        world.use("issuer:users=from users", "cn:*={}")
        async with world.connect(USERS.issue("billing")) as moor:
            await moor.echo(b"in")
            assert world.session.identity.principal == "from users"
        await until(lambda: not world.listeners.sessions)
        world.use("cn:bill*=b/{}")
        async with world.connect(USERS.issue("billing")) as moor:
            await moor.echo(b"in")
            assert world.session.identity.principal == "b/ing"
        with pytest.raises(
            CertificateOfNobody,
            match=r"no rule of access\.certificates matches",
        ):
            await world.connect(USERS.issue("alice"))


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (USERS.issue("a", "b"), "it has 2 common names"),
        (USERS.issue(""), "it names nobody"),
        (USERS.issue("anonymous"), "which nobody can prove to be"),
        (USERS.issue("a\0b"), "a control character"),
        (USERS.issue("a\nb"), "a control character"),
        (USERS.issue("a/b"), "has a / in it"),
        (USERS.issue("$node/a".replace("/", "")), "begins with \\$, which is reserved"),
        (USERS.issue("alice", uses=None), "not made for clients"),
    ],
)
async def test_a04_a_certificate_that_could_be_nobodys_is_refused_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, shown: Issued, text: str
) -> None:
    """A04: both ends hear the reason."""
    caplog.set_level(logging.WARNING)
    async with serving(World(tmp_path)) as world:
        with pytest.raises(CertificateRefused, match=f"refused your certificate: .*{text}") as met:
            await world.connect(shown)
        is_of_nobody = "not made for" not in text
        assert type(met.value) is (CertificateOfNobody if is_of_nobody else CertificateMisused)
        assert "a client's certificate is refused" in caplog.text
        (told,) = world.refused
        assert (told.address, told.mechanism) == ("127.0.0.1", "certificate")
        await until(lambda: not world.listeners.sessions)


REVOKED = USERS.issue("alice")


@pytest.mark.parametrize(
    ("shown", "kind"),
    [
        (USERS.issue("alice", end=-timedelta(hours=1)), CertificateExpired),
        (USERS.issue("alice", begin=timedelta(hours=1)), CertificateNotYetValid),
        (USERS.issue("alice", uses=(SERVER,)), CertificateMisused),
        (USERS.issue("alice", is_self_signed=True), CertificateUntrusted),
        (NODES.issue("alice"), CertificateUntrusted),
        (REVOKED, CertificateRevoked),
    ],
)
async def test_t18_each_cause_of_a_refused_certificate_is_an_error_of_its_own(
    tmp_path: Path, shown: Issued, kind: type[CertificateRefused]
) -> None:
    """A05, T18: and the node is told of each, for its trail."""
    async with serving(World(tmp_path)) as world:
        world.crl.write_bytes(USERS.revocations(REVOKED))
        assert await world.files.reload() == ""
        with pytest.raises(CertificateRefused) as met:
            async with world.connect(shown) as moor:
                await moor.echo(b"let me in")
        assert (type(met.value), met.value.reason) == (kind, kind.code)
        await until(lambda: len(world.refused) == 1)
        assert world.refused[0].mechanism == "certificate"


@pytest.mark.slow
async def test_a05_a_certificate_that_expires_ends_the_session_at_that_time(tmp_path: Path) -> None:
    """A05: and not before."""
    shown = USERS.issue("alice", end=timedelta(seconds=8))
    end_ms = shown.certificate.not_valid_after_utc.timestamp() * 1_000
    async with serving(World(tmp_path)) as world, world.connect(shown) as moor:
        await moor.echo(b"in")
        await until(lambda: not world.listeners.sessions)
        assert wall_ms() >= end_ms
        with pytest.raises(Expired, match="EXPIRED: your proof has expired"):
            await moor.echo(b"still")


async def test_a05_a_revoked_certificate_ends_its_session_at_the_reload_and_no_other(
    tmp_path: Path,
) -> None:
    """A05: a list that is read again counts for links that are open."""
    bad, good = USERS.issue("mallory"), USERS.issue("alice")
    async with serving(World(tmp_path)) as world, world.connect(good) as stays:
        async with world.connect(bad) as moor:
            await moor.echo(b"in")
            world.crl.write_bytes(USERS.revocations(bad))
            assert await world.files.reload() == ""
            with pytest.raises(Expired, match="EXPIRED: the certificate is revoked"):
                await moor.echo(b"still")
        assert await stays.echo(b"here") == b"here"


async def test_a07_an_authority_that_left_takes_its_sessions_along(tmp_path: Path) -> None:
    """A07: their proof has ended."""
    async with serving(World(tmp_path)) as world, world.connect(USERS.issue("alice")) as moor:
        await moor.echo(b"in")
        Authority("others").write(world.ca)
        assert await world.files.reload() == ""
        with pytest.raises(Expired, match=r"EXPIRED: .*not trusted any more"):
            await moor.echo(b"still")


async def test_a07_new_links_get_the_new_certificate_and_a_broken_file_changes_nothing(
    tmp_path: Path,
) -> None:
    """A07: and the old link stays."""
    async with serving(World(tmp_path)) as world, world.connect(USERS.issue("alice")) as old:
        node = tmp_path / "node.pem"
        others = Authority("others")
        others.issue_node("renewed").write(node)
        assert await world.files.reload() == ""
        others.write(tmp_path / "trusted.pem")
        async with world.connect(USERS.issue("bob")) as new:
            assert await new.echo(b"new") == b"new"
        node.write_text("broken")
        assert "tls_certificate" in await world.files.reload()
        async with world.connect(USERS.issue("carol")) as new:
            assert await new.echo(b"the one before") == b"the one before"
        assert await old.echo(b"old") == b"old"


async def test_a_certificate_of_the_nodes_authority_proves_no_user(tmp_path: Path) -> None:
    async with serving(World(tmp_path, has_node_authority=True)) as world:
        with pytest.raises(CertificateUntrusted, match=r"of the nodes' authority"):
            await world.connect(NODES.issue("alice", uses=(CLIENT,), end=DAY))
