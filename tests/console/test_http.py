"""The pages that whoever comes may ask for."""

import asyncio

from moorline.console.http import FiguresPage
from moorline.core.access.web_origin import WebNames
from moorline.metrics import Metrics
from moorline.net.http.logins import Facts, Logins, WebAdmission
from moorline.net.http.messages import Request


class Looked:
    def __init__(self) -> None:
        self.times = 0
        self.metrics = Metrics()
        self.metrics.watch("looks", "Looks at the figures.", self._look)
        self.page = FiguresPage(self.metrics)
        nobody = Logins(WebAdmission(WebNames()), None).nobody(Facts("127.0.0.1", "", False))
        self.request = Request("GET", b"/metrics", [], nobody)

    def _look(self) -> int:
        self.times += 1
        return self.times

    async def ask(self) -> int:
        body = (await self.page.answer(self.request)).body.decode()
        (line,) = (one for one in body.splitlines() if one.startswith("moorline_looks "))
        return int(float(line.split()[1]))


async def test_figures_are_made_once_for_all_who_ask_together() -> None:
    looked = Looked()
    assert await asyncio.gather(*(looked.ask() for _ in range(60))) == [1] * 60
    assert await looked.ask() == 2, "who asks behind it is told what is so by then"


async def test_whoever_goes_away_takes_nobodys_figures_along() -> None:
    looked = Looked()
    asking = [asyncio.create_task(looked.ask()) for _ in range(3)]
    await asyncio.sleep(0)
    asking[0].cancel()
    assert await asyncio.gather(*asking[1:]) == [1, 1]
    assert asking[0].cancelled()


async def test_whoever_asks_while_they_are_made_gets_newer_ones() -> None:
    looked = Looked()
    waiting = asyncio.Event()
    late: list[asyncio.Task[int]] = []

    def parts() -> list[float]:
        # In the middle of the first page.
        if not late:
            late.append(asyncio.ensure_future(looked.ask()))
            waiting.set()
        return [1.0]

    looked.metrics.add_up("parts", "Parts.", parts)
    assert await looked.ask() == 1
    await waiting.wait()
    assert await late[0] == 2
