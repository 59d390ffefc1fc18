"""A registered column that is renamed: no writer fails, and what was written meanwhile reaches everybody."""

import pytest
from tests.records.bed import Bed

from moorline.errors import TableRefused

WRITES = (
    "insert into things values (2, 1, 'new', 'b')",
    "update things set note = 'other' where {id} = 1",
    "update things set {id} = 4 where {id} = 2",
    "delete from things where {id} = 3",
)


@pytest.mark.parametrize("column", ["id", "workspace_id", "state"])
async def test_writers_go_on_and_clients_resync_when_the_name_is_back(
    bed: Bed, column: str
) -> None:
    await bed.things()
    await bed.execute("insert into things values (1, 1, 'new', 'a'), (3, 2, 'new', 'c')")
    async with bed.copy() as copy:
        await bed.execute(f"alter table things rename column {column} to renamed")
        for text in WRITES:
            await bed.execute(text.format(id="renamed" if column == "id" else "id"))
        with pytest.raises(TableRefused, match=f"no column {column} any more"):
            await copy.step()
        await bed.execute(f"alter table things rename column renamed to {column}")
        await copy.step()
        await copy.scan()
        await bed.check(copy)
        await bed.execute("update things set state = 'run'", "delete from things where id = 4")
        await copy.step()
        await bed.check(copy)


async def test_another_column_under_the_name_of_a_registered_one_fails_nobody(bed: Bed) -> None:
    await bed.things()
    await bed.execute(
        "insert into things values (1, 1, 'new', 'a'), (2, 1, 'new', 'b')",
        "alter table things rename column workspace_id to before",
        "alter table things add column workspace_id text default 'no number'",
        "update things set note = 'other'",
        "delete from things where id = 2",
    )
    assert await bed.connection.fetchval("select note from things") == "other"


async def test_lines_of_the_log_that_could_not_be_read_say_resync(log_bed: Bed) -> None:
    """A cursor of before the renaming is not replayed over them."""
    await log_bed.things()
    await log_bed.execute("insert into things values (1, 1, 'new', 'a'), (2, 1, 'new', 'b')")
    async with log_bed.copy() as copy:
        epoch = copy.capture.table.epoch
        before = copy.since
        await log_bed.execute(
            "alter table things rename column state to renamed",
            "delete from things where id = 2",
            "alter table things rename column renamed to state",
        )
        async with log_bed.copy() as later:
            why = await later.capture.replays(epoch, before)
            assert why is not None
            assert why.why == "truncated"
