"""axe-core, the checker of accessibility that the field uses: out of a package of PyPI that carries it.

Only its file is wanted, and not what the package needs: it is fetched when it is used. A machine that has the
file already names it in MOORLINE_AXE.
"""

import asyncio
import contextlib
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

from tests.records.browser.chromium import Tab

PACKAGE = "axe-playwright-python==0.1.8"
FILE = "axe_playwright_python/axe.min.js"
FETCH_S = 20
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


async def source(folder: Path) -> str | None:
    """Its program, or None where it cannot be had."""
    given = os.environ.get("MOORLINE_AXE")
    if given:
        return await asyncio.to_thread(Path(given).read_text)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), PACKAGE),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(FETCH_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return await asyncio.to_thread(_program_in, folder)


def _program_in(folder: Path) -> str | None:
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as files:
            return files.read(FILE).decode()
    return None


async def problems(tab: Tab, program: str) -> list[str]:
    """What it finds wrong with the page as it is now: the rule, and the elements that break it."""
    if await tab.run("typeof axe === 'undefined'"):
        await tab.run(f"{program}; true")
    found: list[dict[str, Any]] = await tab.run(
        f"axe.run(document, {{runOnly: {TAGS}}}).then(({{violations}}) => violations.map("
        "({id, nodes}) => ({id, nodes: nodes.slice(0, 3).map(one => one.html + ' ' + one.failureSummary)})))"
    )
    return [f"{one['id']}: {one['nodes']}" for one in found]
