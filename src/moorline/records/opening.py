"""Room: records. The capture that a table is registered with, opened."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from moorline.errors import TableRefused
from moorline.records.capture import Capture
from moorline.records.database import Database
from moorline.records.log_capture import LogCapture
from moorline.records.notify_capture import NotifyCapture


@asynccontextmanager
async def open_capture(database: Database, name: str) -> AsyncIterator[Capture]:
    """TableRefused says why a table is not served."""
    found = await database.registrations(name)
    if not found:
        raise TableRefused(f"no table is registered as {name} in this database.")
    if found[0].capture == "notify":
        async with NotifyCapture.open(database, name) as capture:
            yield capture
    else:
        yield await LogCapture.open(database, name)
