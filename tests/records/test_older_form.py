"""What an update costs a table's indexes, and tables that version 0.2.0 registered, where it costs all of
them: they are served as they were, and `check` says what to do."""

import asyncpg
import pytest
from tests.records.bed import THINGS, Bed
from tests.records.older_form import register_as_0_2_0
from tests.records.test_registration import traces

from moorline.records.checking import check
from moorline.records.registration import remove

pytestmark = pytest.mark.process


async def hot_updates(connection: asyncpg.Connection) -> int:
    """Of one update, seen from inside of its transaction: how many wrote to no index."""
    async with connection.transaction():
        await connection.execute("update things set note = 'other' where id = 1")
        found: int = await connection.fetchval(
            "select pg_stat_get_xact_tuples_hot_updated('things'::regclass)"
        )
        return found


async def test_an_update_writes_to_no_index(bed: Bed) -> None:
    await bed.things()
    await bed.execute("insert into things values (1, 1, 'a')")
    assert await hot_updates(bed.connection) == 1


async def test_a_table_of_0_2_0_is_served_and_check_says_what_it_costs(log_bed: Bed) -> None:
    bed = log_bed
    await bed.execute(THINGS)
    await bed.execute(
        "insert into things values (1, 1, 'a'), (2, 1, 'a'), (3, 1, 'a'), (4, 2, 'b')"
    )
    await register_as_0_2_0(bed.connection)
    (fault,) = await check(bed.connection, "things")
    assert (fault.code, fault.is_harm) == ("form", False)
    assert "`moor records remove things`, and add it again" in fault.text
    async with bed.copy() as copy:
        await bed.execute(
            "insert into things values (5, 1, 'a'), (6, 1, 'a')",
            "update things set note = 'x' where id in (1, 5)",
            "update things set id = 30 where id = 3",
            "delete from things where id = 2",
            "begin; delete from things where id = 4; insert into things values (4, 3, 'c'); commit",
        )
        assert len(await copy.step()) == 7
        await bed.check(copy)
        await bed.execute("update things set note = 'y'")
        assert len(await copy.step()) == 5
        await bed.check(copy)
        await bed.execute("truncate things")
        await bed.check_resynced(copy, "truncated")
    assert await hot_updates(bed.connection) == 0
    await remove(bed.connection, "things")
    assert await traces(bed.connection) == []
    await bed.add()
    assert await check(bed.connection, "things") == []


async def test_keys_that_rows_of_before_take_and_leave(log_bed: Bed) -> None:
    """A row that takes another key keeps who put it there: a line tells of it."""
    bed = log_bed
    await bed.things()
    await bed.execute("insert into things values (1, 1, 'a'), (2, 1, 'a'), (3, 1, 'a')")
    async with bed.copy() as copy:
        await bed.execute(
            # A key that goes away and comes back, by a row that was there before, and by a new one.
            "update things set id = 10 where id = 1",
            "update things set id = 1 where id = 2",
            "begin; update things set id = 2 where id = 10;"
            "update things set note = 'x' where id = 2; commit",
            "delete from things where id = 3",
            "insert into things values (3, 2, 'b')",
            "update things set note = 'z' where id = 3",
        )
        changes = await copy.step()
        assert sorted((change.key[0], change.before is not None) for change in changes) == [
            ("1", True),
            ("2", True),
            ("3", True),
        ]
        await bed.check(copy)
