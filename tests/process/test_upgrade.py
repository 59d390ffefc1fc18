"""A catalog and queues that are older than rights, at a real node: nothing is lost, nothing is given away."""

import asyncio
import hashlib
import json
import re
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest
from tests.catalog.databases import empty_database
from tests.net.authority import Authority, Issued
from tests.process.nodes import NodeProcess, run_moor
from tests.topics.scenes import Reader

import moorline
from moorline.catalog import EmbeddedPostgres, migrate
from moorline.catalog.migration import MIGRATIONS
from moorline.catalog.services import signed
from moorline.client.connecting import Connecting
from moorline.client.moor import Moor
from moorline.config.settings import Queues
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.errors import Denied, OverQuota
from moorline.ids import text_of
from moorline.journal.queues.manifest import MANIFEST
from moorline.net.clock import wall_ms
from moorline.node.queues import FOLDER, open_queues

pytestmark = pytest.mark.process

USERS = Authority("users")
ANNA = USERS.issue("anna")
FINGERPRINT = hashlib.sha256(ANNA.der).digest()
LOST = b"f" * 32
"""Of a certificate that never comes again."""
RIGHTS = next(one.number for one in MIGRATIONS if one.name == "access")
GROUP, SESSION = "$shared/old/orders/#", "ledger"
KEPT = {
    "/ @loopback slwpdag",
    "/ boss slwpdag",
    "/queues @authenticated p",
    "/services @authenticated p",
    "/sessions @authenticated p",
    "/topics @authenticated slw",
    "/groups @authenticated slp",
}
"""What was allowed before there were rows."""


class Old(NamedTuple):
    """What a Moorline before rights left behind: queues by the fingerprints of their owners."""

    folder: Path
    dsn: str
    annas: bytes
    lost: bytes
    nobodys: bytes

    def node(self) -> NodeProcess:
        shown = USERS.issue_node().write(self.folder / "node.pem")
        return NodeProcess(
            self.folder / "data",
            "--listen=tls://127.0.0.1:0",
            f"--catalog={self.dsn}",
            f"--tls-certificate={shown}",
            f"--tls-key={shown}",
            f"--tls-client-ca={USERS.write(self.folder / 'ca.pem')}",
            "--set=queues.operators=boss",
            "--set=streams.sync=process",
            "--set=queues.sync=process",
            "--set=streams.shards=2",
        )

    def shows(self, node: NodeProcess, issued: Issued) -> Connecting:
        file = issued.write(self.folder / f"{issued.certificate.serial_number}.pem")
        ca = self.folder / "ca.pem"
        return moorline.connect(
            node._found(r"(tls://\S+)"), ca=ca, certificate=file, key=file, reconnect=False
        )


@pytest.fixture
async def old(postgres: EmbeddedPostgres, tmp_path: Path) -> Old:
    dsn = await empty_database(postgres)
    async with open_queues(tmp_path / "data", Queues(sync="process")) as broker:
        annas, lost, nobodys = (broker.store.create(owner) for owner in (FINGERPRINT, LOST, b""))
        for queue in (annas, lost, nobodys):
            broker.store.send(queue, b"kept", wall_ms())
    # Which node it is of was not written down then.
    (tmp_path / "data" / FOLDER / MANIFEST).unlink()
    found = Old(tmp_path, dsn, annas.id, lost.id, nobodys.id)
    connection = await asyncpg.connect(dsn)
    try:
        await migrate(connection, [one for one in MIGRATIONS if one.number < RIGHTS])
        await _fill(connection, found)
    finally:
        await connection.close()
    return found


async def _fill(connection: asyncpg.Connection, old: Old) -> None:
    """As it was written then: services of fingerprints, a session of a common name, a group of nobody."""
    add = (
        "insert into moorline.service (id, fingerprint, name, salt) "
        "values ($1, $2, $3, $4) returning number"
    )
    service = await connection.fetchval(add, b"i" * 24, FINGERPRINT, "anna", b"s" * 16)
    await connection.fetchval(add, b"j" * 24, LOST, "carl", b"t" * 16)
    words = hash_ids([old.annas])
    await connection.execute(
        "select moorline.associate($1, $2, $3, $4)",
        service,
        [old.annas],
        signed(words[:, 0]),
        signed(words[:, 1]),
    )
    await connection.execute(
        "select * from moorline.declare_group('shared', 'old', 'orders/#', 5, 0, 0)"
    )
    await connection.execute("select * from moorline.open_session($1, 'anna', 'n', 86400)", SESSION)


