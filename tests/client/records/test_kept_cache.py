"""The cache of a copy as a release left it is taken by this one: `python -m tests.client.records.kept_cache`
has made it."""

import lzma
import sqlite3
from pathlib import Path

import pytest
from tests.client.records.kept_cache import ASKED, CURSOR, FACTS, ROWS, SALT, VECTORS

from moorline.client.records.cache import FORMAT, RowCache

FILES = sorted(VECTORS.glob("cache-*.sqlite.xz"))


@pytest.mark.parametrize("kept", FILES, ids=lambda one: one.name)
def test_the_cache_of_a_release_is_opened_and_goes_on(kept: Path, tmp_path: Path) -> None:
    path = tmp_path / "cache"
    path.write_bytes(lzma.decompress(kept.read_bytes()))
    cache = RowCache(path, ASKED)
    found = cache.open()
    assert cache.set_aside is None
    assert found is not None
    assert (found.facts, found.salt, found.cursor, found.rows) == (FACTS, SALT, CURSOR, ROWS)
    key = next(iter(ROWS))
    cache.write([(key, None)], FACTS, SALT, "next")
    cache.close()
    again = RowCache(path, ASKED).open()
    assert again is not None
    assert (again.cursor, set(again.rows)) == ("next", set(ROWS) - {key})


def test_one_of_this_format_is_among_them() -> None:
    found = set()
    for kept in FILES:
        with sqlite3.connect(":memory:") as db:
            db.deserialize(lzma.decompress(kept.read_bytes()))
            found.add(db.execute("pragma user_version").fetchone()[0])
        db.close()
    assert FORMAT in found
