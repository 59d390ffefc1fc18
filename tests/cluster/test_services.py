"""A service at three real nodes: nodes that are killed, stopped and frozen, and queues that come
elsewhere."""

import asyncio
import re
import signal
from pathlib import Path

import pytest
from tests.cluster.running import Nodes
from tests.process.nodes import NodeProcess, run_moor
from tests.queues.queue_server import Certificates
from tests.waiting import until

from moorline.catalog import Catalog
from moorline.catalog.service_audit import OperatorServices
from moorline.client.connecting import Connecting
from moorline.client.service import Service
from moorline.core.sets.digest import Digest

pytestmark = pytest.mark.process

WITHIN_S = 60
NAMES = ("a", "b", "c")
SETTINGS = {"queues.sync": "process", "keepalive_ms": 5_000}
"""One that is frozen is noticed by its silence: a third of the default."""


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), "service")


class Spanning:
    """Three nodes, and a service that has queues at each."""

    def __init__(self, nodes: Nodes, folder: Path, certificates: Certificates) -> None:
        self.nodes = nodes
        self.file = folder / "service.sqlite"
        self.queues: dict[str, list[bytes]] = {}
        self._certificates = certificates
        server = certificates.path("server")
        self.flags = (
            "--listen=tls://127.0.0.1:0",
            f"--tls-certificate={server}",
            f"--tls-key={server}",
            f"--tls-client-ca={certificates.ca}",
        )

    async def start(self, *names: str) -> None:
        await self.nodes.start(*names, flags=self.flags, settings=SETTINGS)

    def connect(self, name: str) -> Connecting:
        return self._certificates.connect(tls_of(self.nodes[name]), "service")

    async def spread(self, count: int) -> None:
        for name in NAMES:
            async with self.connect(name) as moor:
                made = [queue.id for queue in await moor.create_queues(count)]
                self.queues[name] = self.queues.get(name, []) + made

    def every(self) -> list[bytes]:
        return [queue for some in self.queues.values() for queue in some]

    async def send(self, body: bytes, *names: str) -> None:
        for name in names:
            async with self.connect(name) as moor:
                await moor.send_all([(queue, body + queue) for queue in self.queues[name]])

    async def takes(self, service: Service, body: bytes, *names: str) -> None:
        """All of them once each, whatever else comes again."""
        missing = {body + queue for name in names for queue in self.queues[name]}
        async with asyncio.timeout(WITHIN_S):
            async for message in service:
                await message.ack()
                missing.discard(message.body)
                if not missing:
                    return

    async def is_right(self, service: Service) -> None:
        assert service.away == []
        assert service.proven == {name: Digest.of(some) for name, some in self.queues.items()}
        async with Catalog.open(self.nodes.dsn) as catalog:
            rows = OperatorServices(catalog)
            (row,) = await rows.all()
            checked = await rows.checked_all(row.number, b"")
        assert checked.is_right
        assert row.digest == checked.true == Digest.of(self.every())


def tls_of(node: NodeProcess) -> str:
    found = re.search(r"(tls://[\d.]+:\d+)", node.ready_line)
    assert found is not None, node.ready_line
    return found[1]


@pytest.fixture
async def spanning(nodes: Nodes, tmp_path: Path, certificates: Certificates) -> Spanning:
    made = Spanning(nodes, tmp_path, certificates)
    await made.start(*NAMES)
    await made.spread(20)
    return made


async def whole(service: Service) -> None:
    async with asyncio.timeout(WITHIN_S):
        await service.whole.wait()


@pytest.mark.parametrize("harm", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
async def test_a_node_that_is_killed_stopped_or_frozen_is_proven_again(
    spanning: Spanning, harm: signal.Signals
) -> None:
    """The others serve meanwhile; what was sent to it before and after comes."""
    async with spanning.connect("a") as moor, moor.service(spanning.file) as service:
        assert await service.associate(spanning.every()) == []
        await spanning.is_right(service)
        node = spanning.nodes["c"]
        await spanning.send(b"before", *NAMES)
        node.signal(harm)
        await until(lambda: service.away == ["c"], within_s=WITHIN_S, what="c is away")
        await spanning.send(b"meanwhile", "a", "b")
        await spanning.takes(service, b"meanwhile", "a", "b")
        if harm == signal.SIGSTOP:
            node.signal(signal.SIGCONT)
        else:
            await asyncio.to_thread(node.process.wait, 30)
            await spanning.start("c")
        await whole(service)
        await service.agree()
        await spanning.is_right(service)
        await spanning.send(b"after", *NAMES)
        await spanning.takes(service, b"after", *NAMES)


@pytest.mark.parametrize("counts_as_there", [False, True])
async def test_queues_that_came_to_another_home_go_to_the_part_there(
    spanning: Spanning, tmp_path: Path, counts_as_there: bool
) -> None:
    """c is lost for good, and its queues are imported at d: their ids say c, and the service has them at
    d, also if c still counts as there when the service is entered."""
    async with spanning.connect("a") as moor, moor.service(spanning.file) as service:
        assert await service.associate(spanning.every()) == []
    await spanning.send(b"m", "c")
    lost = spanning.nodes["c"]
    assert await asyncio.to_thread(lost.stop) == 0
    rows = str(tmp_path / "rows.jsonl")
    for command in (
        ("export", rows, f"--data={lost.data}"),
        ("import", rows, f"--data={tmp_path / 'd'}"),
    ):
        done = await asyncio.to_thread(run_moor, "journal", *command)
        assert done.returncode == 0, done.stderr
    await spanning.start("d")
    moved = spanning.queues.pop("c")
    async with spanning.connect("d") as moor, moor.service(spanning.file) as service:
        # The node of c is away, and nobody else says where its queues are.
        assert service.away == ["c"]
    async with Catalog.open(spanning.nodes.dsn) as catalog:
        seen_s = 2 if counts_as_there else -3_600
        await catalog.execute(
            "update node set seen_at = clock_timestamp() + $1 * interval '1 second' where name = 'c'",
            seen_s,
        )
    async with (
        spanning.connect("d") as moor,
        moor.service(spanning.file, bind=True) as service,
    ):
        spanning.queues["d"] = moved
        await spanning.takes(service, b"m", "d")
        await spanning.is_right(service)


async def test_a_part_goes_with_its_home_and_is_proven_where_it_is(spanning: Spanning) -> None:
    """The service's client follows, with what waits in the queues; nothing is named as lost."""
    async with spanning.connect("a") as moor, moor.service(spanning.file) as service:
        assert await service.associate(spanning.every()) == []
        await spanning.send(b"before", *NAMES)
        asked = ("home", "move", "c", "--to", "b", f"--address={spanning.nodes['a'].address}")
        done = await asyncio.to_thread(run_moor, *asked)
        assert done.returncode == 0, done.stderr
        await spanning.takes(service, b"before", *NAMES)
        await whole(service)
        report = await service.agree()
        assert (report.lost, service.away) == ([], [])
        parts = {home: digest for home, digest in service.proven.items() if digest.count}
        assert parts == {name: Digest.of(some) for name, some in spanning.queues.items()}
        left = spanning.every()

        async def are_sent() -> bool:
            """What a node knows of homes may be some seconds old."""
            sent = await moor.send_all([(queue, b"after" + queue) for queue in left])
            left[:] = [
                queue for queue, one in zip(left, sent, strict=True) if not isinstance(one, int)
            ]
            return not left

        await until(are_sent, what="all are sent")
        await spanning.takes(service, b"after", *NAMES)
