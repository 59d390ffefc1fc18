"""Several nodes with services on one catalog, each with a home of its own, without processes around them.

Each acts by a catalog and an identity of its own, so what the catalog fences it fences here. `stop`
closes a node as a kill would for its clients; `start` opens it again on its files, at another port.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

from tests.catalog.nodes import pretend
from tests.queues.queue_server import Certificates
from tests.services.service_server import QUICK, ServiceServer
from tests.waiting import until

from moorline.catalog import Catalog
from moorline.catalog.homes import Homes
from moorline.catalog.services import Part
from moorline.client.associations import Associations
from moorline.client.connecting import Connecting
from moorline.client.service import Service
from moorline.core.sets.digest import Digest
from moorline.queues.homes import QueueHomes

ALIVE = "update moorline.node set seen_at = clock_timestamp() + interval '1 hour' where id = $1"
GONE = "update moorline.node set seen_at = '-infinity' where id = $1"


class Homed:
    """The nodes by their names."""

    def __init__(self, dsn: str, folder: Path, certificates: Certificates) -> None:
        self.dsn = dsn
        self.folder = folder
        self.certificates = certificates
        self.nodes: dict[str, ServiceServer] = {}
        self.numbers: dict[str, bytes] = {}
        self._stacks: dict[str, contextlib.AsyncExitStack] = {}

    def __getitem__(self, name: str) -> ServiceServer:
        return self.nodes[name]

    async def start(self, *names: str) -> None:
        for name in names:
            await self._start(name)
        await self.look()

    async def _start(self, name: str) -> None:
        async with contextlib.AsyncExitStack() as stack:
            catalog = await stack.enter_async_context(Catalog.open(self.dsn))
            node_id = name.encode().ljust(24, b"-")
            await pretend(catalog, name, node_id=node_id)
            rows = await Homes(catalog).all()
            number = next(number for number, row in rows.items() if row.name == name)
            homes = QueueHomes(Homes(catalog), number)
            node = ServiceServer(
                *(self.folder / name, catalog, self.certificates, QUICK, node_id),
                home=number,
                home_name=name,
                homes=homes,
            )
            await node.open()
            stack.push_async_callback(node.close)
            await pretend(catalog, name, node_id=node_id, addresses=[node.address])
            await catalog.execute(ALIVE, node_id)
            self.nodes[name], self.numbers[name] = node, number
            self._stacks[name] = stack.pop_all()

    async def look(self) -> None:
        """Every node knows the homes of all; in a process it looks by itself every other second."""
        for node in self.nodes.values():
            assert node.homes is not None
            await node.homes._look()

    async def stop(self, name: str) -> None:
        node = self.nodes.pop(name)
        await node.catalog.execute(GONE, name.encode().ljust(24, b"-"))
        await self._stacks.pop(name).aclose()

    async def close(self) -> None:
        for name in list(self._stacks):
            await self._stacks.pop(name).aclose()

    def connect(self, at: str, name: str = "service") -> Connecting:
        return self.certificates.connect(self[at].address, name)

    @property
    def file(self) -> Path:
        return self.folder / "service.sqlite"

    @contextlib.contextmanager
    def listed(self) -> Iterator[Associations]:
        """The list; beside a client that uses it, only to look."""
        listed = Associations(self.file)
        try:
            yield listed
        finally:
            listed.close()

    # --- what must hold ---------------------------------------------------------------------------

    @property
    def any(self) -> ServiceServer:
        return next(iter(self.nodes.values()))

    async def part(self, home: str, name: str = "service") -> Digest:
        number = await self.any.number(name)
        return await self.any.services.services.digest(Part(number, self.numbers[home]))

    async def check(self, service: Service, queues: Mapping[str, Sequence[bytes]]) -> None:
        """Each part is what is meant there, in the catalog and in the list; and the sum is the service's."""
        sum_of_parts = Digest.empty()
        with self.listed() as listed:
            for home, some in queues.items():
                wanted = Digest.of(some)
                assert await self.part(home) == wanted, home
                kept = listed.digests().get(self.numbers[home], Digest.empty())
                assert kept == wanted, home
                if home not in service.away:
                    assert service.proven.get(home, Digest.empty()) == wanted, home
                sum_of_parts = sum_of_parts.merge(wanted)
            assert listed.digest() == listed.recomputed() == sum_of_parts
        assert await self.any.digest() == sum_of_parts
        for node in self.nodes.values():
            await node.check_digests()


@contextlib.asynccontextmanager
async def homed(
    dsn: str, folder: Path, certificates: Certificates, *names: str
) -> AsyncIterator[Homed]:
    made = Homed(dsn, folder, certificates)
    try:
        await made.start(*names)
        yield made
    finally:
        await made.close()


async def spread(nodes: Homed, count: int, *homes: str) -> dict[str, list[bytes]]:
    """So many queues at each home, made by the owner of the service there."""
    made: dict[str, list[bytes]] = {}
    for home in homes:
        async with nodes.connect(home) as moor:
            made[home] = [queue.id for queue in await moor.create_queues(count)]
    return made


def every(queues: dict[str, list[bytes]]) -> list[bytes]:
    return [queue for some in queues.values() for queue in some]


async def whole(service: Service) -> None:
    async with asyncio.timeout(30):
        await service.whole.wait()


async def away(service: Service, *homes: str) -> None:
    await until(lambda: service.away == sorted(homes))
