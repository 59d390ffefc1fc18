"""A cut of a node whose threads are all busy: senders wait for the files, and not for those who read some."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.catalog.databases import empty_database

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.catalog.copying import CatalogCut
from moorline.config.settings import Config
from moorline.errors import MoorlineError
from moorline.node.hosting import HostedNode
from moorline.node.node import Node

pytestmark = pytest.mark.process


async def test_a_cut_waits_for_no_thread_of_others(
    postgres: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Config(
        data=str(tmp_path),
        node="a",
        catalog=await empty_database(postgres),
        listen=["tcp://127.0.0.1:0"],
        http="127.0.0.1:0",
        mqtt=[],
        roles=["broker"],
    )
    failed = list[MoorlineError]()
    node = HostedNode(settings, Node, failed.append, tmp_path)
    await node.open()
    over, began = threading.Event(), asyncio.Event()
    begin = CatalogCut.begin

    async def occupied(cut: CatalogCut) -> None:
        """Commits are stopped by now. From here on somebody reads, and has all threads of the loop."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        loop.run_in_executor(None, over.wait, 60)
        began.set()
        await begin(cut)

    monkeypatch.setattr(CatalogCut, "begin", occupied)
    try:
        assert node.node is not None
        backups = node.node._backups
        assert backups is not None
        async with moorline.connect(str(node.node.addresses[0]), reconnect=False) as moor:
            queue = await moor.create_queue()
            await moor.cluster.back_up()
            await asyncio.wait_for(began.wait(), 30)
            await asyncio.wait_for(moor.send(queue.id, b"meanwhile"), 20)
            assert backups._cut is not None
            assert backups._cut.phase != "linking"
            assert not over.is_set()
            over.set()
    finally:
        over.set()
        await node.close()
    assert not failed
    assert not any((tmp_path / "backup").iterdir())
