"""A catalog as a first start makes it: initdb and the tables, once for each process of tests, then copied.

    copy_catalog(data / "catalog")

A copy takes a tenth of the time. What a first start does itself is tested in `tests/catalog` and in
`tests/process/test_serve.py`, which start from nothing.
"""

import asyncio
import atexit
import concurrent.futures
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from moorline.catalog import Catalog, EmbeddedPostgres

UNTOUCHED = "untouched"
TEMPLATES = ("1", "4")
"""The folders of Postgres' own templates of databases, half of all files. No node writes to them, so that all
copies have the same ones: a file system is slow in making thousands of files where thousands just went."""


def copy_catalog(folder: Path) -> None:
    """Puts a data folder of Postgres there, with the tables of this Moorline and nobody in them."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    template = _template()
    # With its owner, who is not root; and as one copy that shares its blocks, where the disk can. Most of a
    # log that was just begun is zeros.
    copy = ["cp", "-a", "--reflink=auto", "--sparse=always", str(template), str(folder)]
    subprocess.run(copy, check=True)
    untouched = [str(one) for one in (template.parent / UNTOUCHED).iterdir()]
    is_near = folder.stat().st_dev == template.stat().st_dev
    how = "-al" if is_near else "-a"
    subprocess.run(["cp", how, *untouched, str(folder / "base")], check=True)


@functools.cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="moorline-template-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / UNTOUCHED).mkdir()
    # In a thread of its own: the caller may be inside of a running loop.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, _make(folder / "catalog")).result()
    for name in TEMPLATES:
        (folder / "catalog/base" / name).rename(folder / UNTOUCHED / name)
    return folder / "catalog"


async def _make(folder: Path) -> None:
    async with EmbeddedPostgres(folder) as postgres, Catalog.open(postgres.dsn):
        pass
