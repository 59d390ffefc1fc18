"""A real Chromium without a window, driven over its DevTools protocol: tabs, and scripts that run in them."""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

PATIENCE_S = 60
COMMAND = shutil.which("chromium")

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--remote-debugging-port=0",
)


def why_not() -> str | None:
    """Why there can be no browser here."""
    return None if COMMAND else "chromium is not installed: the tests of pages are left out"


class PageError(AssertionError):
    """A script failed in its page."""


class Tab:
    def __init__(self, browser: "Chromium", target: str, session: str) -> None:
        self.target = target
        self._browser = browser
        self._session = session

    async def open(self, url: str) -> None:
        """When its document is whole."""
        await self.say("Page.navigate", url=url)
        await self.until(
            f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'"
        )

    async def reload(self) -> None:
        await self.run("window.isOld = true")
        await self.say("Page.reload")
        await self.until("window.isOld === undefined && document.readyState === 'complete'")

    async def run(self, script: str) -> Any:
        """The value of an expression; of a promise, what it brings."""
        done = await self.say(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in done:
            details = done["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description") or details["text"])
        return done["result"].get("value")

    async def until(self, condition: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            # A document that is on its way out has no context to run in.
            with contextlib.suppress(ProtocolError):
                if await self.run(condition):
                    return
            assert time.monotonic() < end, f"not in {PATIENCE_S} s: {condition}"
            await asyncio.sleep(0.02)

    async def say(self, method: str, **parameters: Any) -> dict[str, Any]:
        return await self._browser.say(method, parameters, self._session)

    async def close(self) -> None:
        await self._browser.say("Target.closeTarget", {"targetId": self.target})


class ProtocolError(Exception):
    """What the browser answers to a question that it cannot take."""


class Chromium:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())

    async def profile(self) -> str:
        """A user with an empty cache of its own."""
        return str((await self.say("Target.createBrowserContext", {}))["browserContextId"])

    async def forget(self, profile: str) -> None:
        await self.say("Target.disposeBrowserContext", {"browserContextId": profile})

    async def tab(self, profile: str | None, url: str) -> Tab:
        """Without a profile it is of the browser's own user, who alone shows tickets unasked."""
        of = {"browserContextId": profile} if profile is not None else {}
        made = await self.say("Target.createTarget", {"url": "about:blank"} | of)
        target = made["targetId"]
        attached = await self.say("Target.attachToTarget", {"targetId": target, "flatten": True})
        tab = Tab(self, target, attached["sessionId"])
        await tab.open(url)
        return tab

    async def say(
        self, method: str, parameters: dict[str, Any], session: str | None = None
    ) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        said = {"id": number, "method": method, "params": parameters}
        await self._socket.send(json.dumps(said | ({"sessionId": session} if session else {})))
        async with asyncio.timeout(PATIENCE_S):
            told = await answer
        if "error" in told:
            raise ProtocolError(f"{method}: {told['error']}")
        return dict(told["result"])

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for text in self._socket:
                told = json.loads(text)
                answer = self._waiting.pop(told.get("id", 0), None)
                if answer is not None and not answer.done():
                    answer.set_result(told)

    async def close(self) -> None:
        with contextlib.suppress(ConnectionClosed, TimeoutError):
            async with asyncio.timeout(5):
                await self._socket.send('{"id": 0, "method": "Browser.close"}')
                await self._reading
        self._reading.cancel()


@contextlib.asynccontextmanager
async def chromium(folder: Path, *flags: str) -> AsyncIterator[Chromium]:
    assert COMMAND is not None
    port_file = folder / "DevToolsActivePort"
    with (folder.parent / "chromium.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            COMMAND,
            *FLAGS,
            *flags,
            f"--user-data-dir={folder}",
            "about:blank",
            stdout=log,
            stderr=log,
            # It writes beside its profile too.
            env=os.environ | {"HOME": str(folder)},
        )
    try:
        end = time.monotonic() + PATIENCE_S
        while not port_file.exists() or port_file.read_text().count("\n") < 1:
            assert process.returncode is None, (folder.parent / "chromium.log").read_text()[-2000:]
            assert time.monotonic() < end, "chromium does not tell its port"
            await asyncio.sleep(0.02)
        port, path = port_file.read_text().split()
        address = f"ws://127.0.0.1:{port}{path}"
        async with connect(address, max_size=None, proxy=None, ping_interval=None) as socket:
            browser = Chromium(socket)
            try:
                yield browser
            finally:
                await browser.close()
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
