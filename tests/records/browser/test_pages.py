"""The client of records in pages of a real Chromium, against a real node and Postgres."""

import asyncio
import urllib.error
import urllib.request
from email.message import Message

import pytest
import xxhash
from tests.records.browser.place import Place
from tests.records.browser.scripts import (
    BLOCKED,
    CHECK,
    HASHES,
    HIDE,
    HOOKS,
    LOSING,
    SHOW,
    cached,
    equal,
    equal_count,
    filled,
    in_cache,
    opened,
    rows_of,
)
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")


LENGTHS = [*range(301), 1_023, 1_024, 1_025, 1_088, 2_049, 4_108]
SEEDS = [0, 1, 0xFFFFFFFF, 0x9E3779B97F4A7C15, (1 << 64) - 1]


async def test_the_hash_is_that_of_python(place: Place) -> None:
    tab = await place.tab()
    data = bytes((at * 131 + 7) & 255 for at in range(5_000))
    found = await tab.run(filled(HASHES, lengths=LENGTHS, seeds=[str(seed) for seed in SEEDS]))
    assert found == [
        [xxhash.xxh3_128_hexdigest(data[:length], seed) for seed in SEEDS] for length in LENGTHS
    ]


async def test_a_first_sync_and_then_what_changes(place: Place) -> None:
    await rows_of(place, 1)
    tab = await place.tab()
    await opened(place, tab, 1)
    await equal(place, tab, 1)
    assert await tab.run("table.details.how") == "full"
    await tab.run("""(async () => {
      window.read = [];
      for await (const change of table.changes()) read.push([change.kind, change.key, change.row.state]);
      window.isRead = true;
    })(); 0""")
    await place.site.execute(
        "update things set state = 'RUNNING' where id = 1000",
        "delete from things where id = 1001",
        "update things set workspace_id = 901 where id = 1002",
        "insert into things values (1999, 1, 'ADDED', null)",
    )
    await equal(place, tab, 1)
    await tab.until("read.length === 4")
    assert sorted(await tab.run("read")) == [
        ["deletion", "1001", "NEW"],
        ["deletion", "1002", "NEW"],
        ["record", "1000", "RUNNING"],
        ["record", "1999", "ADDED"],
    ]
    assert await tab.run("[table.details.how, table.details.drifts]") == ["live", 0]
    await tab.run("table.close()")
    await tab.until("window.isRead")
    await until(lambda: place.subscriptions() == 0, "the subscription has ended")


async def test_the_example_shows_rows_and_text_stays_text(place: Place) -> None:
    note = "<script>window.isBroken = true</script><img src=x onerror='window.isBroken = true'>"
    await place.site.connection.execute("insert into things values (2000, 2, 'NEW', $1)", note)
    tab = await place.tab(url=f"{place.pages}/")
    values = {
        "url": place.url,
        "table": "things",
        "where": '{"workspace_id": 2}',
        "token": place.token,
    }
    await tab.run(filled(SHOW, values=values))
    await tab.until("document.querySelectorAll('tbody tr').length === 1")
    assert note in await tab.run("document.querySelector('tbody').innerText")
    assert await tab.run("document.querySelectorAll('tbody script, tbody img').length") == 0
    assert await tab.run("window.isBroken") is None
    await place.site.execute(
        "insert into things values (2001, 2, 'NEW', 'second')",
        "update things set note = 'changed' where id = 2000",
    )
    await tab.until("[...document.querySelectorAll('tbody tr')].length === 2")
    await tab.until("document.querySelector('tbody tr').textContent.endsWith('changed')")
    await tab.until("document.querySelector('#status').textContent === '2 rows, live'")
    await tab.say(
        "Emulation.setDeviceMetricsOverride",
        width=360,
        height=720,
        deviceScaleFactor=2,
        mobile=True,
    )
    assert await tab.run("document.documentElement.scrollWidth <= 360"), "no scrolling sideways"


async def test_a_page_comes_back_when_the_node_was_killed(place: Place) -> None:
    await rows_of(place, 3)
    tab = await place.tab()
    await opened(place, tab, 3)
    await equal(place, tab, 3)
    place.kill()
    await tab.until("table.status === 'apart' || table.status === 'connecting'")
    await place.site.execute(
        "delete from things where id = 3000", "update things set note = 'away' where id = 3001"
    )
    place.start()
    await equal(place, tab, 3)
    assert await tab.run("[table.details.how, table.details.drifts]") == ["replay", 0]
    heard = await tab.run("batches.flat().slice(300)")
    assert sorted(heard) == [["deletion", "3000"], ["record", "3001"]], (
        "what has changed, and no more"
    )


