"""200,000 queues of one service through a real node: verified in 48 bytes, repaired in about a kilobyte."""

import asyncio
import json
from pathlib import Path

import asyncpg
import pytest
import trustme
from tests.process.nodes import NodeProcess

from moorline.client.connecting import Connecting, connect
from moorline.client.moor import Moor
from moorline.client.service import Service
from moorline.client.service_exchange import Report
from moorline.core.sets.digest import Digest

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

QUEUES = 200_000
LOST = 10
QUEUES_AT_ONCE = 10_000

REPAIR_BYTES_MAX = 1_200
"""SUBS with an estimate, SOKS with a sketch; what is associated again is not counted."""

RSS_BYTES_MAX = 400 * 1_048_576
"""The node without its Postgres: some 160 MB, and far more if every queue were an object in memory."""


class Certificates:
    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca, self.server, self.client = (
            folder / f"{name}.pem" for name in ("ca", "server", "client")
        )
        authority.cert_pem.write_to_path(str(self.ca))
        for path, certificate in (
            (self.server, authority.issue_cert("127.0.0.1")),
            (self.client, authority.issue_cert("service@example.org", common_name="service")),
        ):
            certificate.private_key_and_cert_chain_pem.write_to_path(str(path))

    def flags(self) -> list[str]:
        return [
            "--listen=tls://127.0.0.1:0",
            f"--tls-certificate={self.server}",
            f"--tls-key={self.server}",
            f"--tls-client-ca={self.ca}",
            f"--set=access.quotas=@authenticated queues {QUEUES}",
        ]

    def connect(self, node: NodeProcess) -> Connecting:
        note = json.loads((node.data / "node.json").read_text())
        (address,) = [one for one in note["addresses"] if one.startswith("tls:")]
        return connect(address, ca=self.ca, certificate=self.client, key=self.client)


def spent(report: Report) -> int:
    return report.bytes_sent + report.bytes_received


def rss_bytes(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1_024


async def lose_associations(data: Path, count: int) -> list[bytes]:
    """What a restored backup does: rows are gone, and their part of the digest with them."""
    catalog = await asyncpg.connect(
        host=str((data / "run").resolve()), user="postgres", database="postgres"
    )
    try:
        rows = await catalog.fetch(
            "select queue from moorline.association order by hash_low limit $1", count
        )
        gone = [row["queue"] for row in rows]
        await catalog.fetch("select * from moorline.dissociate($1)", gone)
        return gone
    finally:
        await catalog.close()


async def make_queues(moor: Moor) -> list[bytes]:
    return [
        queue.id
        for _ in range(QUEUES // QUEUES_AT_ONCE)
        for queue in await moor.create_queues(QUEUES_AT_ONCE)
    ]


async def check_messages(moor: Moor, service: Service, queues: list[bytes]) -> None:
    """A message to each of them comes by the one subscription."""
    await moor.send_all([(queue, b"ahoy") for queue in queues])
    wanted = set(queues)
    async with asyncio.timeout(60):
        async for message in service:
            await message.ack()
            wanted.remove(message.queue)
            if not wanted:
                return


async def play(node: NodeProcess, certificates: Certificates, listed: Path) -> None:
    async with certificates.connect(node) as moor, moor.service(listed) as service:
        queues = await make_queues(moor)
        assert await service.associate(queues) == []
        gone = await lose_associations(node.data, LOST)
        report = await service.agree()
        assert report.digest == Digest.of(queues)
        assert (report.associated, report.dissociated, report.lost) == (LOST, 0, [])
        assert LOST * 24 < spent(report) - LOST * 24 < REPAIR_BYTES_MAX
        await check_messages(moor, service, gone)
        held = rss_bytes(node.process.pid)
    # Another connection: both sides still mean the same, and 48 bytes prove it.
    async with certificates.connect(node) as moor, moor.service(listed) as service:
        assert service.report.digest == Digest.of(queues)
        assert spent(service.report) == 48
        await asyncio.wait_for(service.all_delivered.wait(), 20)
        await check_messages(moor, service, queues[:LOST])
    assert held < RSS_BYTES_MAX, f"{held:,} bytes"
    assert rss_bytes(node.process.pid) < RSS_BYTES_MAX


def test_d31_ten_of_two_hundred_thousand_are_repaired_in_about_a_kilobyte(tmp_path: Path) -> None:
    """D18, D31, and D32 in small: associated in bulk, subscribed, verified, repaired, in bounded memory."""
    certificates = Certificates(tmp_path)
    with NodeProcess(tmp_path / "data", *certificates.flags()) as node:
        asyncio.run(play(node, certificates, tmp_path / "service.sqlite"))
        assert "Traceback" not in node.errors
