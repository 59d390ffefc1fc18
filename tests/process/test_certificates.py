"""Certificates of every kind at a real node: whom they prove, why they are refused, and when they end."""

import asyncio
import ipaddress
import re
import signal
import socket
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from tests.net.authority import CLIENT, DAY, SERVER, Authority, Issued
from tests.process.nodes import NodeProcess
from tests.process.proving import audited, over, proven, who
from tests.waiting import until

import moorline
from moorline.client.connecting import Connecting
from moorline.errors import (
    CertificateExpired,
    CertificateMisused,
    CertificateNotYetValid,
    CertificateRefused,
    CertificateRevoked,
    CertificateUntrusted,
    Denied,
    Refused,
)
from moorline.net.clock import wall_ms

pytestmark = pytest.mark.process

USERS, PARTNERS = Authority("users"), Authority("partners")
REVOKED, LATER = USERS.issue("revoked"), USERS.issue("later")


def elsewhere() -> str:
    """An address of this machine that is not loopback's; empty if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))  # of documents alone, and nothing is sent
        except OSError:
            return ""
        found = str(one.getsockname()[0])
    return "" if ipaddress.ip_address(found).is_loopback else found


ELSEWHERE = elsewhere()


class Taken:
    """The node, its files, and those who show it certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca, self.crl = folder / "ca.pem", folder / "crl.pem"
        self.ca.write_bytes(USERS.pem + PARTNERS.pem)
        self.revoke(REVOKED)
        hosts = ["127.0.0.1", *filter(None, [ELSEWHERE])]
        names = [x509.IPAddress(ipaddress.ip_address(host)) for host in hosts]
        shown = USERS.issue("node-1", uses=(SERVER, CLIENT), others=names).write(folder / "n.pem")
        self.node = NodeProcess(
            folder / "data",
            *(f"--listen=tls://{host}:0" for host in hosts),
            f"--tls-certificate={shown}",
            f"--tls-key={shown}",
            f"--tls-client-ca={self.ca}",
            f"--set=tls_client_crl={self.crl}",
            "--set=access.certificates=san:dns:*.partners.example=partner-{},cn:*={}",
            "--set=streams.shards=2",
            "--set=streams.sync=process",
            "--set=queues.sync=process",
        )

    def revoke(self, *revoked: Issued) -> None:
        self.crl.write_bytes(USERS.revocations(*revoked) + PARTNERS.revocations())

    def file_of(self, issued: Issued) -> Path:
        return issued.write(self.folder / f"{issued.certificate.serial_number}.pem")

    def address(self, host: str = "127.0.0.1") -> str:
        return self.node._found(rf"(tls://{re.escape(host)}:\d+)")

    def shows(self, issued: Issued) -> Connecting:
        file = self.file_of(issued)
        return moorline.connect(
            self.address(), ca=self.ca, certificate=file, key=file, reconnect=False
        )

    def refusals(self) -> int:
        with urllib.request.urlopen(f"{self.node.http}/metrics", timeout=5) as answer:
            found = re.search(r"^moorline_logins_refused_total (\d+)", answer.read().decode(), re.M)
        assert found is not None
        return int(found[1])


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taken]:
    taken = Taken(tmp_path_factory.mktemp("certificates"))
    with taken.node:
        yield taken
        assert "Traceback" not in taken.node.errors


@pytest.mark.skipif(not ELSEWHERE, reason="this machine has no address but loopback's")
async def test_anonymous_from_another_address_is_refused_and_a_proof_is_taken(taken: Taken) -> None:
    """A01: on another address it is refused unless configured, and the trail says from where it came."""
    with pytest.raises(Refused, match="AUTH: anonymous clients are not taken from here"):
        async with proven(taken.address(ELSEWHERE), ca=taken.ca) as caller:
            await who(caller)
    shown = taken.file_of(USERS.issue("billing"))
    async with proven(taken.address(ELSEWHERE), ca=taken.ca, certificate=shown) as caller:
        assert (await who(caller)).groups == ("@authenticated", "@everyone")
    await until(
        lambda: any(
            (line["verdict"], line["proof"]) == ("denied", "nothing")
            and line["address"].startswith(ELSEWHERE)
            for line in audited(taken.node)
        )
    )


async def test_without_its_row_anonymous_of_this_machine_is_no_operator(taken: Taken) -> None:
    """A01: over TCP and over TLS alike; whoever has a row of its own goes on, and gives it back."""
    async with moorline.connect(taken.node.address, reconnect=False) as moor:
        await moor.access.add_grant("/", "admin", "slwpdag")
    async with taken.shows(USERS.issue("admin")) as admin:
        await admin.access.remove_grant("/", "@loopback")
        try:
            for address, ca in ((taken.node.address, None), (taken.address(), taken.ca)):
                async with moorline.connect(address, ca=ca, reconnect=False) as moor:
                    assert (await moor.access.who_am_i()).groups == ("@everyone", "@loopback")
                    for refused in (moor.confirm_clock(), moor.access.grants(), moor.topics("#")):
                        with pytest.raises(Denied):
                            await refused
            assert await admin.confirm_clock()
        finally:
            await admin.access.add_grant("/", "@loopback", "slwpdag")
    await until(
        lambda: any(
            (line["principal"], line["act"], line["verdict"])
            == ("anonymous", "ConfirmClock", "denied")
            for line in audited(taken.node)
        )
    )


