"""Homes of real nodes: their numbers in ids, folders and the catalog, and queues that came from elsewhere."""

import asyncio
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from tests.cluster.running import Nodes
from tests.cluster.test_identity import QUICK, copied, ended, serve
from tests.process.nodes import NodeProcess, run_moor
from tests.waiting import until

import moorline
from moorline.catalog import Catalog
from moorline.catalog.homes import Homes
from moorline.errors import HomeAway, NotFound, Unreachable
from moorline.ids import home_number
from moorline.queues.homes import QueueHomes

pytestmark = pytest.mark.process

FOLDER_UNUSABLE = 6


def number_in(folder: Path) -> bytes:
    return bytes.fromhex((folder / "node.home").read_text())


async def made(node: NodeProcess, count: int) -> list[bytes]:
    """Queues with a message each."""
    async with moorline.connect(node.address, reconnect=False) as moor:
        queues = [queue.id for queue in await moor.create_queues(count)]
        await moor.send_all([(queue, queue) for queue in queues])
        return queues


async def check_served(node: NodeProcess, queues: list[bytes]) -> None:
    async with moorline.connect(node.address, reconnect=False) as moor:
        for queue in queues:
            message = await anext(moor.queue(queue).read())
            assert message.body == queue


async def test_ids_end_with_the_home_of_their_node_and_others_say_whose_they_are(
    nodes: Nodes,
) -> None:
    a, b = await nodes.start("a", "b")
    numbers = number_in(a.data), number_in(b.data)
    assert numbers[0] != numbers[1]
    for node, number in zip((a, b), numbers, strict=True):
        assert {home_number(queue) for queue in await made(node, 5)} == {number}
    async with Catalog.open(nodes.dsn) as catalog:
        homes = await Homes(catalog).all()
        assert {number: row.node for number, row in homes.items()} == dict(
            zip(numbers, "ab", strict=True)
        )
    (queue,) = await made(b, 1)
    async with (
        moorline.connect(a.address, reconnect=False) as moor,
        moorline.connect(b.address, reconnect=False) as home,
    ):

        async def is_followed() -> bool:
            with suppress(NotFound, HomeAway):  # what a knows of homes may be some seconds old
                await moor.send(queue, b"m")
                return True
            return False

        await until(is_followed, what="the home of a queue of another node")
        assert (await home.queue(queue).info()).waiting == 2


async def test_imported_queues_keep_their_ids_and_the_catalog_says_where_they_are(
    nodes: Nodes, tmp_path: Path
) -> None:
    a, b = await nodes.start("a", "b")
    queues = await made(a, 12)
    assert await asyncio.to_thread(a.stop) == 0
    rows = str(tmp_path / "rows.jsonl")
    exported = run_moor("journal", "export", rows, f"--data={a.data}")
    assert exported.returncode == 0, exported.stderr
    imported = run_moor("journal", "import", rows, f"--data={tmp_path / 'c'}")
    assert imported.returncode == 0, imported.stderr
    (c,) = await nodes.start("c")
    assert number_in(c.data) != number_in(a.data)
    await check_served(c, queues)
    fresh = await made(c, 3)
    async with Catalog.open(nodes.dsn) as catalog:
        here = QueueHomes(Homes(catalog), number_in(b.data))

        async def are_written() -> bool:
            return len(await Homes(catalog).exceptions_of(queues)) == len(queues)

        await until(are_written, what="exceptions")
        found = await here.home_of([*queues, *fresh])
        assert {row.name for row in found.values()} == {"c"}
        assert len(found) == 15
    async with moorline.connect(b.address, reconnect=False) as moor:

        async def is_found(queue: bytes) -> bool:
            # What b knows of homes may be some seconds old, and name a, which is not there any more.
            with suppress(NotFound, HomeAway, Unreachable):
                return (await moor.queue(queue).info()).waiting == 1
            return False

        for queue in (queues[0], fresh[0]):
            await until(partial(is_found, queue), what="the home of c")
        with pytest.raises(NotFound, match=r"no queue of that id$"):
            await moor.queue(b"n" * 24).info()


async def test_a_folder_that_is_put_back_has_its_number(nodes: Nodes, tmp_path: Path) -> None:
    (a,) = await nodes.start("a", settings=QUICK)
    queues = await made(a, 3)
    assert await asyncio.to_thread(a.stop) == 0
    number = number_in(a.data)
    for name in ("as it was", "of before there were numbers"):
        copy = copied(a, tmp_path / name)
        if name != "as it was":
            (copy / "node.home").unlink()
        restored = await asyncio.to_thread(serve, copy, "a", nodes.dsn, QUICK)
        with restored:
            assert number_in(copy) == number
            (fresh,) = await made(restored, 1)
            assert home_number(fresh) == number
            await check_served(restored, queues)


async def test_a_number_that_contradicts_the_catalog_keeps_a_node_from_starting(
    nodes: Nodes,
) -> None:
    a, b = await nodes.start("a", "b")
    for node in (a, b):
        assert await asyncio.to_thread(node.stop) == 0
    right = number_in(a.data)
    for text, said in (
        ((b.data / "node.home").read_text(), f"that of this node is {right.hex()}"),
        ("mist\n", "holds no number of a home"),
    ):
        (a.data / "node.home").write_text(text)
        refused = serve(a.data, "a", nodes.dsn, QUICK, wait=False)
        assert await ended(refused) == FOLDER_UNUSABLE, refused.errors
        assert said in refused.errors
    # As the text says: without the file the catalog's number is written down again.
    (a.data / "node.home").unlink()
    with await asyncio.to_thread(serve, a.data, "a", nodes.dsn, QUICK):
        assert number_in(a.data) == right


def test_a_folder_whose_catalog_is_lost_keeps_its_number(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        number = number_in(node.data)
        assert node.stop() == 0
    shutil.rmtree(tmp_path / "data" / "catalog")
    with NodeProcess(tmp_path / "data") as node:
        assert number_in(node.data) == number
        (queue,) = asyncio.run(made(node, 1))
        assert home_number(queue) == number
