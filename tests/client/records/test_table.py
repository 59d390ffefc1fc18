"""A copy of records over real sockets: syncs, returns, drift, refusals, filters that change."""

import asyncio
import contextlib
import random
from functools import partial

import pytest
from tests.client.records.conftest import SOON, is_equal, kinds, opened, read
from tests.client.records.table_node import NAMED, ServedTable, TableNode
from tests.waiting import until

import moorline
from moorline.errors import BadFilter, NoSuchTable, Unsupported


async def test_entering_waits_for_the_rows(node: TableNode, served: ServedTable) -> None:
    async with opened(node, where={"workspace_id": 1}) as table:
        assert table.is_synced
        assert is_equal(table, served, workspace_id=1)
        assert len(table.rows) == 5
        assert table.rows[2] == {"id": 2, "workspace_id": 1, "state": "NEW"}
        assert 2 in table.rows
        assert 3 not in table.rows
        assert table.key == ("id",)
        assert node.hows == ["full"]
    await until(lambda: not node.connections)


async def test_changes_come_in_order_with_what_they_are(
    node: TableNode, served: ServedTable
) -> None:
    async with opened(node) as table:
        changes = table.changes()
        served.put(3, "DONE")
        served.delete(4)
        served.put(11, "NEW")
        node.publish()
        found = await read(changes, 3)
        assert [(one.kind.value, one.key, one.how) for one in found] == [
            ("deletion", 4, "live"),
            ("record", 3, "live"),
            ("record", 11, "live"),
        ]
        assert found[1].row == {"id": 3, "workspace_id": 1, "state": "DONE"}
        assert found[1].seq == served.rows[3][0]
        assert is_equal(table, served)
    assert [one async for one in changes] == []


async def test_t32_a_cut_link_is_opened_again_and_replays(
    node: TableNode, served: ServedTable
) -> None:
    async with opened(node) as table:
        changes = table.changes()
        served.put(1, "LATER")
        served.delete(2)
        node.cut()
        found = await read(changes, 5)
        assert kinds(found) == ["disconnected", "reconnected", "deletion", "record", "synced"]
        assert found[-1].how == "replay"
        assert is_equal(table, served)
        node.cut()
        await until(lambda: node.hows == ["full", "replay", "replay"])
        served.put(5, "AFTER")
        await until(lambda: node.connections == 1 and table.is_synced)
        node.publish()
        await until(lambda: is_equal(table, served))


async def test_t20_to_t23_what_happened_meanwhile_comes_by_digest_too(
    node: TableNode, served: ServedTable
) -> None:
    async with opened(node, where={"workspace_id": 1}) as table:
        served.put(2, "UPDATED", workspace_id=1)
        served.delete(4)
        served.put(6, "FELL OUT", workspace_id=2)
        served.put(3, "APPEARED", workspace_id=1)
        served.forgotten = len(served.log)
        node.cut()
        await until(lambda: node.hows == ["full", "digest"] and table.is_synced)
        assert is_equal(table, served, workspace_id=1)
        assert table.rows[3]["state"] == "APPEARED"
        assert 6 not in table.rows


@pytest.mark.parametrize("seed", range(6))
async def test_t24_random_mixes_on_a_thousand_records(
    node: TableNode, served: ServedTable, seed: int
) -> None:
    chance = random.Random(seed)
    for key in range(1_000):
        served.put(key, "NEW", workspace_id=chance.randrange(3))
    async with opened(node, where={"workspace_id": 1}) as table:

        def has_synced_since(syncs: int) -> bool:
            return len(node.hows) > syncs and table.is_synced

        for _ in range(3):
            for _ in range(chance.choice((0, 1, 20, 2_000))):
                key = chance.randrange(1_500)
                if chance.random() < 0.3 and key in served.rows:
                    served.delete(key)
                else:
                    served.put(key, chance.choice("abc"), workspace_id=chance.randrange(3))
            if chance.random() < 0.7:
                served.forgotten = len(served.log)
            syncs = len(node.hows)
            node.cut()
            await until(partial(has_synced_since, syncs))
            assert is_equal(table, served, workspace_id=1)


