"""Room: client/records. Keeps the cache of a copy: what was proven is written, one batch behind the other.

One thread does all of it, in order. While it writes, the next batch gathers: of each row its latest state, so
that what waits is bounded by the rows. A cache that cannot be written is left as it is, an older copy, and
the copy goes on without it.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from moorline.client.records.asked import Asked
from moorline.client.records.cache import Contents, Held, RowCache, SetAside
from moorline.client.records.rows import Facts
from moorline.core.records.table import Key
from moorline.errors import MoorlineError


class CacheKeeper:
    """From `open` to `close`. `failed` hears, once, why nothing more is written."""

    def __init__(self, path: Path | str, asked: Asked, failed: Callable[[str], None]) -> None:
        self._cache = RowCache(Path(path), asked)
        self._failed = failed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="moorline-cache")
        self._batch: dict[Key, Held | None] = {}
        self._about: tuple[Facts, int, str] | None = None
        """Of the batch that waits: facts, salt, cursor."""
        self._writing: asyncio.Task[None] | None = None
        self._is_broken = False

    @property
    def set_aside(self) -> SetAside | None:
        return self._cache.set_aside

    async def open(self) -> Contents | None:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._cache.open)

    def keep(
        self, rows: Iterable[tuple[Key, Held | None]], facts: Facts, salt: int, cursor: str
    ) -> None:
        """From now on the copy is this; it is written as soon as what was before is."""
        if self._is_broken:
            return
        self._batch.update(rows)
        self._about = (facts, salt, cursor)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def close(self) -> None:
        """When all that was kept is written."""
        try:
            while self._writing is not None:
                await asyncio.shield(self._writing)
        finally:
            closing = asyncio.wrap_future(self._thread.submit(self._cache.close))
            self._thread.shutdown(wait=False)
            # Whoever opens the file next must find it free.
            await asyncio.shield(closing)

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._about is not None:
                batch, self._batch = self._batch, {}
                about, self._about = self._about, None
                await loop.run_in_executor(
                    self._thread, self._cache.write, list(batch.items()), *about
                )
        except MoorlineError as error:
            self._is_broken = True
            self._batch, self._about = {}, None
            self._failed(str(error))
        finally:
            self._writing = None
