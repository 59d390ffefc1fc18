"""Has a live copy of a table. It knows its addresses, and nothing of faults."""

# ruff: noqa: T201
import asyncio
import sys

import moorline


async def main() -> None:
    async with moorline.connect(sys.argv[2:]) as moor, moor.records(sys.argv[1]) as table:
        changes = table.changes()
        print(*(f"{key}={table.rows[key]['n']}" for key in table.rows), sep=",", flush=True)
        async for _ in changes:
            print(*(f"{key}={table.rows[key]['n']}" for key in table.rows), sep=",", flush=True)


asyncio.run(main())
