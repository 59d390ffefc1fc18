"""The page of a node in a real Chromium, clicked through while things move."""

import asyncio
from pathlib import Path

import pytest
from tests.console.looking import ASKED, TEXT, Shown, agree, click, counted, has, view
from tests.process.nodes import NodeProcess

import moorline
from moorline.ids import text_of
from moorline.wire.view import FiguresRead, ReadFigures

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="session")]

HOSTILE = "orders/<img src=x onerror=\"document.title='broken'\">\u202eevil"


async def test_whoever_has_the_address_sees_the_node(shown: Shown) -> None:
    tab = await shown.tab()
    await tab.until(has("connections"))
    assert await tab.run("location.hash") == "", "the pass is not left in the address"
    await tab.until("document.querySelector('tbody').innerText.includes('alive')")
    assert await tab.run("document.title") == "node-1 · Moorline"
    await tab.reload()
    await tab.until(has("connections"))


async def test_a_stranger_is_asked_who_it_is(shown: Shown) -> None:
    tab = await shown.tab(f"{shown.node.http}/console/")
    assert "Who looks?" in await tab.run(TEXT)
    tab = await shown.tab(f"{shown.node.http}/console/#pass={'x' * 43}")
    await tab.until(has("this pass is not known here"))


async def test_a_user_logs_in_and_sees_what_it_may(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor:
        await moor.access.add_user("wilma", b"swordfish")
    tab = await shown.tab(f"{shown.node.http}/console/")
    await tab.run(
        "document.querySelector('[name=user]').value = 'wilma';"
        "document.querySelector('[name=secret]').value = 'swordfish';"
        "document.querySelector('form').requestSubmit()"
    )
    await view(tab, "access", has("wilma"))
    await view(tab, "access/rows", has("DENIED"))


async def test_text_from_the_network_is_text(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor:
        await moor.publish(HOSTILE, b"<script>document.title='broken'</script>")
    tab = await shown.tab()
    await view(tab, "topics", has("<img src=x"))
    assert "\\u202eevil" in await tab.run(TEXT)
    await view(tab, "messages", "document.querySelector('main form') !== null")
    await tab.run("document.querySelector('main form').requestSubmit()")
    await tab.until(has("shown, among"))
    assert "<script>" in await tab.run("document.querySelector('pre').textContent")
    assert await tab.run("document.querySelectorAll('main img, main script').length") == 0
    assert "broken" not in await tab.run("document.title")


async def test_a_message_is_found_by_what_is_in_it(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor:
        await moor.publish_all(
            [
                moorline.record("found/here", b"number %d" % n, key=b"k%d" % (n % 2))
                for n in range(300)
            ]
        )
        since = len(await _looks(moor))
        tab = await shown.tab()
        await view(tab, "messages/found%2F%23", "document.querySelector('main form') !== null")
        await tab.run(
            "document.querySelector('[name=contains]').value = 'number 29';"
            "document.querySelector('[name=key]').value = 'k1';"
            "document.querySelector('main form').requestSubmit()"
        )
        await tab.until(has("6 shown"))  # 29, 291, 293, 295, 297, 299
        assert len(await _looks(moor)) > since, "a look is an act of the audit"


async def _looks(moor: moorline.Moor) -> list[bytes]:
    from moorline.wire.audit import AuditRead, ReadAudit

    page = await moor._caller.call(lambda call: ReadAudit(call, path="/topics"), AuditRead)
    return [line for line in page.lines if b"BrowseStream" in line]


async def test_a_queue_is_looked_into_and_blocked_by_clicking(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor:
        queue = await moor.create_queue()
        await moor.send(queue.id, b'{"ahoy": 1}')
        tab = await shown.tab()
        await view(
            tab,
            f"queues/one/{text_of(queue.id)}",
            "document.querySelector('pre')?.textContent.includes('ahoy')",
        )
        await click(tab, "Block")
        await tab.until("document.getElementById('asked').open")
        await tab.run("document.querySelector('#asked button[value=no]').click()")
        assert not (await moor.queue(queue.id).info()).is_blocked
        await click(tab, "Block")
        await agree(tab)
        await tab.until(has("blocked"))
        assert (await moor.queue(queue.id).info()).is_blocked


async def test_a_plot_is_whole_when_the_page_opens_and_moves_without_being_asked_for(
    shown: Shown,
) -> None:
    async with moorline.connect(shown.node.address) as moor:
        queue = await moor.create_queue()
        for _ in range(5):
            await moor.send(queue.id, b"m")

        async def steps() -> list[float]:
            found = await moor._caller.call(ReadFigures, FiguresRead)
            return list(found.series[0])

        # A step that has them, and one behind it.
        while len(kept := await steps()) < 3 or not any(kept[:-1]):
            await asyncio.sleep(0.05)
        tab = await counted(shown, await shown.browser.profile())
        await tab.until("document.querySelector('main polyline') !== null")
        points = "document.querySelector('main polyline').points"
        drawn = await tab.run(f"{points}.length")
        assert drawn >= len(kept)
        assert await tab.run(f"[...{points}].some(one => one.y < 80)"), "what was sent before"
        before = await tab.run(ASKED)
        await tab.until(f"{points}.length >= {drawn + 2}")
        assert await tab.run(ASKED) == before, "the page has asked for what it was told"


async def test_a_question_is_answered_where_nothing_is_painted(shown: Shown) -> None:
    """A dialog tells of its end with the next frame, and a window behind others may have none for long."""
    async with moorline.connect(shown.node.address) as moor:
        queue = await moor.create_queue()
        profile = await shown.browser.profile()
        tab = await shown.browser.tab(profile, "about:blank")
        url = await asyncio.to_thread(shown.url)
        await tab.say("Page.navigate", url=url)
        await tab.until("document.querySelector('h1') !== null")
        await view(tab, f"queues/one/{text_of(queue.id)}", has("What waits"))
        await shown.browser.tab(profile, "about:blank")
        await tab.until("document.hidden")
        await click(tab, "Block")
        await agree(tab)
        await tab.until(has("blocked"))
        assert (await moor.queue(queue.id).info()).is_blocked


async def read(moor: moorline.Moor, name: str) -> None:
    async for message in moor.subscribe(name, start="beginning"):
        await message.ack()


async def test_a_group_is_a_grid_that_moves(shown: Shown) -> None:
    name = "$shared/crew/grid/#"
    rows = "[...document.querySelectorAll('main table')[0].querySelectorAll('tbody tr')]"
    held = f"{rows}.map(one => one.querySelectorAll('span.granted').length).join()"
    async with (
        moorline.connect(shown.node.address) as moor,
        moorline.connect(shown.node.address) as second,
    ):
        await moor.publish_all([moorline.record(f"grid/{n}", b"m") for n in range(64)])
        tab = await shown.tab()
        reading = [asyncio.create_task(read(moor, name))]
        try:
            await view(
                tab,
                "groups/one/%24shared%2Fcrew%2Fgrid%2F%23",
                f"document.querySelector('main table') !== null && {held} === '8'",
            )
            reading.append(asyncio.create_task(read(second, name)))
            await tab.until(f"{held} === '4,4'")
            reading[0].cancel()
            await tab.until(f"{held} === '8'")
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)


async def test_a_node_that_comes_back_is_seen_again(shown: Shown, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        url = node.http
        other = Shown(node, shown.browser)
        tab = await other.tab()
        node.kill()
        await tab.until("document.getElementById('state').textContent.startsWith('away')")
    with NodeProcess(tmp_path / "data", f"--http={url.removeprefix('http://')}"):
        # Its passes went with it.
        await tab.until(has("Who looks?"))


async def test_every_view_is_drawn_on_a_narrow_screen_without_running_over(shown: Shown) -> None:
    tab = await shown.tab()
    for width in (390, 1_280):
        await tab.say(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        for name in (
            "",
            "queues",
            "services",
            "topics",
            "messages",
            "groups",
            "access",
            "access/rows",
            "access/audit",
        ):
            await view(tab, name, "document.querySelector('main h1') !== null")
            assert "A mistake in this page" not in await tab.run(TEXT)
            assert await tab.run(f"document.documentElement.scrollWidth <= {width}"), (
                name,
                width,
            )


async def test_a_page_of_many_queues_and_groups_is_whole(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor:
        await moor.create_queues(2_000)
    tab = await shown.tab()
    await view(tab, "queues", "document.querySelectorAll('tbody tr').length === 50")
    await tab.run(
        "[...document.querySelectorAll('a')].find(one => one.textContent === 'Next page').click()"
    )
    await tab.until("location.hash.startsWith('#/queues/all/')")
    await tab.until("document.querySelectorAll('tbody tr').length === 50")
