"""Room: records. The keys by which this node signs cursors, and reads those that others signed."""

import asyncio
import contextlib
import logging

from moorline.catalog.record_keys import RecordKeys
from moorline.core.records.cursor import Asked, SigningKey, SigningKeys, TableCursor, Why
from moorline.errors import MoorlineError
from moorline.limits import RECORDS_KEYS_AGAIN_MS, RECORDS_KEYS_LOOK_MS
from moorline.net.clock import monotonic_ms, wall_ms

log = logging.getLogger("moorline.records")

LIVES = 2
"""A key that signs no more is read by for so many lives of the log: nobody comes back later by replay."""


class Signing:
    _keys: SigningKeys

    def __init__(self, catalog: RecordKeys, log_life_s: int) -> None:
        self._catalog = catalog
        self._read_s = LIVES * log_life_s
        self._asked_ms = 0
        self._turn = asyncio.Lock()

    async def load(self) -> None:
        """Draws a key where none is young enough to sign."""
        self._asked_ms = monotonic_ms()
        now_s = wall_ms() // 1_000
        rows = await self._catalog.load(self._read_s)
        self._keys = SigningKeys(SigningKey(row.id, row.secret, now_s + row.left_s) for row in rows)

    async def keep_forever(self) -> None:
        while True:
            await asyncio.sleep(RECORDS_KEYS_LOOK_MS / 1_000)
            try:
                await self.load()
            except MoorlineError as error:
                # Those that are known go on: they are good for longer than their day.
                log.warning("the keys of cursors are not up to date", extra={"why": str(error)})

    def sign(self, cursor: TableCursor) -> str:
        return self._keys.sign(cursor)

    async def open(self, text: str) -> TableCursor | Why:
        found = self._keys.open_cursor(text, wall_ms() // 1_000)
        if found is not Why.UNKNOWN_KEY:
            return found
        await self._look_again()
        return self._keys.open_cursor(text, wall_ms() // 1_000)

    async def learn(self, brief: bytes) -> None:
        """So that `open_brief` has its key, if there is one."""
        if not self._keys.knows(brief, wall_ms() // 1_000):
            await self._look_again()

    def open_brief(self, brief: bytes, asked: Asked) -> TableCursor | Why:
        return self._keys.open_brief(brief, asked, wall_ms() // 1_000)

    async def _look_again(self) -> None:
        # Another node may have drawn it a moment ago. Whoever makes up numbers is not asked for often.
        async with self._turn:
            if monotonic_ms() - self._asked_ms >= RECORDS_KEYS_AGAIN_MS:
                with contextlib.suppress(MoorlineError):
                    await self.load()
