"""Reads the queues of a service. It knows its addresses and who it is, and nothing of faults."""

# ruff: noqa: T201
import asyncio
import sys
from pathlib import Path

import moorline


async def main() -> None:
    file = Path(sys.argv[1])
    token = moorline.TokenCredentials(file.with_suffix(".token").read_text())
    async with (
        moorline.connect(sys.argv[2:], credentials=token) as moor,
        moor.service(file) as all_of_it,
    ):
        async for message in all_of_it.acking():
            print(message.body.decode(), flush=True)
            await asyncio.sleep(0.002)


asyncio.run(main())
