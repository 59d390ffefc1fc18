"""Takes the pictures of the console for the documents: `python -m tests.console.pictures docs/pictures`.

They are of a node with the traffic of `moor demo --serve`, seen by the browser of the page's tests.
"""

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from tests.console.looking import TEXT, screen, shot, view
from tests.records.browser.chromium import Chromium, chromium, why_not

import moorline
from moorline.demo import traffic
from moorline.demo.stage import Stage

WIDTH = 1_360
POINTS = 10
"""Of the charts: a node keeps one every two seconds from its start on."""

VIEWS = {
    "console-overview": ("", "connections"),
    "console-group": (f"groups/one/{quote(traffic.GROUP, safe='')}", "Who reads what"),
    "console-messages": ("messages", "Message browser"),
}
"""Files, and what is to be seen when each is taken."""


async def take(browser: Chromium, stage: Stage, folder: Path) -> list[Path]:
    async with moorline.connect(stage.address) as moor:
        made = await moor.access.make_pass()
    tab = await browser.tab(await browser.profile(), "about:blank")
    await tab.say("Page.navigate", url=f"{stage.http}/console/#pass={made.text}")
    await tab.until("document.querySelector('h1') !== null")
    taken = []
    for name, (path, seen) in VIEWS.items():
        await screen(tab, WIDTH, "light")
        await view(tab, path, f"document.querySelector('main').textContent.includes({seen!r})")
        if path == "":
            await tab.until(f"(document.querySelector('polyline')?.points.length ?? 0) >= {POINTS}")
        if path == "messages":
            await tab.run("document.querySelector('main form').requestSubmit()")
            await tab.until(f"{TEXT}.includes('shown, among')")
        taken.append(folder / f"{name}.png")
        await shot(tab, taken[-1])
    return taken


async def of_demo(folder: Path) -> list[Path]:
    """Of a node that has had its traffic for a moment."""
    with tempfile.TemporaryDirectory(prefix="moorline-pictures-") as place:
        stage = Stage(Path(place))
        async with chromium(Path(place) / "profile") as browser, stage.node():
            flowing = asyncio.create_task(traffic.flow(stage))
            try:
                async with moorline.connect(stage.address) as moor:
                    while sum(count for _, count in await moor.topics()) < 1_000:
                        assert not flowing.done(), flowing.exception()
                        await asyncio.sleep(0.1)
                return await take(browser, stage, folder)
            finally:
                flowing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await flowing


def main(folder: Path) -> None:
    why = why_not()
    if why is not None:
        sys.exit(why)
    folder.mkdir(parents=True, exist_ok=True)
    for file in asyncio.run(of_demo(folder)):
        print(f"{file}: {file.stat().st_size // 1024} KiB")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
