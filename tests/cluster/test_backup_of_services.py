"""Two nodes are backed up while the queues of a service change, and made anew of the copies: what the list of
the service and the catalog of the older cut do not agree on is found and repaired when it is entered."""

import asyncio
import signal
from pathlib import Path

import pytest
from tests.catalog.databases import empty_database
from tests.cluster.running import Nodes
from tests.cluster.test_services import Spanning, certificates, whole
from tests.process.test_backup import backed_up, restored
from tests.queues.queue_server import Certificates

from moorline.catalog import EmbeddedPostgres

pytestmark = pytest.mark.process

__all__ = ["certificates"]

NAMES = ("a", "b")


async def test_what_changed_between_the_cuts_is_a_drift_that_is_repaired(
    postgres: EmbeddedPostgres, nodes: Nodes, tmp_path: Path, certificates: Certificates
) -> None:
    spanning = Spanning(nodes, tmp_path, certificates)
    await spanning.start(*NAMES)
    async with spanning.connect("a") as moor, spanning.connect("b") as other:
        at_a = [queue.id for queue in await moor.create_queues(4)]
        at_b = [queue.id for queue in await other.create_queues(4)]
        async with moor.service(spanning.file) as service:
            assert await service.associate([*at_a, *at_b]) == []
            await backed_up(nodes["a"], tmp_path / "copies" / "a")
            (new_at_a,) = await moor.create_queues(1)
            (new_at_b,) = await other.create_queues(1)
            assert await service.associate([new_at_a.id, new_at_b.id]) == []
            await service.dissociate([at_a[0], at_b[0]])
            await moor.queue(at_b[1]).delete()
            await backed_up(nodes["b"], tmp_path / "copies" / "b")
    for name in NAMES:
        nodes[name].signal(signal.SIGKILL)
        await asyncio.to_thread(nodes[name].process.wait, 30)

    catalog = await empty_database(postgres)
    for name, keep in (("a", ()), ("b", ("--keep-catalog",))):
        where = tmp_path / "fresh" / name
        await restored(tmp_path / "copies" / name, where, f"--catalog={catalog}", *keep)
    async with Nodes(catalog, tmp_path / "fresh") as again:
        spanning.nodes = again
        await spanning.start(*NAMES)
        # Made behind the cut of its home, one queue is in no copy. All else is as the list has it.
        spanning.queues = {"a": at_a[1:], "b": [*at_b[2:], new_at_b.id]}
        async with spanning.connect("a") as moor, moor.service(spanning.file) as service:
            await whole(service)
            assert service.report.lost == [new_at_a.id]
            assert service.report.associated == 1
            assert service.report.dissociated == 3
            await spanning.is_right(service)
            await spanning.send(b"after", *NAMES)
            await spanning.takes(service, b"after", *NAMES)
