"""Pages of lists, pushed: each is the answer to the call for it, judged and computed as every view is; and in
a browser nothing is asked for again, whatever changes."""

import asyncio
import base64
import json

import msgspec
import pytest
from tests.cluster.running import metric
from tests.console.looking import ASKED, TEXT, Shown, counted, has, view
from tests.console.talking import logged_in
from tests.console.test_live import SUBSCRIBE, Page
from tests.waiting import until

import moorline
from moorline.ids import text_of
from moorline.wire.audit import AuditRead, ReadAudit
from moorline.wire.group import ListGroups
from moorline.wire.message import Call
from moorline.wire.pipeline_run import ListRuns, TellRun
from moorline.wire.queue import ListQueues
from moorline.wire.record_tables import ListRecordTables
from moorline.wire.resolver import ListPaths
from moorline.wire.service_operator import ListServices
from moorline.wire.topic import DescribeStreams, ListTopics

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="session")]

LINES = "[...document.querySelectorAll('tbody a')]"


def said(call: Call) -> str:
    """The view of a list, as a page names it."""
    return f"list/{msgspec.json.encode(call).decode()}"


LISTS: dict[str, Call] = {
    "queues": ListQueues(0, count=50, has_facts=True),
    "topics": ListTopics(0, count=50),
    "streams": DescribeStreams(0, count=50),
    "groups": ListGroups(0, count=50),
    "services": ListServices(0),
    "paths": ListPaths(0, path="/"),
    "runs": ListRuns(0),
    "tables": ListRecordTables(0),
}


async def test_each_list_is_the_answer_to_its_call(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor, logged_in(shown.node) as socket:
        queue = await moor.create_queue()
        await moor.group("$shared/listed/listed/#").create()
        page = Page(socket)
        for name, call in LISTS.items():
            one = await page.watch(said(call))
            fields = json.loads(msgspec.json.encode(call))
            answer = await page.answer(fields[0], *fields[2:])
            assert page.values[one][0] == answer[0], name
            assert len(page.values[one]) == len(answer), name
            assert page.values[one][1] == 0, "it answers nobody's call"
        first = await page.watch(said(LISTS["queues"]))
        assert queue.id in {base64.b64decode(one[0]) for one in page.values[first][3]}
        # However it is written, it is one list.
        short = 'list/[36,7,"",50,"",true]'
        assert await page.watch(short) == first
        for none in ("list/", "list/[36]", 'list/[34,0,"AA=="]', "list/[36,0,1]"):
            assert (await page.answer(SUBSCRIBE, none))[2] == "NOT_FOUND", none


async def test_a_list_needs_the_right_and_ends_with_it(shown: Shown) -> None:
    node = shown.node
    async with moorline.connect(node.address) as moor:
        await moor.access.add_user("lisbeth", b"swordfish")
        async with logged_in(node, "password", "lisbeth\0swordfish") as socket:
            page = Page(socket)
            for name, call in LISTS.items():
                if name != "paths":
                    assert (await page.answer(SUBSCRIBE, said(call)))[2] == "DENIED", name
            # This one is cut by what each may see: who sees less looks at another view.
            async with logged_in(node) as of_operator:
                whole = await Page(of_operator).watch(said(LISTS["paths"]))
                assert await page.watch(said(LISTS["paths"])) != whole
            await moor.access.add_grant("/queues", "lisbeth", "l")
            while (await page.answer(SUBSCRIBE, said(LISTS["queues"])))[2] == "DENIED":
                await asyncio.sleep(0.05)
            one = await page.watch(said(LISTS["queues"]))
            await moor.access.remove_grant("/queues", "lisbeth")
            while one not in page.ended:
                await page.pushed()
            assert page.ended[one] == "DENIED"
        found = await moor._caller.call(
            lambda call: ReadAudit(call, principal="lisbeth"), AuditRead
        )
        assert any(b"SubscribeView" in line and b"/queues" in line for line in found.lines), (
            "the audit hears of it"
        )


async def test_what_changes_in_a_list_is_seen_without_being_asked_for(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor:
        queue = await moor.create_queue()
        tab = await counted(shown, await shown.browser.profile())
        name = text_of(queue.id)
        await view(tab, "queues/waiting", has("at this node"))
        assert name not in await tab.run(TEXT)
        asked = await tab.run(ASKED)
        await moor.send(queue.id, b"m")
        await tab.until(has(name))
        await tab.until(has("1 of 128"))
        assert await tab.run(ASKED) == asked, "the page has asked for what it was told"

        await view(tab, "groups", has("Members of a group"))
        asked = await tab.run(ASKED)
        await moor.group("$shared/newest/newest/#").create()
        await tab.until(has("$shared/newest/newest/#"))
        await view(tab, "topics", has("Durable and replayable"))
        await moor.publish("seen/at/once", b"m")
        await tab.until(has("seen/at/once"))
        await view(tab, "pipeline", has("Jobs over all the data"))
        asked = await tab.run(ASKED)
        await moor.pipeline_runs.tell(TellRun(0, "pushed", "verify", "./pushed", "running", 1, 8))
        await tab.until(has("1 of 8"))
        await moor.pipeline_runs.tell(TellRun(0, "pushed", "verify", "./pushed", "running", 7, 8))
        await tab.until(has("7 of 8"))
        assert await tab.run(ASKED) == asked

        await view(tab, f"queues/one/{name}", has("1 shown"))
        await tab.run("document.querySelector('main details').open = true")
        asked = await tab.run(ASKED)
        await moor.send(queue.id, b"another")
        await tab.until(has("2 of 128"))
        # What was looked into stays as it is, until somebody looks again.
        assert await tab.run("document.querySelector('main details').open")
        assert await tab.run(has("1 shown"))
        assert await tab.run(ASKED) == asked
        await tab.close()


async def test_only_the_page_of_a_list_that_is_looked_at_is_watched(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor:
        await moor.create_queues(60)
    profile = await shown.browser.profile()
    tab = await counted(shown, profile)
    await view(tab, "queues", f"{LINES}.length === 50")
    await until(lambda: metric(shown.node, "views_watched") == 1)
    first = await tab.run(f"{LINES}[0].textContent")
    await tab.run(
        "[...document.querySelectorAll('a')].find(one => one.textContent === 'Next page').click()"
    )
    await tab.until(f"{LINES}.length && {LINES}[0].textContent !== {json.dumps(first)}")
    await until(lambda: metric(shown.node, "views_watched") == 1)
    # A window behind another one is seen by nobody: nothing is computed for it.
    await shown.browser.tab(profile, "about:blank")
    await tab.until("document.hidden")
    await until(lambda: metric(shown.node, "views_watched") == 0)
