"""The files of a node's TLS, while they are replaced: real files, real certificates, real links."""

import asyncio
import logging
import os
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from tests.net.authority import DAY, Authority, Issued, Met, meet
from tests.waiting import until

from moorline.core.access.certificate import PeerCertificate
from moorline.errors import ConfigError
from moorline.net.clock import wall_ms
from moorline.net.tls import client_context
from moorline.net.tls_files import TlsFiles, TlsPaths

LOOK_MS = 10
DAY_MS = 86_400_000


class Files:
    """A folder with all that a node may name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.users = Authority("users")
        self.users.write(folder / "ca.pem")
        self.crl(self.users.revocations())
        self.renew(self.users.issue_node())

    def renew(self, issued: Issued) -> Issued:
        """As `install` and most tools do it: the new file takes the name of the old one."""
        new = issued.write(self.folder / "node.new")
        new.replace(self.folder / "node.pem")
        return issued

    def crl(self, text: bytes) -> None:
        new = self.folder / "crl.new"
        new.write_bytes(text)
        new.replace(self.folder / "crl.pem")

    @property
    def paths(self) -> TlsPaths:
        node = str(self.folder / "node.pem")
        return TlsPaths(
            certificate=node,
            key=node,
            client_ca=str(self.folder / "ca.pem"),
            client_crl=str(self.folder / "crl.pem"),
        )

    async def meet(
        self, files: TlsFiles, authority: Authority, client: Issued | None = None
    ) -> Met:
        """A link of now, by a client that trusts the authority."""
        ca = authority.write(self.folder / "clients-ca.pem")
        own = client.write(self.folder / "client.pem") if client else None
        return await asyncio.to_thread(meet, files.context, client_context(ca, own, own))


@pytest.fixture
def made(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def test_a_renewed_certificate_is_shown_to_the_next_link(made: Files) -> None:
    seen: list[int] = []
    async with TlsFiles(made.paths, look_ms=LOOK_MS, changed=lambda: seen.append(1)) as files:
        first = await made.meet(files, made.users)
        renewed = made.renew(made.users.issue_node())
        await until(lambda: files.loads == 2)
        second = await made.meet(files, made.users)
        assert first.server is not None
        assert second.server == renewed.der != first.server
        assert seen == [1]
        assert files.problem() == ""


async def test_nothing_is_loaded_while_nothing_changes(made: Files) -> None:
    looks = 0

    def now_ms() -> int:
        nonlocal looks
        looks += 1
        return wall_ms()

    async with TlsFiles(made.paths, look_ms=1, now_ms=now_ms) as files:
        await until(lambda: looks > 10)
        assert files.loads == 1


async def test_a_new_authority_and_a_revocation_count_for_the_next_link(made: Files) -> None:
    others = Authority("others")
    stranger, user = others.issue("stranger"), made.users.issue("user")
    async with TlsFiles(made.paths, look_ms=LOOK_MS) as files:
        assert (await made.meet(files, made.users, stranger)).client is None
        met = await made.meet(files, made.users, user)
        assert met.client is not None
        described = files.trust.describe(met.client, wall_ms())
        assert isinstance(described, PeerCertificate)
        (made.folder / "ca.pem").write_bytes(made.users.pem + others.pem)
        made.crl(made.users.revocations(user) + others.revocations())
        await until(lambda: files.trust.problem_of(described, wall_ms()) != "")
        assert files.trust.problem_of(described, wall_ms()) == "the certificate is revoked"
        assert (await made.meet(files, made.users, user)).client is None
        await until(lambda: files.trust.clients is not None and len(files.trust.clients.keys) == 2)
        assert (await made.meet(files, made.users, stranger)).client == stranger.der


def damaged(made: Files, kind: str) -> None:
    node = made.folder / "node.pem"
    match kind:
        case "cut":
            node.write_bytes(node.read_bytes()[:-200])
        case "empty":
            node.write_bytes(b"")
        case "gone":
            node.unlink()
        case "other key":
            parts = made.users.issue_node().pem.partition(b"-----BEGIN CERTIFICATE-----")
            own = node.read_bytes().partition(b"-----BEGIN CERTIFICATE-----")
            node.write_bytes(own[0] + parts[1] + parts[2])
        case "folder":
            node.unlink()
            node.mkdir()
        case "authority":
            (made.folder / "ca.pem").write_bytes(b"-----BEGIN CERTIFICATE-----\nnone\n")
        case "list":
            (made.folder / "crl.pem").write_bytes(b"no list")


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        ("cut", "tls_certificate"),
        ("empty", "tls_certificate"),
        ("gone", "tls_certificate"),
        ("other key", "they do not belong together"),
        ("folder", "tls_certificate"),
        ("authority", "tls_client_ca"),
        ("list", "tls_client_crl"),
    ],
)
async def test_a_broken_file_keeps_the_old_one_and_is_a_problem_until_it_is_mended(
    made: Files, kind: str, setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = {file.name: file.read_bytes() for file in made.folder.iterdir()}
    async with TlsFiles(made.paths, look_ms=LOOK_MS) as files:
        before = await made.meet(files, made.users)
        damaged(made, kind)
        await until(lambda: files.problem() != "")
        assert setting in files.problem()
        assert "what was loaded before is still used" in files.problem()
        assert "TLS files are not taken" in caplog.messages
        assert (await made.meet(files, made.users)).server == before.server is not None
        if kind == "folder":
            (made.folder / "node.pem").rmdir()
        for name in ("node.pem", "ca.pem", "crl.pem"):
            (made.folder / "whole.pem").write_bytes(whole[name])
            (made.folder / "whole.pem").replace(made.folder / name)
        await until(lambda: files.problem() == "")
        if kind != "folder":  # which was gone for a moment, and that is another state
            # One line for one broken state, however often it was looked at.
            assert caplog.messages.count("TLS files are not taken") == 1
        assert (await made.meet(files, made.users)).server == before.server


async def test_a_broken_file_at_the_start_is_refused_by_name(made: Files) -> None:
    damaged(made, "list")
    with pytest.raises(ConfigError, match=r"tls_client_crl: .*it is not a PEM file"):
        async with TlsFiles(made.paths):
            raise AssertionError("it has nothing to begin with")


async def test_a_hangup_reads_the_files_at_once(made: Files) -> None:
    async with TlsFiles(made.paths, look_ms=600_000) as files:
        renewed = made.renew(made.users.issue_node())
        files.reload_soon()
        await until(lambda: files.loads == 2)
        assert (await made.meet(files, made.users)).server == renewed.der
        # Also where nothing changed: the operator asked for it.
        files.reload_soon()
        await until(lambda: files.loads == 3)


async def test_a_certificate_and_its_key_in_two_files_are_taken_together(
    made: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a folder behind a link that is turned, as certbot and Kubernetes do it: both change at once."""
    old, new = made.folder / "old", made.folder / "new"
    for folder in (old, new):
        folder.mkdir()
        key, mark, certificate = made.users.issue_node().pem.partition(
            b"-----BEGIN CERTIFICATE-----"
        )
        (folder / "key.pem").write_bytes(key)
        (folder / "certificate.pem").write_bytes(mark + certificate)
    now = made.folder / "now"
    now.symlink_to(old)
    paths = TlsPaths(certificate=str(now / "certificate.pem"), key=str(now / "key.pem"))
    async with TlsFiles(paths, look_ms=LOOK_MS) as files:
        (made.folder / "then").symlink_to(new)
        (made.folder / "then").replace(now)
        await until(lambda: files.loads == 2)
        met = await made.meet(files, made.users)
        encoded = (new / "certificate.pem").read_bytes()
        assert met.server is not None
        assert x509.load_der_x509_certificate(met.server) == x509.load_pem_x509_certificate(encoded)
        assert "TLS files are not taken" not in caplog.messages