async def test_rows_are_there_after_a_reload(place: Place) -> None:
    await rows_of(place, 4)
    tab = await place.tab()
    await opened(place, tab, 4, cache=True)
    await equal(place, tab, 4)
    await cached(tab, 300)
    await tab.reload()
    await place.site.execute("delete from things where id = 4000")
    await opened(place, tab, 4, cache=True)
    await equal(place, tab, 4)
    assert await tab.run("[table.details.how, table.details.drifts]") == ["replay", 0]
    assert await tab.run("batches[0].length") == 300, "from the cache, before the node was asked"
    assert await tab.run("batches.slice(1).flat()") == [["deletion", "4000"]]
    await tab.reload()
    await opened(place, tab, 4, cache=True, user="another")
    await equal(place, tab, 4)
    assert await tab.run("table.details.how") == "full", "a cache is of one user"


@pytest.mark.parametrize("has_cursor", [True, False])
async def test_t69_a_cache_from_before_a_column_gets_all_rows_anew(
    place: Place, *, has_cursor: bool
) -> None:
    """By their keys and numbers the rows are the node's; only their columns are others."""
    await rows_of(place, 40)
    tab = await place.tab()
    await opened(place, tab, 40, cache=True)
    await equal(place, tab, 40)
    await cached(tab, 300)
    await tab.reload()
    if not has_cursor:
        await tab.run(
            in_cache(
                "const copies = work.objectStore('copies'); "
                "for (const one of await brought(copies.getAll())) copies.put({ ...one, cursor: '' });"
            )
        )
    await place.site.execute("alter table things add column size integer default 7")
    try:
        await opened(place, tab, 40, cache=True)
        await equal(place, tab, 40)
        assert await tab.run("table.rows.get('40000').size") == 7
        assert await tab.run("[table.details.how, table.details.drifts]") == ["full", 0]
        await tab.until(
            in_cache(
                "const [about] = await brought(work.objectStore('copies').getAll());"
                "return about.cursor !== '' && about.columns.some(({ name }) => name === 'size');"
            )
        )
        await tab.reload()
        await opened(place, tab, 40, cache=True)
        await equal(place, tab, 40)
        assert await tab.run("table.details.how") == "replay", "it is of one kind again"
        await tab.run("table.close()")
    finally:
        await place.site.execute(
            "alter table things drop column size", "delete from things where workspace_id = 40"
        )


async def test_a_copy_that_missed_something_heals(place: Place) -> None:
    await rows_of(place, 10)
    tab = await place.tab()
    await opened(place, tab, 10)
    await equal(place, tab, 10)
    await tab.run(LOSING)
    changes = {
        "record": "update things set note = 'missed' where id = 10001",
        "deletion": "delete from things where id = 10002",
    }
    for drifts, (lost, change) in enumerate(changes.items(), 1):
        await tab.run(f"window.lost = '{lost}'")
        await place.site.execute(change)
        await tab.until(f"table.details.drifts === {drifts}")
        await equal(place, tab, 10)
        assert await tab.run("table.details.how") == "digest"
    assert await tab.run("batches.slice(1).flat()") == [
        ["deletion", "10001"],
        ["record", "10001"],
        ["deletion", "10002"],
    ]


async def test_many_differences_are_found_by_walking_deeper(place: Place) -> None:
    await rows_of(place, 30, 20_000)
    tab = await place.tab()
    await opened(place, tab, 30, cache=True)
    await equal_count(tab, 20_000)
    await cached(tab, 20_000)
    await tab.reload()
    await tab.run(
        in_cache(
            "for (const { copy, name } of (await brought(rows.getAll())).slice(0, 3000)) "
            "rows.delete([copy, name]);"
        )
    )
    await opened(place, tab, 30, cache=True)
    await equal_count(tab, 20_000)
    assert await tab.run("table.details.how") == "digest"
    assert await tab.run("batches.slice(1).flat().length") == 3_000, "what was lacking, and no more"


ALTERED = {
    "a row is gone": "rows.delete([one.copy, one.name]);",
    "a row has another text": "rows.put({ ...one, text: one.text.replace('NEW', 'OLD') });",
    "a row is there that the node has not": (
        "rows.put({ ...one, name: '77', key: ['77'], check: checkOf(`77 ${one.seq} ${one.text}`) });"
    ),
    "an older version": (
        "rows.put({ ...one, seq: 1, check: checkOf(`${one.name} 1 ${one.text}`) });"
    ),
}


