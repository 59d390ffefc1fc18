"""A cut of a node whose threads are all busy: senders wait for the files, and not for those who read some."""

import asyncio
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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


async def settings_in(folder: Path, postgres: EmbeddedPostgres) -> Config:
    return Config(
        data=str(folder),
        node="a",
        catalog=await empty_database(postgres),
        listen=["tcp://127.0.0.1:0"],
        http="127.0.0.1:0",
        mqtt=[],
        roles=["broker"],
    )


async def test_a_cut_whose_client_is_gone_stands_in_nobodys_way(
    postgres: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = list[MoorlineError]()
    node = HostedNode(await settings_in(tmp_path, postgres), Node, failed.append, tmp_path)
    await node.open()
    held, goes_on = threading.Event(), threading.Event()
    remove = shutil.rmtree

    def slow(*given: Any, **options: Any) -> None:
        """Of the first cut: what a disk may take for it."""
        if not held.is_set():
            held.set()
            goes_on.wait(60)
        remove(*given, **options)

    monkeypatch.setattr(shutil, "rmtree", slow)
    try:
        assert node.node is not None
        address = str(node.node.addresses[0])
        async with moorline.connect(address, reconnect=False) as moor:
            first = await moor.cluster.back_up()
        async with moorline.connect(address, reconnect=False) as moor:
            assert await asyncio.to_thread(held.wait, 20), (
                "the first one is ended, and takes its time"
            )
            again = asyncio.create_task(moor.cluster.back_up())
            await asyncio.sleep(0)
            # Behind it on the same connection: what is answered now was heard after it.
            await moor.describe()
            goes_on.set()
            assert (await again).cut != first.cut
    finally:
        goes_on.set()
        await node.close()
    assert not failed


async def test_a_cut_waits_for_no_thread_of_others(
    postgres: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = await settings_in(tmp_path, postgres)
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
