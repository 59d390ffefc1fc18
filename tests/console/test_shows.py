"""What views show of things that live: the resolver's tree, a table with a subscriber, a look that is
stopped; and what somebody sees that may do nothing."""

import asyncio

import asyncpg
import pytest
from tests.console.looking import TEXT, Shown, agree, click, fill, has, submit, view
from tests.process.nodes import run_moor

import moorline
from moorline.ids import text_of

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="session")]

FORM = "document.querySelector('main form') !== null"
TOLD = "document.getElementById('told').textContent"


async def test_the_tree_of_the_resolver_leads_to_who_publishes(shown: Shown) -> None:
    tab = await shown.tab()
    async with moorline.Publisher(shown.node.address.replace("tcp://", "moor://")) as publisher:
        publisher.publish("/oslo/quay/tide", 1.5)
        await publisher.commit()
        await view(tab, "paths", has("/oslo"))
        for level in ("oslo", "quay", "tide"):
            links = "[...document.querySelectorAll('main td a')]"
            found = f"{links}.find(one => one.textContent.endsWith('{level}'))"
            await tab.until(f"{found} !== undefined && ({found}.click(), true)")
        await tab.until(has("priority"))
        assert "127.0.0.1" in await tab.run(TEXT)


async def test_a_table_is_shown_with_who_is_subscribed_and_how_it_stands(shown: Shown) -> None:
    folder = (shown.node.data / "run").resolve()
    postgres = await asyncpg.connect(f"postgresql://postgres@/postgres?host={folder}&port=5432")
    try:
        await postgres.execute("create table quays (id bigint primary key, state text not null)")
    finally:
        await postgres.close()
    added = ("records", "add", "quays", "--key=id", "--filter=state", f"--data={shown.node.data}")
    done = await asyncio.to_thread(run_moor, *added)
    assert done.returncode == 0, done.stderr
    tab = await shown.tab()
    await view(tab, "records", has("quays"))
    async with (
        moorline.connect(shown.node.address) as moor,
        moor.records("quays", where={"state": ["free"]}),
    ):
        # It comes without being asked for.
        await tab.until(has("followed"))
        await view(tab, "records/one/quays", has("live"))
        assert "state = free" in await tab.run(TEXT)


async def test_a_look_is_stopped_and_says_how_far_it_came(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor:
        await moor.publish_all([moorline.record("deep/sea", b"x" * 60_000) for _ in range(200)])
    tab = await shown.tab()
    await view(tab, "messages/deep%2F%23", FORM)
    # While its third question is asked somebody stops it.
    await tab.run(
        "const say = WebSocket.prototype.send; window.looks = 0;"
        "WebSocket.prototype.send = function (text) {"
        "  if (JSON.parse(text)[0][0] === 460 && ++window.looks === 3) {"
        "    [...document.querySelectorAll('main button')].find(one => one.textContent === 'Stop').click(); }"
        "  say.call(this, text); }"
    )
    await fill(tab, "contains", "not there")
    await submit(tab, "filter")
    await tab.until(has("; stopped"))
    looks = await tab.run("window.looks")
    # More than those that were under way it has not asked for.
    assert 3 <= looks <= 3 + 4, looks
    assert "0 shown, among" in await tab.run(TEXT)


async def test_who_has_no_grant_sees_and_changes_nothing(shown: Shown) -> None:
    async with moorline.connect(shown.node.address) as moor:
        queue = await moor.create_queue()
        group = "$shared/kept/kept/#"
        await moor.group(group).create()
        await moor.access.add_user("vera", b"swordfish")
        for path in ("/queues", "/groups", "/topics", "/admin/cluster"):
            await moor.access.add_grant(path, "vera", "l")
        tab = await shown.tab(f"{shown.node.http}/console/")
        await tab.run(
            "document.querySelector('[name=user]').value = 'vera';"
            "document.querySelector('[name=secret]').value = 'swordfish';"
            "document.querySelector('form').requestSubmit()"
        )
        await tab.until("document.querySelector('.leave summary')?.textContent === 'vera'")
        await view(tab, "queues", has(text_of(queue.id)))
        await view(tab, f"queues/one/{text_of(queue.id)}", has("What waits"))
        for label in ("Block", "Delete"):
            await tab.run("document.getElementById('told').textContent = ''")
            await click(tab, label)
            await agree(tab)
            await tab.until(f"{TOLD}.startsWith('DENIED')")
        await view(tab, "groups/one/%24shared%2Fkept%2Fkept%2F%23", has("Who reads what"))
        await tab.run("document.getElementById('told').textContent = ''")
        await click(tab, "Delete the group")
        await agree(tab)
        await tab.until(f"{TOLD}.startsWith('DENIED')")
        info = await moor.queue(queue.id).info()
        assert not info.is_blocked
        assert (await moor.group(group).info()).group.name == group
        # What waits in queues, and what is in messages, needs a right of its own.
        await view(tab, f"queues/one/{text_of(queue.id)}", has("DENIED"))
