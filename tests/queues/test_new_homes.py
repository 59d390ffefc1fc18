"""A call about a queue of a home that is not known yet: it waits for one look, and is never told that the
queue is not there before that."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.access.rows import operator
from tests.catalog.databases import new_database
from tests.queues.queue_server import Certificates, QueueServer, queue_server
from tests.queues.test_homes import number_of, queue_of
from tests.waiting import until

from moorline.catalog import Catalog, EmbeddedPostgres
from moorline.client.moor import Moor
from moorline.core.access.row import Row
from moorline.errors import Denied, Elsewhere, NotFound
from moorline.node.queues import open_homes
from moorline.queues.homes import QueueHomes
from moorline.wire.queue import Get, Got

pytestmark = pytest.mark.process

Call = Callable[[Moor, bytes], Awaitable[object]]

CALLS: dict[str, Call] = {
    "send": lambda moor, queue: moor.send(queue, b"x"),
    "get": lambda moor, queue: moor._caller.call(lambda n: Get(n, queue), Got),
    "read": lambda moor, queue: anext(moor.queue(queue).read()),
    "delete": lambda moor, queue: moor.queue(queue).delete(),
    "info": lambda moor, queue: moor.queue(queue).info(),
}


@pytest.fixture
async def catalog(postgres: EmbeddedPostgres) -> AsyncIterator[Catalog]:
    async with Catalog.open(await new_database(postgres)) as catalog:
        yield catalog


async def knowing(homes: QueueHomes) -> None:
    """What is known is new: it would not be asked for again for seconds."""
    await homes.looked()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), "alice")


@pytest.mark.parametrize("rows", [(), (operator("alice"),)], ids=["stranger", "operator"])
@pytest.mark.parametrize("name", list(CALLS))
async def test_the_first_call_about_a_new_home_is_sent_there(
    catalog: Catalog, certificates: Certificates, tmp_path: Path, name: str, rows: tuple[Row, ...]
) -> None:
    async with (
        queue_server(tmp_path, tls=certificates.context(), rows=rows) as server,
        open_homes(catalog, server.broker) as homes,
        certificates.connect(str(server.address), "alice") as moor,
    ):
        await knowing(homes)
        late = queue_of(await number_of(catalog, "late"))
        with pytest.raises(Elsewhere) as told:
            await CALLS[name](moor, late)
        assert told.value.home == "late"


async def test_a_queue_of_no_home_is_not_there_or_not_ones_own(
    catalog: Catalog, certificates: Certificates, tmp_path: Path
) -> None:
    async with (
        queue_server(tmp_path, tls=certificates.context()) as server,
        open_homes(catalog, server.broker),
        certificates.connect(str(server.address), "alice") as moor,
    ):
        nowhere = queue_of(b"\1\2\3\4")
        with pytest.raises(NotFound):
            await moor.send(nowhere, b"x")
        with pytest.raises(Denied):
            await moor.queue(nowhere).info()


async def test_many_that_invent_ids_wait_together_and_one_that_goes_leaves_nothing(
    catalog: Catalog, tmp_path: Path
) -> None:
    async with (
        queue_server(tmp_path) as server,
        open_homes(catalog, server.broker) as homes,
    ):
        await knowing(homes)
        async with server.connect() as moor:
            ids = [queue_of(bytes([1, 2, number // 256, number % 256])) for number in range(600)]
            await asyncio.wait(
                [asyncio.create_task(moor.send(one, b"x" * 100)) for one in ids], timeout=0.01
            )
        async with server.connect() as moor:
            found = await asyncio.gather(
                *(moor.send(one, b"x" * 100) for one in ids), return_exceptions=True
            )
            assert {type(one) for one in found} == {NotFound}
        await until(lambda: waiting(server) == 0)


def waiting(server: QueueServer) -> int:
    """Calls that wait for a look."""
    held = server.broker.refusals.waits.__self__  # type: ignore[attr-defined]
    return int(held._calls)
