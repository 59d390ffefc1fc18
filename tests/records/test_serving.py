"""Clients of records over real WebSockets: first syncs, live changes, and coming back."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.core.records.known_ranges import ranges_text
from tests.records.clients import AS_JSON, AS_MSGPACK, PATIENCE_S, Held, client
from tests.records.site import Site, opened_site, url_of
from tests.waiting import until

from moorline.catalog import EmbeddedPostgres
from moorline.core.records.row_hash import row_hash
from moorline.records import offer
from moorline.records.registration import remove
from moorline.wire.records import Deletion, Record


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        yield site


async def test_a_first_sync_and_then_what_changes(site: Site) -> None:
    await site.execute(
        "insert into things select n, n % 3, 'NEW', 'n' from generate_series(1, 2500) n"
    )
    node = await site.node()
    held = Held("things", where={"workspace_id": 1})
    async with client(url_of(node), held):
        await site.equal(held, "workspace_id = 1")
        assert held.hows == ["full"]
        await site.execute(
            "update things set state = 'RUNNING' where id = 1",
            "delete from things where id = 4",
            "update things set workspace_id = 2 where id = 7",
            "update things set workspace_id = 1 where id = 2",
            "insert into things values (9001, 1, 'NEW', 'new')",
        )
        await site.equal(held, "workspace_id = 1")
        assert set(held.hows[1:]) == {"live"}
        assert held.drifts == 0


MANY = "insert into things select n, n % 3, 'NEW', 'n' from generate_series(1, 1000) n"


async def refused(held: Held) -> None:
    await until(lambda: held.refused, "a refusal")


async def heard(held: Held, count: int) -> None:
    await until(lambda: len(held.heard) >= count, f"{count} messages")


async def came_back(site: Site, url: str, held: Held, *changes: str) -> str:
    """A client that was synced, was away for some changes, and is back: how it was synced then."""
    async with client(url, held):
        await site.equal(held, "workspace_id = 1")
    await site.execute(*changes)
    held.left()
    async with client(url, held):
        await site.equal(held, "workspace_id = 1")
    assert held.drifts == 0
    return held.hows[0]


OFFLINE = {
    "T20 an update of a known record": "update things set state = 'DONE' where id = 1",
    "T21 a deletion": "delete from things where id = 4",
    "T22 a fallout by a column that changes": "update things set workspace_id = 2 where id = 7",
    "T23 an old record falls in": "update things set workspace_id = 1 where id = 2",
}


@pytest.mark.parametrize("change", OFFLINE.values(), ids=OFFLINE)
async def test_t20_to_t23_offline_changes_by_replay(site: Site, change: str) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things", where={"workspace_id": 1})
    assert await came_back(site, url_of(node), held, change) == "replay"


@pytest.mark.parametrize("change", OFFLINE.values(), ids=OFFLINE)
async def test_t20_to_t23_offline_changes_by_digest(site: Site, change: str) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things", where={"workspace_id": 1})
    async with client(url_of(node), held):
        await site.equal(held, "workspace_id = 1")
    held.cursor = ""
    await site.execute(change)
    held.left()
    async with client(url_of(node), held):
        await site.equal(held, "workspace_id = 1")
    # A step that was under way before the change finds nothing that differs: then the change comes live.
    assert held.hows[0] == "digest" or held.hows[:2] == ["replay", "live"]
    assert held.drifts == 0


async def test_t25_another_server_goes_on_where_the_first_one_died(site: Site) -> None:
    await site.execute(MANY)
    await site.node("node-1")
    second = await site.node("node-2")
    held = Held("things", where={"workspace_id": 1})
    first = url_of(await site.node("node-3"))
    async with client(first, held):
        await site.equal(held, "workspace_id = 1")
        await site.stop("node-3")
    await site.execute(*OFFLINE.values())
    held.left()
    async with client(url_of(second), held):
        await site.equal(held, "workspace_id = 1")
    assert held.hows[0] == "replay"
    assert held.drifts == 0


async def test_t24_random_mixes_on_a_thousand_records(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things", where={"workspace_id": 1})
    chance = random.Random(24)
    for is_by_digest in (False, True):
        async with client(url_of(node), held):
            await site.equal(held, "workspace_id = 1")
        for _ in range(300):
            number = chance.randint(1, 1_200)
            await site.execute(
                chance.choice(
                    (
                        f"update things set note = note || 'x' where id = {number}",
                        f"update things set workspace_id = {chance.randint(0, 2)} where id = {number}",
                        f"delete from things where id = {number}",
                        f"insert into things values ({number}, 1, 'NEW', 'again') on conflict do nothing",
                    )
                )
            )
        held.left()
        if is_by_digest:
            held.cursor = ""
        async with client(url_of(node), held):
            await site.equal(held, "workspace_id = 1")
        assert held.hows[0] == ("digest" if is_by_digest else "replay")
        assert held.drifts == 0


async def test_t26_coming_back_while_writes_go_on(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things", where={"workspace_id": 1})
    is_over = asyncio.Event()

    async def write() -> None:
        connection = await asyncpg.connect(site.dsn)
        number = 0
        try:
            while not is_over.is_set():
                number += 1
                await connection.execute(
                    "update things set note = $1, workspace_id = $2 where id = $3",
                    str(number),
                    number % 2 + 1,
                    number % 1_000 + 1,
                )
        finally:
            await connection.close()

    writing = asyncio.create_task(write())
    for _ in range(6):
        async with client(url_of(node), held):
            await until(lambda: held.ends >= 3, "three syncs")
        assert held.drifts == 0
        held.left()
        held.cursor = held.cursor if random.random() < 0.5 else ""
    is_over.set()
    await writing
    async with client(url_of(node), held):
        await site.equal(held, "workspace_id = 1")
    assert held.drifts == 0


async def test_t27_cut_at_every_message_of_a_sync_and_resumed(site: Site) -> None:
    await site.execute("insert into things select n, 1, 'NEW', 'n' from generate_series(1, 20) n")
    node = await site.node()
    for cut_at in range(1, 24):
        held = Held("things")

        def take(message: Any, held: Held = held, cut_at: int = cut_at) -> None:
            if len(held.heard) < cut_at:
                Held.take(held, message)

        held.take = take  # type: ignore[method-assign]
        async with client(url_of(node), held):
            await heard(held, min(cut_at, 22))
        del held.take
        await site.execute(f"update things set note = 'cut {cut_at}' where id = {cut_at % 20 + 1}")
        held.left()
        async with client(url_of(node), held):
            await site.equal(held)
        assert held.drifts == 0


async def test_t28_a_cursor_older_than_the_log_goes_by_digest_and_says_so(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node(records={"log_life_s": 1, "prune_ms": 20})
    held = Held("things", where={"workspace_id": 1})
    async with client(url_of(node), held):
        await site.equal(held, "workspace_id = 1")
    await site.execute(*OFFLINE.values())

    async def is_pruned() -> bool:
        return not await site.connection.fetchval("select count(*) from moorline_records.log_1")

    async with asyncio.timeout(PATIENCE_S):
        while not await is_pruned():
            await asyncio.sleep(0.05)
    held.left()
    async with client(url_of(node), held):
        await site.equal(held, "workspace_id = 1")
    assert held.hows[0] == "digest"
    assert held.drifts == 0


async def test_t29_a_cursor_of_another_registration_is_refused_and_never_empty(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things", where={"workspace_id": 1})
    async with client(url_of(node), held):
        await site.equal(held, "workspace_id = 1")
    await remove(site.connection, "things")
    await site.register()
    await site.execute(*OFFLINE.values())
    held.left()
    # The host of the table that was may be the one that hears of it: then it comes back once more.
    while not held.ends:
        held.refused.clear()
        async with client(url_of(node), held):
            await until(lambda: held.refused or held.ends, "an answer")
    # Not by digest: row 1 has its old number again, and another content.
    assert held.hows[0] == "full"
    assert held.rows == await site.table("workspace_id = 1")
    assert held.drifts == 0


async def test_a_forged_cursor_is_none(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things", where={"workspace_id": 1})
    async with client(url_of(node), held):
        await site.equal(held, "workspace_id = 1")
    other = Held("things", where={"workspace_id": 2})
    other.rows, other.salt = dict(held.rows), held.salt
    for cursor in (held.cursor, "x" * 100, held.cursor[:-4] + "AAAA", ""):
        other.cursor = cursor
        other.left()
        async with client(url_of(node), other):
            await site.equal(other, "workspace_id = 2")
        assert other.hows[0] == "digest"
        assert other.drifts == 0
        other.rows = dict(held.rows)


async def test_t31_t33_the_last_of_quick_subscribes_wins(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things", where={"workspace_id": 1})
    async with client(url_of(node), held) as made:
        for number in (0, 1, 2, 0, 2):
            held.wanted = {"where": {"workspace_id": number}}
            held.cursor = ""
            held.left()
            await made.subscribe()
        await site.equal(held, "workspace_id = 2")
        await site.execute("update things set note = 'later' where id < 10")
        await site.equal(held, "workspace_id = 2")
        assert held.drifts == 0


async def test_t32_a_subscribe_behind_a_sync_that_is_done_syncs_again(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things", where={"workspace_id": 1})
    async with client(url_of(node), held) as made:
        for how in ("full", "replay", "replay"):
            await site.equal(held, "workspace_id = 1")
            assert held.hows[0] == how
            held.left()
            await made.subscribe()


async def test_t34_one_of_three_tables_is_unsubscribed(site: Site) -> None:
    await site.execute(
        MANY,
        "insert into others select id, workspace_id, state, note from things",
        "create table thirds (id bigint primary key, workspace_id integer, state text, note text)",
    )
    await site.register("others")
    await site.register("thirds")
    node = await site.node()
    tables = {name: Held(name) for name in ("things", "others", "thirds")}
    async with client(url_of(node), *tables.values()) as made:
        for name, held in tables.items():
            await site.equal(held, table=name)
            held.left()
        await made.subscribe("things", "thirds")
        await site.execute(
            "insert into thirds select id, workspace_id, state, note from things",
            "update others set note = 'not heard'",
            "update things set note = 'heard'",
        )
        await site.equal(tables["things"])
        await site.equal(tables["thirds"], table="thirds")
        assert not tables["others"].ends
        assert all(held.drifts == 0 for held in tables.values())


async def test_one_table_that_is_refused_touches_no_other(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node()
    wrong = {
        "NO_SUCH_TABLE": Held("nothing"),
        "NO_SUCH_COLUMN": Held("others", where={"nothing": 1}),
    }
    await site.register("others")
    good = Held("things")
    async with client(url_of(node), *wrong.values(), good):
        await site.equal(good)
        for code, held in wrong.items():
            await refused(held)
            assert held.refused[0].code == code
    bad = Held("things", where={"note": "n"})
    async with client(url_of(node), bad):
        await until(lambda: bad.refused, "a refusal")
        assert bad.refused[0].code == "BAD_FILTER"


async def test_columns_that_are_named_are_all_that_comes(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things", where={"workspace_id": 1}, columns=["state"])
    async with client(url_of(node), held):
        await until(lambda: held.ends, "a sync")
        assert held.columns == ["id", "state"]
        await site.execute("update things set state = 'DONE', note = 'hidden' where id = 1")
        await until(lambda: held.rows[("1",)][1] == {"id": 1, "state": "DONE"}, "the change")
        assert {frozenset(row) for _, row in held.rows.values()} == {frozenset({"id", "state"})}


@pytest.mark.parametrize("count", [1, 10, 200, 1_000])
async def test_t41_differences_are_found_at_a_cost_in_proportion(site: Site, count: int) -> None:
    await site.execute(
        "insert into things select n, 1, 'NEW', 'n' from generate_series(1, 20000) n"
    )
    node = await site.node()
    held = Held("things")
    async with client(url_of(node), held):
        await site.equal(held)
    await site.execute(f"update things set note = 'other' where id % (20000 / {count}) = 0")
    held.left()
    held.cursor = ""
    held.heard.clear()
    async with client(url_of(node), held) as made:
        await site.equal(held)
        records = sum(isinstance(one, Record) for one in held.heard)
        assert records == count, "what is equal is not sent"
        # A list of all would be eight bytes a row, and a third more as text.
        if count <= 200:
            assert made.answered_bytes + made.asked_bytes < 20_000 * 8 * 4 / 3 + 200 * count
    assert held.hows[0] == "digest"
    assert held.drifts == 0


async def test_t40_equal_sets_need_no_question(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things")
    async with client(url_of(node), held):
        await site.equal(held)
    held.left()
    held.cursor = ""
    async with client(url_of(node), held) as made:
        await site.equal(held)
        assert made.questions == 0
    assert held.hows == ["replay"]


async def test_t42_one_stale_version_is_found(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things")
    async with client(url_of(node), held):
        await site.equal(held)
    held.left()
    seq, row = held.rows[("7",)]
    held.rows[("7",)] = (seq + 5_000, row | {"note": "wrong"})
    # With its cursor: what it holds is not what it was told there.
    async with client(url_of(node), held):
        await site.equal(held)
    assert held.hows[0] == "digest"
    assert held.drifts == 0


async def test_t43_empty_sides(site: Site) -> None:
    node = await site.node()
    held = Held("things")
    async with client(url_of(node), held):
        await site.equal(held)
    held.left()
    held.rows = {("1",): (1, {"id": 1})}
    async with client(url_of(node), held):
        await site.equal(held)
        assert held.rows == {}
    held.left()
    held.cursor = ""
    await site.execute("insert into things values (1, 1, 'NEW', 'one')")
    held.rows = {("2",): (1, {"id": 2})}
    async with client(url_of(node), held):
        await site.equal(held)
    assert held.hows[0] == "digest"


async def test_t43_one_id_and_ids_whose_hashes_have_one_prefix(site: Site) -> None:
    node = await site.node()
    held = Held("things")
    await site.execute("insert into things values (1, 1, 'NEW', 'one')")
    async with client(url_of(node), held):
        await site.equal(held)
    for change in ("update things set note = 'other'", "select 1"):
        # The one id, another version of it; then it is the same, and nothing is asked.
        await site.execute(change)
        held.left()
        held.cursor = ""
        async with client(url_of(node), held):
            await site.equal(held)
    await site.execute("insert into things select n, 1, 'A', 'n' from generate_series(2, 9000) n")
    rows = await site.table()
    alike = {key for key, (seq, _) in rows.items() if row_hash(held.salt, key, seq) >> 120 == 7}
    assert len(alike) > 10
    kept = ", ".join(key for (key,) in alike)
    await site.execute(f"delete from things where id not in ({kept})")
    held.left()
    held.cursor, held.rows = "", dict(list((await site.table()).items())[2:])
    async with client(url_of(node), held) as made:
        await site.equal(held)
        assert made.questions < 10
    assert held.hows[0] == "digest"
    assert held.drifts == 0


@pytest.mark.parametrize("form", [AS_JSON, AS_MSGPACK])
async def test_both_forms_say_the_same(site: Site, form: str) -> None:
    await site.execute(
        MANY,
        "insert into things values (5000, 1, 'Ä', 'it''s \"quoted\" \\ and\nlong'), (5001, null, null, null)",
    )
    node = await site.node()
    held = Held("things")
    async with client(url_of(node), held, form=form):
        await site.equal(held)
        await site.execute(*OFFLINE.values())
        await site.equal(held)
    held.left()
    held.cursor = ""
    await site.execute("update things set note = 'by digest' where id % 10 = 0")
    async with client(url_of(node), held, form=form):
        await site.equal(held)
    assert held.hows[0] == "digest"
    assert held.drifts == 0


async def test_known_ids_in_ranges_as_in_the_seed(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things", where={"workspace_id": 1})
    async with client(url_of(node), held):
        await site.equal(held, "workspace_id = 1")
    await site.execute(*OFFLINE.values())
    held.left()
    held.cursor = ""
    held.heard.clear()
    held.wanted["ids"] = ranges_text(sorted(int(key[0]) for key in held.rows))
    async with client(url_of(node), held):
        await site.equal(held, "workspace_id = 1")
        gone = {tuple(one.key) for one in held.heard if isinstance(one, Deletion)}
        assert gone == {("4",), ("7",)}
        await site.execute("truncate things", "insert into things values (5, 1, 'NEW', 'n')")
        await site.equal(held, "workspace_id = 1")
    assert held.hows[0] == "ids"
    assert held.drifts == 0


async def test_of_known_ids_with_a_cursor_only_what_changed_comes(site: Site) -> None:
    """The log does not reach back to it, but its snapshot says what has changed since."""
    await site.execute(MANY)
    node = await site.node(records={"log_life_s": 1, "prune_ms": 20})
    held = Held("things", where={"workspace_id": 1})
    async with client(url_of(node), held):
        await site.equal(held, "workspace_id = 1")
    await site.execute(*OFFLINE.values(), "insert into things values (9000, 1, 'NEW', 'new')")

    async def is_pruned() -> bool:
        return not await site.connection.fetchval("select count(*) from moorline_records.log_1")

    async with asyncio.timeout(PATIENCE_S):
        while not await is_pruned():
            await asyncio.sleep(0.05)
    held.left()
    held.heard.clear()
    held.wanted["ids"] = ranges_text(sorted(int(key[0]) for key in held.rows))
    async with client(url_of(node), held):
        await site.equal(held, "workspace_id = 1")
        gone = {tuple(one.key) for one in held.heard if isinstance(one, Deletion)}
        came = {json.loads(bytes(one.row))["id"] for one in held.heard if isinstance(one, Record)}
        # Another column has values in rows that did not change: all of them come.
        await site.execute("alter table things add added text default 'x'")
        await site.equal(held, "workspace_id = 1")
    assert held.hows[0] == "ids"
    assert (gone, came) == ({("4",), ("7",)}, {1, 2, 9000})
    assert held.drifts == 0


async def test_t45_what_is_repeated_leaves_the_digest_as_it_is(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node()
    held, marks = Held("things"), Held("others")
    await site.register("others")
    async with client(url_of(node), held, marks):
        await site.equal(held)
        await site.equal(marks, table="others")
        before = held.digest
        # What is there already, and what is not, each twice; then what is taken back within one step.
        for _ in range(2):
            await site.execute(
                "insert into things values (5, 1, 'NEW', 'n') on conflict do nothing",
                "delete from things where id = 100000",
                "update things set note = note where id < 10",
            )
        async with site.connection.transaction():
            await site.execute(
                "insert into things values (100000, 1, 'NEW', 'n')",
                "delete from things where id = 100000",
            )
        held.heard.clear()
        again = Held("things")
        async with client(url_of(node), again):
            await site.equal(again)
        assert (held.digest, again.digest) == (before, before)
        assert not any(isinstance(one, Record | Deletion) for one in held.heard)
        # A message that comes twice changes nothing either.
        for message in again.heard[:]:
            if isinstance(message, Record):
                again.take(message)
        assert again.digest == before
    assert held.drifts == 0


@pytest.mark.parametrize("ids", ["5-1", "1,1", "1-", "x", "1-9223372036854775807", "3,2", "1-5,4"])
async def test_t47_ranges_that_are_none_are_refused(site: Site, ids: str) -> None:
    node = await site.node()
    held = Held("things", ids=ids)
    async with client(url_of(node), held):
        await until(lambda: held.refused, "a refusal")
    assert held.refused[0].code == "BAD_FILTER"


async def test_t41_where_everything_differs_all_rows_are_sent(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offer, "LISTED_BYTES_MAX", 80)
    await site.execute(MANY)
    node = await site.node()
    held = Held("things")
    async with client(url_of(node), held):
        await site.equal(held)
    await site.execute("update things set note = 'other'", "delete from things where id % 7 = 0")
    held.left()
    held.cursor = ""
    async with client(url_of(node), held):
        await site.equal(held)
        await site.execute("update things set note = 'later' where id < 10")
        await site.equal(held)
    assert held.hows[:2] == ["digest", "full"]
    assert held.drifts == 0


async def test_t56_all_who_are_booted_come_back_at_a_rate(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node(records={"boot": "all", "admitted_per_s": 20})
    clients = [Held("things", where={"workspace_id": number % 3}) for number in range(30)]

    async def follow(held: Held) -> None:
        async with client(url_of(node), held) as made:
            await until(lambda: made.close_code is not None, "a boot")
        held.left()
        async with client(url_of(node), held):
            await until(lambda: held.ends, "its return")

    following = [asyncio.create_task(follow(held)) for held in clients]
    await until(lambda: all(held.ends for held in clients), "first syncs")
    tables = node.subjects.records
    assert tables is not None
    tables.permits._changed()
    await asyncio.gather(*following)
    for number, held in enumerate(clients):
        assert held.rows == await site.table(f"workspace_id = {number % 3}")
    assert {held.drifts for held in clients} == {0}
    assert {held.hows[0] for held in clients} == {"replay"}