async def test_a_cache_that_was_altered_is_found_and_healed(place: Place) -> None:
    await rows_of(place, 5)
    tab = await place.tab()
    for what, alteration in ALTERED.items():
        await opened(place, tab, 5, cache=True)
        await equal(place, tab, 5)
        await cached(tab, 300)
        await tab.reload()
        await tab.run(
            in_cache(f"{CHECK} const one = (await brought(rows.getAll()))[7]; {alteration}")
        )
        await opened(place, tab, 5, cache=True)
        await equal(place, tab, 5)
        assert await tab.run("table.details.how") == "digest", what
        assert await tab.run("batches.slice(1).flat().length") <= 2, what
        await cached(tab, 300)
        await tab.reload()


async def test_two_tabs_share_one_connection(place: Place) -> None:
    await rows_of(place, 6)
    profile = await place.profile()
    first, second = await place.tab(profile), await place.tab(profile)
    await until(lambda: place.subscriptions() == 0, "those of other tests are over")
    await opened(place, first, 6)
    await equal(place, first, 6)
    await opened(place, second, 6)
    await equal(place, second, 6)
    assert [await tab.run("table.details.isLeading") for tab in (first, second)] == [True, False]
    assert place.subscriptions() == 1
    await place.site.execute(
        "delete from things where id = 6000", "update things set note = 'two' where id = 6001"
    )
    await equal(place, first, 6)
    await equal(place, second, 6)
    await first.close()
    await second.until("table.details.isLeading")
    await place.site.execute("update things set note = 'alone' where id = 6002")
    await equal(place, second, 6)
    assert place.subscriptions() == 1
    assert await second.run("table.details.drifts") == 0
    assert ["record", "6003"] not in await second.run("batches.slice(1).flat()"), "it went on"


async def test_a_hidden_tab_catches_up_when_it_is_shown(place: Place) -> None:
    await rows_of(place, 7)
    profile = await place.profile()
    first, second = await place.tab(profile), await place.tab(profile)
    for tab in (first, second):
        await opened(place, tab, 7)
        await equal(place, tab, 7)
    await second.run(filled(HIDE, ishidden=True))
    await place.site.execute(
        "delete from things where id = 7000", "update things set note = 'unseen' where id = 7001"
    )
    await equal(place, first, 7)
    assert await second.run("table.rows.size") == 300
    await second.run(filled(HIDE, ishidden=False))
    await equal(place, second, 7)
    assert sorted(await second.run("batches.slice(1).flat()")) == [
        ["deletion", "7000"],
        ["record", "7001"],
    ]


async def test_a_page_of_another_origin_is_refused(place: Place) -> None:
    await rows_of(place, 8, 3)
    strange = await place.tab(url=f"{place.strange}/")
    await opened(place, strange, 8)
    await strange.until("table.status === 'apart'")
    assert await strange.run("table.rows.size") == 0
    known = await place.tab(url=f"{place.pages}/")
    await opened(place, known, 8)
    await equal(place, known, 8)
    assert await strange.run("[table.rows.size, table.details.how]") == [0, ""]


async def test_requests_where_websockets_cannot_be_opened(place: Place) -> None:
    await rows_of(place, 11)
    tab = await place.tab(url=f"{place.pages}/")
    await tab.run(BLOCKED)
    await opened(place, tab, 11)
    await equal(place, tab, 11)
    for number in range(3):
        await place.site.execute(
            f"delete from things where id = {11_000 + number}",
            f"update things set note = 'polled' where id = {11_100 + number}",
        )
        await equal(place, tab, 11)
    assert await tab.run("[table.details.drifts, tried]") == [0, 3], (
        "twice, and when the node was there"
    )
    await tab.run("table.close()")
    await until(lambda: place.subscriptions() == 0, "the request that waited is over")


async def test_a_sync_that_no_answer_to_a_request_holds_comes_in_pages(place: Place) -> None:
    await rows_of(place, 15)
    await place.site.execute("update things set note = repeat('x', 60000) where workspace_id = 15")
    tab = await place.tab(url=f"{place.pages}/")
    await tab.run(BLOCKED)
    await opened(place, tab, 15)
    await equal(place, tab, 15)
    assert await tab.run("[table.details.drifts, table.details.how]") == [0, "replay"]
    await place.site.execute("update things set note = 'short' where workspace_id = 15")
    await equal(place, tab, 15)
    await tab.run("table.close()")


async def test_a_table_that_has_no_pages_is_refused_and_says_why(place: Place) -> None:
    await place.site.execute(
        "create table noted (id bigint primary key, note text)",
        "insert into noted select n, repeat('x', 60000) from generate_series(1, 300) n",
    )
    await place.site.register("noted", owner=None, filters=(), capture="notify")
    token = await place.token_of("oda", "/records/noted")
    tab = await place.tab(url=f"{place.pages}/")
    await tab.run(BLOCKED)
    await opened(place, tab, 0, table="noted", where={}, token=token)
    await tab.until("table.status === 'refused'")
    code, why = await tab.run("[table.details.code, table.details.why]")
    assert code == "TOO_LARGE"
    assert why == "the capture of this table keeps no log: it needs a WebSocket"
    await tab.run("table.close()")


