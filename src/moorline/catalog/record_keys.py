"""Room: catalog. The keys that sign cursors of records: one a day, and those before it until nothing
is read by them."""

import secrets
from typing import Final

import msgspec

from moorline.catalog.catalog import Catalog
from moorline.catalog.statements import statement
from moorline.limits import RECORDS_KEY_LIFE_S

LOCK = statement("record_key_lock")
DRAW = statement("record_key_draw")
CLEAR = statement("record_key_clear")
KEYS = statement("record_keys")

SECRET_BYTES: Final = 32


class RecordKey(msgspec.Struct, frozen=True):
    id: int
    secret: bytes
    left_s: int
    """Time for which cursors that it signed are taken, by the catalog's clock."""

    def __repr__(self) -> str:
        return f"RecordKey({self.id})"


class RecordKeys:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def load(self, read_s: int) -> list[RecordKey]:
        """Those that are valid, the newest last; a new one is drawn where none is young. A key that signs no
        more is good for `read_s`."""
        rows = await self._catalog.fetch(KEYS, RECORDS_KEY_LIFE_S)
        if not any(row["is_young"] for row in rows):
            async with self._catalog.transaction() as connection:
                await connection.execute(LOCK)
                await connection.execute(
                    DRAW,
                    secrets.token_bytes(SECRET_BYTES),
                    float(RECORDS_KEY_LIFE_S),
                    float(read_s),
                )
                await connection.execute(CLEAR)
            rows = await self._catalog.fetch(KEYS, RECORDS_KEY_LIFE_S)
        return [RecordKey(row["id"], bytes(row["secret"]), row["left_s"]) for row in rows]
