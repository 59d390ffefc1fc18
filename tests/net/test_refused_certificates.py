"""A listener that refuses a certificate says why, in its log, on either loop; and goes on."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from tests.net.authority import DAY, Authority, Issued

from moorline.client.connecting import connect
from moorline.config.addresses import Address
from moorline.errors import (
    CertificateExpired,
    CertificateRefused,
    CertificateRevoked,
    CertificateUntrusted,
)
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.tls import server_context
from moorline.wire.link import Welcome
from moorline.wire.node import Echo, Echoed

USERS = Authority("users")
REVOKED = USERS.issue("revoked")
LATE = USERS.issue("late", begin=-2 * DAY, end=-DAY)
STRANGER = Authority("others").issue("stranger")


def welcome(version: int, keepalive_ms: int) -> Welcome:
    return Welcome(version, "n", keepalive_ms=keepalive_ms)


@pytest.mark.parametrize(
    ("issued", "crl_end", "said", "kind"),
    [
        (REVOKED, DAY, "it is revoked, by a list in tls_client_crl", CertificateRevoked),
        (LATE, DAY, "it has expired", CertificateExpired),
        (STRANGER, DAY, "does tls_client_ca hold the authority", CertificateUntrusted),
        # Its own times are right: so it is not the certificate that has ended.
        (USERS.issue("billing"), -DAY, "tls_client_crl is out of date", CertificateRefused),
    ],
)
async def test_the_log_of_a_node_says_why_a_certificate_is_refused(
    tmp_path: Path,
    issued: Issued,
    crl_end: timedelta,
    said: str,
    kind: type[CertificateRefused],
    caplog: pytest.LogCaptureFixture,
) -> None:
    ca, crl = USERS.write(tmp_path / "ca.pem"), tmp_path / "crl.pem"
    crl.write_bytes(USERS.revocations(REVOKED, end=crl_end))
    node = str(USERS.issue_node().write(tmp_path / "node.pem"))
    shown = issued.write(tmp_path / "client.pem")
    protocol = NativeProtocol(
        {Echo: lambda _, calls: [Echoed(call.call, call.body) for call in calls]}, welcome
    )
    listeners = Listeners(Admission("loopback", 10, 2_000, 600_000))
    try:
        (address,) = await listeners.open(
            Address("tls", "127.0.0.1", 0),
            server_context(node, node, str(ca), client_crl=str(crl)),
            protocol,
        )
        for _ in range(3):
            with pytest.raises(CertificateRefused, match="the node refused our certificate") as met:
                async with connect(str(address), ca=ca, certificate=shown, key=shown) as moor:
                    await moor.echo(b"let me in")
            assert type(met.value) is kind
        async with asyncio.timeout(20):
            while not any(said in text for text in caplog.messages):
                await asyncio.sleep(0.002)
        # Once in a while, however many come.
        assert sum("a client's certificate is refused" in text for text in caplog.messages) == 1
        async with connect(str(address), ca=ca) as moor:
            assert await moor.echo(b"anonymous") == b"anonymous"
    finally:
        await listeners.close()