async def test_what_is_older_than_rights_is_taken_over(old: Old) -> None:
    """A09: rows keep what was allowed, with a warning; owners are claimed, mapped, or the operators'."""
    with old.node() as node:
        assert "this catalog is older than rights" in node.errors
        assert "are no settings any more" in node.errors
        async with moorline.connect(node.address, reconnect=False) as operator:
            rows = await operator.access.grants()
            assert {f"{one.path} {one.subject} {one.grants}" for one in rows} == KEPT
            await _rights_are_as_before(old, node)
            await _owners_come_back(old, node)
            await _others_are_mapped(old, node)
            assert (await operator.queue(old.nobodys).info()).waiting == 2
            await operator.checkpoint()
            assert await operator.access.keep_grants() == len(KEPT)
        await asyncio.to_thread(node.kill)
    log = len(node.errors)
    # Claimed for good: also for a certificate that nobody has seen.
    with old.node() as node:
        assert "older than rights" not in node.errors[log:]
        async with old.shows(node, USERS.issue("anna")) as renewed:
            assert (await renewed.queue(old.annas).info()).owner == "anna"
        async with old.shows(node, USERS.issue("bob")) as bob:
            with pytest.raises(Denied):
                await bob.queue(old.annas).get()
        assert "Traceback" not in node.errors


async def _rights_are_as_before(old: Old, node: NodeProcess) -> None:
    """Whoever has a certificate publishes and reads, and joins a group that was there."""
    async with old.shows(node, USERS.issue("bob")) as bob:
        reader = Reader(await bob.subscribe(GROUP))
        await bob.publish("orders/eu", b"1")
        await reader.has([b"1"])
        await reader.stop()
        for queue in (old.annas, old.lost, old.nobodys):
            await bob.send(queue, b"more")
            with pytest.raises(Denied):
                await bob.queue(queue).get()
    async with old.shows(node, USERS.issue("bob")) as bob:
        with pytest.raises(Denied):
            await bob.session(SESSION)
    async with old.shows(node, USERS.issue("boss")) as boss:
        assert (await boss.list_queues()).total == 3


async def _owners_come_back(old: Old, node: NodeProcess) -> None:
    """With the certificate of that fingerprint, and from then on with any of that principal."""
    async with old.shows(node, USERS.issue("anna")) as too_early:
        with pytest.raises(Denied):
            await too_early.queue(old.annas).get()
    mine = old.folder / "anna.sqlite"
    async with old.shows(node, ANNA) as anna:
        message = await anna.queue(old.annas).get()
        assert message is not None
        await message.ack()
        async with anna.service(mine) as service:
            # Her list is new, and the service is the old one, with what it had.
            assert service.report.dissociated == 1
            assert await service.associate([old.annas]) == []
    async with old.shows(node, USERS.issue("anna")) as renewed:
        assert (await renewed.queue(old.annas).info()).owner == "anna"
        async with renewed.service(mine) as service:
            assert service.report.digest == Digest.of([old.annas])
    async with old.shows(node, ANNA) as anna:
        await anna.session(SESSION)
        await _old_queues_count(node, "anna", anna)


async def _old_queues_count(node: NodeProcess, name: str, moor: Moor) -> None:
    """With those that a principal makes: a quota of one is met by the one that it has."""
    async with moorline.connect(node.address, reconnect=False) as operator:
        await operator.access.set_quota(name, "queues", 1)
        usage = {row.quota: row.used for row in (await operator.access.quota_usage(name)).usage}
        assert usage["queues"] == 1
        with pytest.raises(OverQuota, match="queues is 1"):
            await moor.create_queue()
        await operator.access.set_quota(name, "queues", None)


async def _others_are_mapped(old: Old, node: NodeProcess) -> None:
    address = f"--address={node.address}"
    async with old.shows(node, USERS.issue("carl")) as carl:
        with pytest.raises(Denied):
            await carl.queue(old.lost).get()
        shown = await asyncio.to_thread(run_moor, "owner", "list", "--json", address)
        rows = {row["name"]: (row["principal"], row["queues"]) for row in json.loads(shown.stdout)}
        assert rows[LOST.hex()] == ("", 1), "what there is to map"
        assert rows[FINGERPRINT.hex()] == ("anna", 1)
        done = await asyncio.to_thread(
            run_moor, "owner", "map", LOST.hex(), "carl", "--yes", address
        )
        assert done.returncode == 0, done.stderr
        shown = await asyncio.to_thread(run_moor, "owner", "list", address)
        assert re.search(rf"{LOST.hex()[:8]}\S*\s+carl", shown.stdout), shown.stdout
        message = await carl.queue(old.lost).get()
        assert message is not None
        assert message.body == b"kept"
        with pytest.raises(Denied):
            await carl.queue(old.nobodys).get()
        await _old_queues_count(node, "carl", carl)
    assert text_of(old.lost) in (await asyncio.to_thread(run_moor, "queue", "list", address)).stdout