async def test_t25_another_node_takes_over(served: ServedTable) -> None:
    first, second = TableNode(served), TableNode(served)
    async with contextlib.AsyncExitStack() as stack:
        address = await stack.enter_async_context(first.open())
        async with opened(first) as table:
            await stack.aclose()
            served.put(1, "WHILE NOBODY WAS THERE")
            async with second.open(int(address.rpartition(":")[2])):
                await until(lambda: bool(second.hows) and table.is_synced)
                assert second.hows == ["replay"]
                assert is_equal(table, served)


async def test_t27_a_link_that_is_cut_at_every_message_is_resumed(
    node: TableNode, served: ServedTable
) -> None:
    for cut in range(12):
        node.cut_after = cut
        async with opened(node, wait=False) as table:
            await until(lambda: node.cut_after is None)
            await asyncio.wait_for(table.synced(), 30)
            assert is_equal(table, served)
            # And once more in a sync by digest, of which most of the rows are to be fetched.
            for key in range(1, 9):
                served.put(key, f"cut {cut}")
            served.forgotten = len(served.log)
            node.cut_after = cut % 10
            node.cut()
            await until(lambda: node.cut_after is None)
            await until(lambda: is_equal(table, served) and table.is_synced)


async def test_t27_a_long_sync_that_was_cut_goes_on_from_what_came(
    node: TableNode, served: ServedTable
) -> None:
    for key in range(2_000):
        served.put(key, "NEW")
    node.cut_after = 1_500
    async with opened(node) as table:
        assert is_equal(table, served)
        assert node.hows == ["full", "digest"]
    records = [one for one in node.heard if type(one).__name__ == "Fetch" and one.prefixes]
    assert sum(len(one.prefixes) for one in records) <= 600, "only what had not come"


async def test_t31_t33_a_filter_is_changed_and_the_last_one_wins(
    node: TableNode, served: ServedTable
) -> None:
    async with opened(node, where={"workspace_id": 1}) as table:
        served.put(20, "IN FLIGHT", workspace_id=1)
        node.publish()
        first = asyncio.create_task(table.change({"workspace_id": 9}))
        second = asyncio.create_task(table.change({"workspace_id": 2}))
        await asyncio.wait_for(asyncio.gather(first, second), 30)
        assert is_equal(table, served, workspace_id=2)
        served.put(21, "NEW", workspace_id=2)
        node.publish()
        await until(lambda: is_equal(table, served, workspace_id=2))


async def test_other_columns_bring_all_rows_again(node: TableNode) -> None:
    async with opened(node, columns=["state"]) as table:
        assert table.rows[1] == {"id": 1, "state": "NEW"}
        await table.change({}, columns=["workspace_id"])
        assert table.rows[1] == {"id": 1, "workspace_id": 2}
        assert node.hows == ["full", "full"]


async def test_t69_a_column_that_is_added_is_in_every_row(
    node: TableNode, served: ServedTable
) -> None:
    async with opened(node) as table:
        served.columns.append(("size", "integer"))
        for _, row in served.rows.values():
            row["size"] = 7
        node.cut()
        await until(lambda: table.is_synced and table.rows[1].get("size") == 7)
        assert node.hows == ["full", "replay", "full"]
        assert is_equal(table, served)


async def test_t34_one_of_three_tables_ends_and_the_others_go_on(
    node: TableNode, served: ServedTable
) -> None:
    async with moorline.connect(node.address) as moor, contextlib.AsyncExitStack() as stack:
        tables = [
            await stack.enter_async_context(moor.records(NAMED, where=where, settings=SOON))
            for where in ({}, {"workspace_id": 1}, {"workspace_id": 2})
        ]
        await tables[1].close()
        await until(lambda: node.connections == 2)
        served.put(2, "STILL HEARD", workspace_id=2)
        node.publish()
        await until(lambda: is_equal(tables[0], served))
        await until(lambda: is_equal(tables[2], served, workspace_id=2))
        assert tables[1].rows[2]["state"] == "NEW"


async def test_t42_a_stale_version_is_found_by_digest_and_healed(
    node: TableNode, served: ServedTable
) -> None:
    async with opened(node) as table:
        changes = table.changes()
        # Changed by something that no trigger has seen: the node's rows say so at its next scan only.
        sent = next(iter(node._subscribed.values())).sent
        served.put(3, "BEHIND OUR BACK")
        sent[3] = served.rows[3]
        node.publish()
        found = await read(changes, 4)
        assert kinds(found) == ["drifted", "deletion", "record", "synced"]
        assert kinds(await read(changes, 1)) == ["healed"]
        assert node.hows == ["full", "live", "digest"]
        assert is_equal(table, served)


