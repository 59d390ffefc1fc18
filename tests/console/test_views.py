"""What people do by the page, view by view: counted before it is done, and really done."""

import asyncio
import datetime
import json

import msgspec
import pytest
from tests.console.looking import TEXT, Shown, agree, asked, click, fill, has, submit, view
from tests.records.browser.chromium import Tab

import moorline
from moorline.ids import text_of
from moorline.wire.pipeline_run import TellRun
from moorline.wire.queue_contents import PeekQueue, QueuePeeked

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="session")]

FORM = "document.querySelector('main form') !== null"


async def bury(moor: moorline.Moor, name: str, bodies: list[bytes]) -> None:
    """Messages that a group gives up at the first failure."""
    group = f"$shared/{name}/{name}/#"
    await moor.group(group).create(deliveries_max=1)
    records = [moorline.record(f"{name}/in", body, headers={"from": "test"}) for body in bodies]
    await moor.publish_all(records)
    letters = await moor.subscribe(f"$dead/{name}/#", start="beginning")
    subscription = await moor.subscribe(group)
    for _ in bodies:
        await (await anext(subscription)).reject()
    for _ in bodies:
        await (await anext(letters)).ack()
    await subscription.close()
    await letters.close()


async def look(tab: Tab, **fields: str) -> None:
    for name, value in fields.items():
        await fill(tab, name, value)
    # What the look before has said is not the answer to this one.
    await tab.run("document.querySelector('main [role=status]').textContent = ''")
    await submit(tab, "filter")
    await tab.until(has("shown, among"))


