"""The nodes of one process: what SIGHUP has changed counts for all of them, also when one is opened again."""

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.catalog.databases import empty_database
from tests.waiting import until

from moorline.catalog import EmbeddedPostgres
from moorline.config.settings import Config
from moorline.errors import DiskFull, MoorlineError
from moorline.node.hosting import HostedNode, Hosting
from moorline.node.node import Node

pytestmark = pytest.mark.process

FEW = ["@loopback connections 7"]


def config(data: Path, dsn: str, name: str) -> Config:
    return Config(
        data=str(data),
        node=name,
        catalog=dsn,
        listen=["tcp://127.0.0.1:0"],
        http="127.0.0.1:0",
        mqtt=[],
        roles=["broker"],
    )


def with_few(before: Config) -> Config:
    return msgspec.structs.replace(
        before, access=msgspec.structs.replace(before.access, quotas=FEW)
    )


@contextlib.asynccontextmanager
async def hosted(settings: Config, fresh: Config) -> AsyncIterator[Hosting]:
    hosting = Hosting(settings, read_again=lambda: fresh)
    await hosting.start()
    try:
        yield hosting
    finally:
        await hosting.close()


async def test_what_a_reload_took_counts_for_guests_too(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    dsn = await empty_database(postgres)
    before = config(tmp_path, dsn, "a")
    # A home that came here by a move, as its files are then.
    first = config(tmp_path / "homes" / "guest", dsn, "guest")
    async with hosted(first, first):
        pass
    async with hosted(before, with_few(before)) as hosting:
        (guest,) = hosting.guests
        both = (hosting.own, guest)
        assert not any(one.settings.access.quotas == FEW for one in both)
        listen = guest.settings.listen
        hosting.reload()
        await until(lambda: all(one.settings.access.quotas == FEW for one in both), what="both")
        assert guest.settings.listen == listen


async def test_what_a_reload_took_counts_for_a_node_that_is_opened_again(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    """As a move does it that has to be given up."""
    before = config(tmp_path, await empty_database(postgres), "a")
    failed = list[MoorlineError]()
    one = HostedNode(
        before,
        lambda given: Node(given, read_again=lambda: with_few(given)),
        failed.append,
        tmp_path,
    )
    await one.open()
    try:
        assert one.node is not None
        addresses = one.node.addresses
        one.reload()
        await until(lambda: one.settings.access.quotas == FEW, what="the reload")
        await one.close()
        await one.open()
        assert one.settings.access.quotas == FEW
        assert one.node is not None
        assert one.node.addresses == addresses
    finally:
        await one.close()
    assert not failed


async def test_a_folder_that_a_home_has_left_may_be_full(
    postgres: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home goes where room is short: the node that stays sends on who comes, and has its guests."""
    usage = shutil.disk_usage(tmp_path)._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    settings = config(tmp_path, await empty_database(postgres), "a")
    failed = list[MoorlineError]()
    one = HostedNode(settings, Node, failed.append, tmp_path)
    with pytest.raises(DiskFull):
        await one.open()
    (tmp_path / "moved").mkdir()
    await one.open()
    await one.close()
    assert not failed
