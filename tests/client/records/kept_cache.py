"""Keeps a cache as this release leaves it: `python -m tests.client.records.kept_cache`. It is never made anew
once the version is out."""

import lzma
import sqlite3
import tempfile
from pathlib import Path

import msgspec

from moorline.client.records.asked import Asked
from moorline.client.records.cache import Held, RowCache
from moorline.client.records.rows import Facts
from moorline.core.records.table import Key
from moorline.version import __version__

VECTORS = Path(__file__).parents[2] / "vectors"
ASKED = Asked.of("things", {"state": "NEW"}, ["id", "state"])
FACTS = Facts(("id", "part"), (("id", "bigint"), ("part", "text"), ("state", "text")))
SALT, CURSOR = 0xFEDC_BA98_7654_3210, "a cursor"
ROWS: dict[Key, Held] = {
    (str(number), "ä"): (
        number * 1_000_000_007,
        msgspec.msgpack.encode({"id": number, "part": "ä", "state": None}),
    )
    for number in range(5)
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cache"
        cache = RowCache(path, ASKED)
        cache.open()
        cache.write(ROWS.items(), FACTS, SALT, CURSOR)
        cache.close()
        with sqlite3.connect(path) as db:
            db.execute("pragma wal_checkpoint(truncate)")
            # As one file: what is beside it would be told by a name alone.
            db.execute("pragma journal_mode = delete")
        db.close()
        packed = lzma.compress(path.read_bytes())
    (VECTORS / f"cache-{__version__}.sqlite.xz").write_bytes(packed)


if __name__ == "__main__":
    main()