async def test_dead_letters_are_sent_back_by_filter_and_singly(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor:
        await bury(moor, "lost", [b"letter-%d" % n for n in range(3)] + [b"other"])
        tab = await shown.tab()
        await view(tab, "messages/%24dead%2F%23", FORM)
        back = await moor.subscribe("lost/in", start="now")
        await look(tab, contains="letter-")
        await click(tab, "Send 3 letters back …")
        question = await asked(tab)
        assert "Send 3 dead letters back, from 20" in question
        assert "lost/in: 3" in question
        # Nothing is done before that is agreed to.
        await tab.run("document.querySelector('#asked button[value=no]').click()")
        await click(tab, "Send 3 letters back …")
        await agree(tab)
        got = {}
        for _ in range(3):
            message = await anext(back)
            got[message.body] = dict(message.headers)
            await message.ack()
        assert set(got) == {b"letter-0", b"letter-1", b"letter-2"}
        assert all(headers == {"from": b"test"} for headers in got.values())
        # Whoever clicks twice sends none twice.
        await click(tab, "Send 3 letters back …")
        await agree(tab)
        await tab.until(
            "document.getElementById('told').textContent.includes('had been sent back before')"
        )
        await look(tab, contains="other")
        await tab.run("document.querySelector('main details').open = true")
        await click(tab, "Send back")
        assert "Send 1 dead letter back" in await asked(tab)
        await agree(tab)
        message = await anext(back)
        assert message.body == b"other"


async def test_a_group_is_moved_by_time_and_the_count_is_shown_first(shown: Shown) -> None:
    group = "$shared/movers/moved/#"
    async with moorline.connect(shown.node.address) as moor:
        await moor.publish_all([moorline.record("moved/x", b"before") for _ in range(5)])
        await moor.group(group).create(start="beginning")
        plan = await moor.group(group).plan_seek("now")
        assert (plan.again, plan.passed) == (0, sum(one.target - one.offset for one in plan.steps))
        later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
        tab = await shown.tab()
        await view(tab, "groups/one/%24shared%2Fmovers%2Fmoved%2F%23", FORM)
        await fill(tab, "to", "time")
        await fill(tab, "time", later.strftime("%Y-%m-%dT%H:%M:%S"))
        # The view is drawn anew all the time, and leaves what somebody fills in.
        await asyncio.sleep(0)
        await click(tab, "Count and move …")
        question = await asked(tab)
        assert (
            f"0 messages would come again, {plan.passed:,} unread ones would be passed" in question
        )
        await agree(tab)
        async with asyncio.timeout(30):
            while sum(one.lag for one in (await moor.group(group).info()).cursors):
                await asyncio.sleep(0.05)
        back = await moor.group(group).plan_seek("beginning")
        assert back.passed == 0
        assert back.again >= 5


async def test_runs_of_the_pipeline_are_seen_as_they_go(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor:
        run = TellRun(0, "nightly", "verify", "<b>./archive</b>", "running", 3, 8)
        await moor.pipeline_runs.tell(run)
        tab = await shown.tab()
        await view(tab, "pipeline", has("3 of 8"))
        assert "<b>./archive</b>" in await tab.run(TEXT)
        ended = msgspec.structs.replace(
            run, state="done", done=8, is_proven=True, proof="8 of 8 streams are proven equal"
        )
        await moor.pipeline_runs.tell(ended)
        await tab.until(has("8 of 8 streams are proven equal"))
        await tab.until(has("proven"))


async def test_quotas_are_set_and_taken_away(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor:
        await moor.access.add_user("quentin", b"swordfish")
        tab = await shown.tab()
        await view(tab, "access/quotas/quentin", has("At this node now"))
        await fill(tab, "kind", "queues")
        await fill(tab, "amount", "7")
        await submit(tab, "amount")
        await agree(tab)
        await tab.until(has("Take away"))
        rows = await moor.access.quotas("quentin")
        assert [(one.kind, one.amount) for one in rows] == [("queues", 7)]
        await click(tab, "Take away")
        await agree(tab)
        await tab.until(has("no rows"))
        assert not await moor.access.quotas("quentin")


async def test_queues_are_narrowed_and_what_waits_is_picked_by_the_node(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor:
        queues = await moor.create_queues(3)
        for n in range(30):
            await moor.send(queues[0].id, msgspec.msgpack.encode({"parcel": n}))
        await moor.queue(queues[1].id).block()
        tab = await shown.tab()
        await view(tab, "queues/waiting", has(text_of(queues[0].id)))
        assert text_of(queues[2].id) not in await tab.run(TEXT)
        await tab.until(has("30 of 128"))
        await view(tab, "queues/shut", has(text_of(queues[1].id)))
        assert text_of(queues[0].id) not in await tab.run(TEXT)
        picked = await moor._caller.call(
            lambda call: PeekQueue(call, queues[0].id, contains=b"\x07"), QueuePeeked
        )
        assert [msgspec.msgpack.decode(one.body) for one in picked.messages] == [{"parcel": 7}]
        assert picked.is_all
        assert picked.upto > picked.messages[-1].message
        await view(tab, f"queues/one/{text_of(queues[0].id)}", has("30 shown"))
        shown_as = await tab.run("document.querySelector('main pre').textContent")
        assert json.loads(shown_as) == {"parcel": 0}


async def test_messages_are_found_from_an_offset_and_a_time(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor:
        stored = await moor.publish_all(
            [moorline.record("placed/here", b"n%d" % n, key=b"same") for n in range(40)]
        )
        last = stored[-1]
        tab = await shown.tab()
        await view(tab, "messages/placed%2F%23", FORM)
        await look(tab, since="offset", offset=str(last.offset - 9), shard=str(last.shard))
        assert "10 shown" in await tab.run(TEXT)
        await look(tab, since="5")
        await tab.until(has("40 shown"))
        await look(tab, since="time", **{"from": "2999-01-01T00:00:00"})
        await tab.until(has("0 shown"))


async def test_a_long_message_is_downloaded_whole(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor:
        await moor.publish("long/one", bytes(range(256)) * 1_000)
    tab = await shown.tab()
    # What would be saved is kept by the page, and looked at there.
    await tab.run(
        "URL.createObjectURL = (blob) => { window.saved = blob; return '#'; };"
        "HTMLAnchorElement.prototype.click = () => {}"
    )
    await view(tab, "messages/long%2F%23", FORM)
    await look(tab)
    await tab.run("document.querySelector('main details').open = true")
    await click(tab, "Download")
    await tab.until("window.saved !== undefined")
    assert await tab.run("window.saved.size") == 256_000
    await tab.until(has("the beginning of 65536 bytes"))


async def test_the_views_leave_what_somebody_writes(shown: Shown) -> None:
    """A view that is drawn anew each second changes what has changed, and nothing else."""
    tab = await shown.tab()
    await view(tab, "queues", "document.querySelector('[name=id]') !== null")
    await tab.run(
        "window.field = document.querySelector('[name=id]');"
        "field.focus(); field.value = 'half an id'; window.drawn = 0;"
        "new MutationObserver(() => window.drawn++).observe("
        "document.querySelector('main'), {subtree: true, childList: true, characterData: true})"
    )
    async with moorline.connect(shown.node.address) as moor:
        await moor.create_queue()
        await tab.until("window.drawn > 0")
    assert await tab.run("document.activeElement === field && field.isConnected")
    assert await tab.run("field.value") == "half an id"
