"""The catalog hangs, is started anew, or is away when a node stops: nothing is lost, all goes on later."""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.catalog.losing import lost_at
from tests.cluster.running import (
    Got,
    Nodes,
    Publisher,
    all_done,
    in_order,
    join,
    led_by,
    members,
    metric,
)
from tests.waiting import until

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.errors import OutcomeUnknown

pytestmark = pytest.mark.process

GROUP = "$shared/billing/orders/#"


@pytest.fixture
async def own() -> AsyncIterator[EmbeddedPostgres]:
    """A Postgres that the test may stop; in a folder whose socket keeps its short name."""
    with tempfile.TemporaryDirectory(prefix="moor") as folder:
        async with EmbeddedPostgres(Path(folder) / "catalog") as postgres:
            yield postgres


@contextmanager
def hanging(postgres: EmbeddedPostgres) -> Iterator[None]:
    """All processes of this Postgres are stopped, those that serve the nodes included."""
    # First the one that starts the others; each of these is in a process group of its own.
    stopped = [postgres.pid]
    os.kill(postgres.pid, signal.SIGSTOP)
    try:
        children = Path(f"/proc/{postgres.pid}/task/{postgres.pid}/children").read_text()
        stopped += [int(word) for word in children.split()]
        for pid in stopped[1:]:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def claims_failed(nodes: Nodes) -> int:
    return sum(node.errors.count("cannot be claimed") for node in nodes.alive().values())


async def test_x16_the_catalog_hangs_and_comes_back(own: EmbeddedPostgres, tmp_path: Path) -> None:
    async with Nodes(own.dsn, tmp_path) as nodes:
        await nodes.start("a", "b", "c")
        got = Got()
        async with members(
            join(nodes["a"], GROUP, got, "on a"), join(nodes["b"], GROUP, got, "on b")
        ):
            publisher = Publisher("steady", "orders/eu", keys=8)
            publishing = asyncio.create_task(publisher.run(lambda: nodes["c"].address))
            await until(lambda: len(got.messages) > 100, what="flow")
            with hanging(own):
                await until(
                    lambda: (
                        sum(metric(node, "group_lapsed_total") for node in nodes.alive().values())
                        > 0
                    ),
                    what="the lease runs out",
                )
                count = len(publisher.sent)
                await until(lambda: len(publisher.sent) > count + 50, what="publishing goes on")
            await led_by(nodes["c"], GROUP, "a", "b", "c")
            reached = len(got.messages)
            await until(lambda: len(got.messages) > reached + 50, what="flow again")
            publisher.stop()
            await publishing
            await got.has(publisher.sent)
            await all_done(nodes["c"], GROUP)
        in_order(got.bodies())
        assert set(got.bodies()) == set(publisher.sent)


async def test_x16_the_catalog_is_started_anew(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="moor") as folder:
        first = EmbeddedPostgres(Path(folder) / "catalog")
        await first.__aenter__()
        async with Nodes(first.dsn, tmp_path) as nodes:
            await nodes.start("a", "b", "c")
            got = Got()
            async with members(
                join(nodes["a"], GROUP, got, "on a"), join(nodes["b"], GROUP, got, "on b")
            ):
                publisher = Publisher("steady", "orders/eu", keys=8)
                publishing = asyncio.create_task(publisher.run(lambda: nodes["c"].address))
                await until(lambda: len(got.messages) > 100, what="flow")
                await first.__aexit__(None, None, None)
                await until(lambda: claims_failed(nodes) > 0, what="somebody wants to lead")
                noticed, tried = time.monotonic(), claims_failed(nodes)
                count = len(publisher.sent)
                await until(
                    lambda: time.monotonic() - noticed > 1 and len(publisher.sent) > count,
                    what="a second without a catalog, in which publishing goes on",
                )
                # Two nodes ask, each of them more and more seldom: no storm, whatever the members do.
                assert claims_failed(nodes) - tried <= 12
                async with EmbeddedPostgres(Path(folder) / "catalog") as second:
                    assert second.dsn == nodes.dsn
                    await led_by(nodes["c"], GROUP, "a", "b", "c")
                    reached = len(got.messages)
                    await until(lambda: len(got.messages) > reached + 50, what="flow again")
                    publisher.stop()
                    await publishing
                    await got.has(publisher.sent)
                    await all_done(nodes["c"], GROUP)
                    await asyncio.gather(
                        *(asyncio.to_thread(node.stop) for node in nodes.alive().values())
                    )
            in_order(got.bodies())
            assert set(got.bodies()) == set(publisher.sent)


async def test_a_node_stops_in_time_while_the_catalog_hangs(
    own: EmbeddedPostgres, tmp_path: Path
) -> None:
    async with Nodes(own.dsn, tmp_path) as nodes:
        (a,) = await nodes.start("a")
        got = Got()
        member = await join(a, GROUP, got, "on a")
        async with moorline.connect(a.address, reconnect=False) as moor:
            await moor.publish("orders/eu", b"m")
        await got.has([b"m"])
        with hanging(own):
            code = await asyncio.to_thread(a.stop)  # in half a minute at the most
            assert code == 0, a.errors
        await member.leave()


async def test_what_a_session_asks_while_postgres_goes_is_not_told_as_failed(nodes: Nodes) -> None:
    (a,) = await nodes.start("a")
    async with moorline.connect(a.address, reconnect=False) as moor:
        async with lost_at(nodes.dsn, "session"):
            with pytest.raises(OutcomeUnknown, match="whether the session was opened"):
                await moor.session("durable")
        assert await moor.session("durable") == []
        for filter_text in ("orders/#", "$shared/billing/orders/#"):
            async with lost_at(nodes.dsn, "subscription"):
                with pytest.raises(OutcomeUnknown, match="to subscribe again is harmless"):
                    await moor.subscribe(filter_text)
            subscription = await moor.subscribe(filter_text)
            async with lost_at(nodes.dsn, "subscription"):
                with pytest.raises(OutcomeUnknown, match="has forgotten the subscription"):
                    await subscription.close()
    async with moorline.connect(a.address, reconnect=False) as moor:
        left = await moor.session("durable")
        assert {one.filter for one in left} == {"orders/#", "$shared/billing/orders/#"}


async def test_a_session_that_was_opened_and_not_read_is_not_told_as_failed(nodes: Nodes) -> None:
    """It is ours by then, and was taken from another: Postgres goes before its places are read."""
    (a,) = await nodes.start("a")
    async with (
        moorline.connect(a.address, reconnect=False) as first,
        moorline.connect(a.address, reconnect=False) as second,
    ):
        await first.session("durable")
        await first.subscribe("orders/#")
        async with lost_at(nodes.dsn, "progress", mode="access exclusive"):
            with pytest.raises(OutcomeUnknown, match="on another connection is harmless"):
                await second.session("durable")
    async with moorline.connect(a.address, reconnect=False) as third:
        (resumed,) = await third.session("durable")
        assert resumed.filter == "orders/#"
