"""A stand-in for a node: runs the embedded Postgres until somebody kills it.

python -m tests.catalog.node_program FOLDER asyncio|uvloop
"""

import asyncio
import sys
from pathlib import Path

import uvloop

from moorline.catalog import EmbeddedPostgres


async def main(folder: Path) -> None:
    async with EmbeddedPostgres(folder) as postgres:
        sys.stdout.write(f"{postgres.pid} {postgres.dsn}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    run = {"asyncio": asyncio.run, "uvloop": uvloop.run}[sys.argv[2]]
    run(main(Path(sys.argv[1])))
