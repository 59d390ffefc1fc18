"""Records: a live copy of the rows of a Postgres table.

Before it, in the Postgres of the node, then `moor records add experiments --key id --filter workspace_id`:

    create table experiments (id bigint primary key, workspace_id integer, state text);
    insert into experiments values (1, 1, 'NEW'), (2, 1, 'NEW'), (3, 2, 'NEW');

It ends when somebody sets a state to DONE.
"""

import asyncio

import moorline


async def main() -> None:
    async with (
        moorline.connect("tcp://127.0.0.1:7411") as moor,
        moor.records("experiments", where={"workspace_id": 1}, cache="experiments.cache") as table,
    ):
        changes = table.changes()
        for key in sorted(table.rows):
            print(key, table.rows[key]["state"], flush=True)
        async for change in changes:
            if change.is_of_row:
                print(change.kind.value, change.key, change.row["state"], flush=True)
                if change.row["state"] == "DONE":
                    break


asyncio.run(main())