async def test_keys_of_several_columns_and_of_any_text(place: Place) -> None:
    await place.site.execute(
        "create table pairs (name text, number bigint, day date, primary key (name, number, day))",
        "insert into pairs select 'ключ 🗝 ' || n, n * 100000000000000000, '2026-01-01' "
        "from generate_series(-9, 92) n",
        "insert into pairs values ('', 0, '0001-01-01')",
        "insert into pairs values (repeat('long ', 100), 9007199254740993, 'infinity')",
    )
    await place.site.register("pairs", key=("name", "number", "day"), owner=None, filters=())
    token = await place.token_of("nora", "/records/pairs")
    tab = await place.tab()
    await opened(place, tab, 0, table="pairs", where={}, token=token)
    await equal_count(tab, 104)
    await place.site.execute(
        "delete from pairs where name = ''", "update pairs set number = 1 where day = 'infinity'"
    )
    await tab.until("table.status === 'synced' && table.rows.has(KEY)".replace("KEY", LONG_KEY))
    assert await tab.run("[table.rows.size, table.details.drifts]") == [103, 0]


LONG_KEY = """JSON.stringify(["long ".repeat(100), "1", "infinity"])"""


async def test_rows_go_with_the_right_to_see_them(place: Place) -> None:
    await rows_of(place, 14, 20)
    token = await place.token_of("igor", "/records/things/14")
    profile = await place.profile()
    first, second = await place.tab(profile), await place.tab(profile)
    for tab in (first, second):
        await opened(place, tab, 14, token=token, cache=True)
        await equal(place, tab, 14)
    await cached(first, 20)
    # The pause behind a boot is of chance: here a short one.
    await first.run("Math.random = () => 0.02; 0")
    await place.revoke("igor", "/records/things/14")
    for tab in (first, second):
        await tab.until("table.status === 'refused' && table.rows.size === 0")
        assert await tab.run("table.details.code") == "NO_SUCH_TABLE"
    await first.until(in_cache("return (await brought(rows.count())) === 0;"))


async def test_refusals_are_told(place: Place) -> None:
    tab = await place.tab()
    await opened(place, tab, 9, where={"note": "no filter"})
    await tab.until("table.status === 'refused'")
    assert await tab.run("table.details.code") == "BAD_FILTER"
    await opened(place, tab, 9, token="", user="nobody")
    await tab.until("table.status === 'refused' || table.status === 'apart'")
    assert await tab.run("table.rows.size") == 0
    assert (
        await tab.run("""(async () => {
      const { records } = await import("/records/client.js");
      try { records("/", "things", { were: {} }); } catch (error) { return String(error); }
    })()""")
        == "TypeError: records: no option were: there are where, columns, token, cache, user, share"
    )


async def test_the_hook_draws_again_when_rows_change(place: Place) -> None:
    await rows_of(place, 12, 5)
    await rows_of(place, 13, 3)
    tab = await place.tab()
    options = {"where": {"workspace_id": 12}, "token": place.token}
    await tab.run(filled(HOOKS, options=options))
    await tab.until("shown.status === 'synced' && shown.rows.size === 5")
    await place.site.execute("update things set note = 'drawn' where id = 12000")
    await tab.until("shown.rows.get('12000').note === 'drawn'")
    await tab.run(filled("draw(OPTIONS)", options=options | {"where": {"workspace_id": 13}}))
    await tab.until("shown.status === 'synced' && shown.rows.size === 3")
    await until(lambda: place.subscriptions() == 1, "the first subscription is over")


FILES = [
    "client.js",
    "client.d.ts",
    "moorline-records.js",
    "records-react.js",
    "records-react.d.ts",
]


def fetched(url: str, **headers: str) -> tuple[int, Message, bytes]:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=20
        ) as got:
            return got.status, got.headers, got.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, b""


@pytest.mark.parametrize("name", FILES)
async def test_files_are_served_with_a_tag(place: Place, name: str) -> None:
    url = f"{place.url}/records/{name}"
    status, headers, body = await asyncio.to_thread(fetched, url)
    assert (status, bool(body)) == (200, True)
    kind = "text/javascript" if name.endswith(".js") else "text/plain"
    assert headers["content-type"].startswith(kind)
    known = {"If-None-Match": headers["etag"]}
    status, _, body = await asyncio.to_thread(fetched, url, **known)
    assert (status, body) == (304, b"")
