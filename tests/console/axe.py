"""axe-core, the checker of accessibility that the field uses: fetched by npm where that can be.

A machine that has it already names its file in MOORLINE_AXE.
"""

import asyncio
import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from tests.records.browser.chromium import Tab

VERSION = "4.10.2"
FETCH_S = 60
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


async def source(folder: Path) -> str | None:
    """Its program, or None where it cannot be had."""
    given = os.environ.get("MOORLINE_AXE")
    if given:
        return await asyncio.to_thread(Path(given).read_text)
    npm = shutil.which("npm")
    if npm is None:
        return None
    process = await asyncio.create_subprocess_exec(
        *(npm, "install", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund"),
        f"axe-core@{VERSION}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"HOME": str(folder)},
    )
    try:
        async with asyncio.timeout(FETCH_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return None
    file = folder / "node_modules" / "axe-core" / "axe.min.js"
    found = await asyncio.to_thread(file.exists)
    return await asyncio.to_thread(file.read_text) if found else None


async def problems(tab: Tab, program: str) -> list[str]:
    """What it finds wrong with the page as it is now: the rule, and the elements that break it."""
    if await tab.run("typeof axe === 'undefined'"):
        await tab.run(f"{program}; true")
    found: list[dict[str, Any]] = await tab.run(
        f"axe.run(document, {{runOnly: {TAGS}}}).then(({{violations}}) => violations.map("
        "({id, nodes}) => ({id, nodes: nodes.slice(0, 3).map(one => one.html + ' ' + one.failureSummary)})))"
    )
    return [f"{one['id']}: {one['nodes']}" for one in found]