@pytest.mark.parametrize(
    ("left", "later_ms", "said"),
    [
        (15 * DAY, 0, ""),
        (13 * DAY, 0, "the certificate of this node (tls_certificate: "),
        (15 * DAY, 2 * DAY_MS, " ends on "),
        (15 * DAY, 16 * DAY_MS, " ended on "),
    ],
)
async def test_the_end_of_the_own_certificate_is_told_two_weeks_ahead(
    made: Files, left: timedelta, later_ms: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    made.renew(made.users.issue_node(end=left))
    made.crl(made.users.revocations(end=50 * DAY))
    caplog.set_level(logging.WARNING)
    async with TlsFiles(made.paths, now_ms=lambda: wall_ms() + later_ms) as files:
        assert said in files.problem()
        assert bool(files.problem()) == bool(said)
        assert len([text for text in caplog.messages if "this node" in text]) == bool(said)


async def test_the_log_tells_of_an_end_once_a_day(
    made: Files, caplog: pytest.LogCaptureFixture
) -> None:
    made.renew(made.users.issue_node(end=10 * DAY))
    made.crl(made.users.revocations(end=50 * DAY))
    looks, start_ms, ahead_ms = 0, wall_ms(), 0

    def now_ms() -> int:
        nonlocal looks
        looks += 1
        return start_ms + ahead_ms

    async def look_again() -> None:
        seen = looks
        await until(lambda: looks > seen + 3)

    async with TlsFiles(made.paths, look_ms=1, now_ms=now_ms):
        await look_again()
        assert len(caplog.messages) == 1
        ahead_ms = DAY_MS - 1
        await look_again()
        assert len(caplog.messages) == 1
        ahead_ms = DAY_MS
        await look_again()
        assert len(caplog.messages) == 2


async def test_a_list_that_is_out_of_date_is_a_problem_by_its_name(made: Files) -> None:
    made.crl(made.users.revocations(end=-DAY))
    async with TlsFiles(made.paths) as files:
        assert "the revocation list of CN=users (tls_client_crl: " in files.problem()
        assert "put a newer one in its place" in files.problem()


async def test_a_file_that_is_written_over_in_place_is_seen(made: Files) -> None:
    """The same inode and the same length: only its time tells."""
    async with TlsFiles(made.paths, look_ms=LOOK_MS) as files:
        os.utime(made.folder / "ca.pem", ns=(1, 1))
        await until(lambda: files.loads == 2)