async def test_a_renewed_certificate_has_all_of_the_old_ones_and_a_namesake_nothing(
    taken: Taken,
) -> None:
    """A02, A03: queue, session and group are the principal's, and not the common name's."""
    group = "$shared/billing/billing/#"
    async with taken.shows(USERS.issue("billing")) as first:
        queue = await first.create_queue()
        await first.send(queue.id, b"kept")
        await first.session("ledger")
        await first.subscribe("billing/#")
        await first.group(group).create()
    partner = PARTNERS.issue("billing", others=[x509.DNSName("billing.partners.example")])
    async with taken.shows(partner) as namesake:
        assert (await namesake.access.who_am_i()).principal == "partner-billing"
        for refused in (
            namesake.queue(queue.id).get(),
            namesake.session("ledger"),
            namesake.group(group).delete(),
            namesake.publish("billing/news", b"forged"),
        ):
            with pytest.raises(Denied):
                await refused
    async with taken.shows(USERS.issue("billing")) as renewed:
        message = await renewed.queue(queue.id).get()
        assert message is not None
        assert message.body == b"kept"
        (subscription,) = await renewed.session("ledger")
        await renewed.publish("billing/news", b"news")
        found = await subscription.get(30)
        assert found is not None
        assert found.body == b"news"
        await renewed.group(group).seek("beginning")
    acts = {"Get", "OpenSession", "DeleteGroup", "Publish"}
    await until(
        lambda: (
            acts
            <= {
                line["act"]
                for line in audited(taken.node)
                if (line["principal"], line["verdict"]) == ("partner-billing", "denied")
            }
        )
    )


def forged(name: str) -> Issued:
    """One whose name was changed behind the signature."""
    other = USERS.issue("x" * len(name))
    changed = other.der.replace(b"x" * len(name), name.encode())
    return Issued(x509.load_der_x509_certificate(changed), other.key)


REFUSED: dict[str, tuple[Issued, type[CertificateRefused]]] = {
    "expired": (USERS.issue("alice", begin=-2 * DAY, end=-DAY), CertificateExpired),
    "not yet valid": (USERS.issue("alice", begin=DAY), CertificateNotYetValid),
    "revoked": (REVOKED, CertificateRevoked),
    "of another authority": (Authority("others").issue("alice"), CertificateUntrusted),
    "of an authority of the same name": (Authority("users").issue("alice"), CertificateUntrusted),
    "forged": (forged("alice"), CertificateUntrusted),
    "self-signed": (USERS.issue("alice", is_self_signed=True), CertificateUntrusted),
    "for servers only": (USERS.issue("alice", uses=(SERVER,)), CertificateMisused),
}


async def test_what_is_no_proof_is_refused_and_each_cause_is_an_error_of_its_own(
    taken: Taken,
) -> None:
    """A05, T18: never that the node could not be reached; and the trail hears of each."""
    before = await asyncio.to_thread(taken.refusals)
    for name, (issued, kind) in REFUSED.items():
        with pytest.raises(CertificateRefused) as refused:
            async with taken.shows(issued) as moor:
                await moor.echo(b"let me in")
        assert type(refused.value) is kind, f"{name}: {refused.value}"
    assert await asyncio.to_thread(taken.refusals) == before + len(REFUSED)
    await until(
        lambda: any(
            (line["kind"], line["proof"], line["verdict"]) == ("login", "certificate", "denied")
            for line in audited(taken.node)
        )
    )
    # And nobody else is kept out.
    async with taken.shows(USERS.issue("alice")) as alice:
        assert await alice.echo(b"in") == b"in"


async def test_a_proof_that_ends_ends_its_session(taken: Taken) -> None:
    """A05, A07: at the certificate's time, or when a list revokes it; one that is renewed stays."""
    ending = USERS.issue("brief", end=timedelta(seconds=3))
    end_ms = ending.certificate.not_valid_after_utc.timestamp() * 1_000
    address, ca = taken.address(), taken.ca
    async with (
        proven(address, ca=ca, certificate=taken.file_of(ending)) as brief,
        proven(address, ca=ca, certificate=taken.file_of(LATER)) as later,
        proven(address, ca=ca, certificate=taken.file_of(USERS.issue("later"))) as renewed,
    ):
        assert (await who(later)).principal == (await who(renewed)).principal == "later"
        taken.revoke(REVOKED, LATER)
        taken.node.signal(signal.SIGHUP)
        assert "EXPIRED: the certificate is revoked" in await over(later)
        assert "EXPIRED: your proof has expired" in await over(brief)
        assert wall_ms() >= end_ms
        assert (await who(renewed)).principal == "later"
