"""The page of one node of a cluster shows what all of them do, and each judges who asks through another."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.cluster.running import Nodes, metric
from tests.console.looking import Shown, has, view
from tests.console.talking import logged_in
from tests.console.test_live import (
    DESCRIBED,
    FIGURES,
    READ,
    SUBSCRIBE,
    Page,
    holders,
)
from tests.records.browser.chromium import chromium, why_not
from tests.waiting import until

import moorline

pytestmark = pytest.mark.process

GROUP = "$shared/shown/shown/#"


async def test_a_page_sees_what_every_node_does_and_how_it_is(calm: Nodes) -> None:
    async with (
        moorline.connect(calm["b"].address, reconnect=False) as moor,
        logged_in(calm["a"]) as socket,
    ):
        page = Page(socket)
        for home in ("a", "b", "c"):
            described = page.values[await page.watch(f"nodes/{home}")]
            assert (described[0], described[2]) == (DESCRIBED, home)
            assert described[5], "an operator is told the addresses of another node too"
            assert page.values[await page.watch(f"figures/{home}")][2] == home
        await moor.create_queue()
        queue = await moor.create_queue()

        async def sent(home: str) -> float:
            found = await page.answer(READ, home)
            assert found[0] == FIGURES
            assert found[2] == home
            return float(sum(found[5][0]))

        async def seen() -> bool:
            # Figures are of whole seconds, and a queue is full soon.
            await moor.send(queue.id, b"m")
            await queue.purge()
            return await sent("b") > 0

        await until(seen)
        # By one node it is seen of another, and the newest come by themselves.
        (one,) = (
            one for one, value in page.values.items() if value[2] == "b" and value[0] == FIGURES
        )
        step = page.values[one][3]
        while page.values[one][3] <= step:
            await page.pushed()


async def test_the_overview_is_of_all_nodes_or_of_one(calm: Nodes, tmp_path: Path) -> None:
    why = why_not()
    if why is not None:
        pytest.skip(why)
    (tmp_path / "profile").mkdir()
    async with chromium(tmp_path / "profile") as browser:
        tab = await Shown(calm["a"], browser).tab()
        await tab.until(has("Figures of 3 nodes together"))
        rows = "[...document.querySelectorAll('main tbody tr')].map(one => one.innerText).join()"
        assert (await tab.run(rows)).count("alive") == 3
        assert "serves this page" in await tab.run(rows)
        await view(tab, "/b", has("Figures of b alone"))
        assert await tab.run("document.querySelectorAll('main polyline').length") == 6
        await view(tab, "queues", has("Of this node alone: a"))
        await view(tab, "groups", has("Of the whole cluster"))


async def test_a_group_that_another_node_leads_is_watched_here(calm: Nodes) -> None:
    async with AsyncExitStack() as stack:
        member = await stack.enter_async_context(
            moorline.connect(calm["b"].address, reconnect=False)
        )
        await member.group(GROUP).create()
        subscription = await member.subscribe(GROUP)
        await member.publish("shown/1", b"x")
        await subscription.get(20)
        pages = [
            Page(await stack.enter_async_context(logged_in(calm[home]))) for home in ("a", "b", "c")
        ]
        for page in pages:
            one = await page.watch(f"groups/{GROUP}")
            assert len(holders(page.values[one]) - {""}) == 1
        second = await stack.enter_async_context(
            moorline.connect(calm["c"].address, reconnect=False)
        )
        await second.subscribe(GROUP)
        for page in pages:
            (one,) = page.values
            while len(holders(page.values[one]) - {""}) != 2:
                await page.pushed()


async def test_a_node_that_ends_is_told_as_such(nodes: Nodes) -> None:
    await nodes.start("a", "b")
    async with logged_in(nodes["a"]) as socket:
        page = Page(socket)
        listed = await page.watch("nodes")
        one = await page.watch("figures/b")
        await asyncio.to_thread(nodes["b"].kill)
        while one not in page.ended:
            await page.pushed()
        assert page.ended[one] in ("CONNECTION_LOST", "INTERNAL")
        while all(node[7] for node in page.values[listed][2]):
            await page.pushed()
        assert metric(nodes["a"], "views_watched") == 1


async def test_who_may_not_look_is_refused_by_the_other_node_too(calm: Nodes) -> None:
    async with moorline.connect(calm["a"].address, reconnect=False) as moor:
        await moor.access.add_user("wiebke", b"swordfish")
    async with logged_in(calm["a"], "password", "wiebke\0swordfish") as socket:
        page = Page(socket)
        for call in ([READ, "b"], [SUBSCRIBE, "figures/b"], [SUBSCRIBE, "nodes/b"]):
            assert (await page.answer(*call))[2] == "DENIED", call
        assert not page.pushes
