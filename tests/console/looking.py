"""What tests of the page share: a node with a browser to look at it, and a hand that clicks."""

import asyncio
import base64
import json
from pathlib import Path

from tests.process.nodes import NodeProcess, run_moor
from tests.records.browser.chromium import Chromium, Tab

TEXT = "document.querySelector('main').innerText"


class Shown:
    """A node, and a browser to look at it."""

    def __init__(self, node: NodeProcess, browser: Chromium) -> None:
        self.node = node
        self.browser = browser

    def url(self) -> str:
        done = run_moor("console", "--address", self.node.address, "--json")
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["url"])

    async def tab(self, url: str | None = None) -> Tab:
        tab = await self.browser.tab(await self.browser.profile(), "about:blank")
        await tab.say("Page.navigate", url=url or await asyncio.to_thread(self.url))
        await tab.until("document.querySelector('h1') !== null")
        return tab


_COUNTS = """
(() => { window.asked = []; const say = WebSocket.prototype.send;
WebSocket.prototype.send = function (text) { window.asked.push(JSON.parse(text)[0][0]);
say.call(this, text); }; })()
"""
PONG = 4
ASKED = f"window.asked.filter(tag => tag !== {PONG}).length"
"""What a page that is counted has said, but that it is there."""


async def counted(shown: Shown, profile: str) -> Tab:
    """A page that counts what it asks."""
    tab = await shown.browser.tab(profile, "about:blank")
    await tab.say("Page.enable")
    await tab.say("Page.addScriptToEvaluateOnNewDocument", source=_COUNTS)
    await tab.say("Page.navigate", url=await asyncio.to_thread(shown.url))
    await tab.until("document.querySelector('h1') !== null")
    return tab


async def view(tab: Tab, path: str, condition: str) -> None:
    await tab.run(f"location.hash = {json.dumps('#/' + path)}")
    await tab.until(condition)


async def click(tab: Tab, label: str) -> None:
    """A button by its text; and the question behind it is answered with yes."""
    buttons = "[...document.querySelectorAll('main button')]"
    found = f"{buttons}.find(one => one.textContent === {json.dumps(label)})"
    await tab.until(f"{found} !== undefined")
    await tab.run(f"{found}.click()")


async def agree(tab: Tab) -> None:
    await tab.until("document.getElementById('asked').open")
    await tab.run("document.querySelector('#asked button[value=yes]').click()")


def has(text: str) -> str:
    return f"{TEXT}.includes({json.dumps(text)})"


async def fill(tab: Tab, name: str, value: str) -> None:
    """A field of the form, as a person would: whoever listens to a change hears of it."""
    field = f"document.querySelector('main [name={name}]')"
    await tab.run(
        f"{field}.value = {json.dumps(value)};"
        f"{field}.dispatchEvent(new Event('change', {{bubbles: true}}))"
    )


async def submit(tab: Tab, having: str) -> None:
    """The form that has a field of that name."""
    await tab.run(f"document.querySelector('main [name={having}]').form.requestSubmit()")


async def asked(tab: Tab) -> str:
    """What the page asks before it does something."""
    await tab.until("document.getElementById('asked').open")
    return str(await tab.run("document.getElementById('asked-text').textContent"))


async def screen(tab: Tab, width: int, theme: str) -> None:
    await tab.say(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900 if width > 500 else 844,
        deviceScaleFactor=1,
        mobile=width < 500,
    )
    features = [{"name": "prefers-color-scheme", "value": theme}]
    await tab.say("Emulation.setEmulatedMedia", features=features)


async def shot(tab: Tab, file: Path, *, is_whole: bool = False) -> None:
    """What is seen of a page, or all of it: also what one would scroll to."""
    part = {}
    if is_whole:
        size = (await tab.say("Page.getLayoutMetrics"))["cssContentSize"]
        part = {"clip": size | {"scale": 1}, "captureBeyondViewport": True}
    taken = await tab.say("Page.captureScreenshot", format="png", **part)
    await asyncio.to_thread(file.write_bytes, base64.b64decode(taken["data"]))