async def test_a_copy_that_does_not_heal_by_digest_begins_anew(
    node: TableNode, served: ServedTable
) -> None:
    async with opened(node) as table:
        node.lies = 4
        served.put(1, "NEXT")
        node.publish()
        await until(lambda: node.hows[-1] == "full" and len(node.hows) > 1 and table.is_synced)
        assert node.hows == ["full", "live", "digest", "digest", "digest", "full"]
        assert is_equal(table, served)


async def test_t50_t51_rights_that_change_change_the_rows(
    node: TableNode, served: ServedTable
) -> None:
    async with opened(node) as table:
        changes = table.changes()
        served.allowed = {1}
        node.cut()
        await until(lambda: table.is_synced and len(table.rows) == 5)
        assert is_equal(table, served)
        gone = [one.key for one in await read(changes, 7) if one.kind.value == "deletion"]
        assert sorted(gone) == [1, 3, 5, 7, 9]
        served.allowed = {1, 2}
        node.cut()
        await until(lambda: table.is_synced and len(table.rows) == 10)
        assert is_equal(table, served)


async def test_t50_all_rights_are_taken_away_and_come_back(
    node: TableNode, served: ServedTable
) -> None:
    async with opened(node) as table:
        node.refuses = ("NO_SUCH_TABLE", 0)
        node.cut()
        await until(lambda: table.refusal is not None)
        assert isinstance(table.refusal, NoSuchTable)
        assert not table.rows
        assert not table.is_synced
        node.refuses = None
        await until(lambda: table.is_synced)
        assert table.refusal is None
        assert is_equal(table, served)


async def test_a_refusal_raises_where_the_copy_is_opened(node: TableNode) -> None:
    node.refuses = ("BAD_FILTER", 0)
    with pytest.raises(BadFilter, match="a test wants it"):
        async with opened(node):
            raise AssertionError("nothing to be seen")
    await until(lambda: not node.connections)


async def test_a_node_that_is_busy_is_asked_again(node: TableNode, served: ServedTable) -> None:
    node.refuses = ("BUSY", 10)
    async with opened(node, wait=False) as table:
        await until(lambda: table.refusal is not None)
        node.refuses = None
        await asyncio.wait_for(table.synced(), 30)
        assert is_equal(table, served)


async def test_a_node_without_the_role_is_passed_over_also_when_a_copy_comes_back(
    served: ServedTable, node: TableNode
) -> None:
    others = [TableNode(served), TableNode(served)]
    async with others[0].open() as first, others[1].open() as last:
        for one in others:
            one.roles = ("broker",)
        async with (
            moorline.connect([first, node.address, last]) as moor,
            moor.records(NAMED, settings=SOON) as table,
        ):
            for key in range(20, 26):
                served.put(key, "LATER")
                node.cut()
                await until(partial(lambda key: key in table.rows, key))
            await table.synced()
            assert is_equal(table, served)
        assert not others[0].heard
        assert not others[1].heard


async def test_a_node_without_the_role_is_named(node: TableNode) -> None:
    node.roles = ("broker",)
    with pytest.raises(Unsupported, match="role `records`"):
        async with opened(node):
            raise AssertionError("nothing to be seen")


async def test_a_node_that_makes_no_sense_is_left_and_tried_again(
    node: TableNode, served: ServedTable
) -> None:
    async with opened(node) as table:
        session = next(iter(node._subscribed))
        from moorline.wire.records import RecordMessages

        session.send(RecordMessages(b"\xc1 nonsense"))
        await until(lambda: "replay" in node.hows and table.is_synced)
        assert is_equal(table, served)


async def test_a_filter_that_cannot_travel_is_refused_here(node: TableNode) -> None:
    async with moorline.connect(node.address) as moor:
        for where in ({"id": object()}, {"id": {"!": 1}}, {"": 1}, {"id": list(range(2_000))}):
            with pytest.raises(BadFilter):
                moor.records(NAMED, where=where)
        with pytest.raises(BadFilter):
            moor.records(NAMED, columns="state")
        with pytest.raises(BadFilter):
            moor.records("")
