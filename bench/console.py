"""What the page of a node costs: whoever opens it, and the node.

python -m bench.console [--quick] [--json]

opened      a real Chromium opens the page of a node with 10,000 queues and 100 groups, and goes to its
            queues and to its groups: until each is drawn, the median of some browsers that were never there
idle        CPU of a node on which nothing is done, by the second: without the role, with it, and while
            sessions watch what the overview shows
"""

import asyncio
import contextlib
import statistics
from pathlib import Path
from typing import NamedTuple

from bench.node import BenchNode, cpu_seconds
from bench.report import Report, run_bench, tell
from moorline.client.connecting import connect
from moorline.client.moor import Moor
from moorline.wire.value import ValuesSubscribed
from moorline.wire.view import SubscribeView

HTTP = "--http=127.0.0.1:0"
QUEUES, AT_ONCE = 10_000, 2_500
GROUPS = 100
PER_PAGE = 50
WATCHED = ("nodes", "nodes/node-1", "figures/node-1")


class Plan(NamedTuple):
    opens: int
    idle_s: float
    watchers: tuple[int, ...]


FULL = Plan(7, 20, (1, 100))
QUICK = Plan(2, 3, (1, 20))


async def opened(report: Report, folder: Path, plan: Plan) -> None:
    from tests.records.browser.chromium import Tab, chromium, why_not

    why = why_not()
    if why is not None:
        tell(why)
        return

    async def drawn(tab: Tab, view: str, condition: str) -> float:
        """By the clock of the page: to ask it costs no more than a look each 20 ms."""
        since = float(await tab.run(f"(location.hash = '#/{view}', performance.now())"))
        await tab.run(
            "new Promise(done => { const look = () => "
            f"{condition} ? done() : setTimeout(look, 2); look(); }})"
        )
        return float(await tab.run("performance.now()")) - since

    took: dict[str, list[float]] = {"overview": [], "queues": [], "groups": []}
    (folder / "profile").mkdir()
    with BenchNode(folder, [HTTP]) as node:
        async with connect(node.address) as moor, chromium(folder / "profile") as browser:
            for _ in range(QUEUES // AT_ONCE):
                await moor.create_queues(AT_ONCE)
            for number in range(GROUPS):
                await moor.group(f"$shared/group-{number}/x/{number}/#").create()
            for _ in range(plan.opens):
                made = await moor.access.make_pass()
                profile = await browser.profile()
                tab = await browser.tab(profile, "about:blank")
                url = f"{node.http_address}/console/#pass={made.text}"
                await tab.say("Page.navigate", url=url)
                # From the navigation on, which is when the clock of a page begins.
                await tab.until("document.querySelector('main .cards') !== null")
                took["overview"].append(float(await tab.run("performance.now()")))
                for view, rows in (("queues", PER_PAGE), ("groups", GROUPS)):
                    shown = f"document.querySelectorAll('main tbody tr').length === {rows}"
                    took[view].append(await drawn(tab, view, shown))
                await tab.close()
                await browser.forget(profile)
    for view, times in took.items():
        report.row(f"opened, {view}", "p50", statistics.median(times), "ms")


async def idle(report: Report, folder: Path, plan: Plan) -> None:
    roles = {"without the role": ["--roles=resolver,broker,records"], "with the role": [HTTP]}
    with contextlib.ExitStack() as stack:
        nodes = {}
        for name, flags in roles.items():
            (folder / name).mkdir()
            nodes[name] = stack.enter_context(BenchNode(folder / name, flags))
        # Side by side, so that what else the machine does is done to both.
        before = {name: cpu_seconds(node.pid) for name, node in nodes.items()}
        await asyncio.sleep(plan.idle_s)
        spent = {name: cpu_seconds(node.pid) - before[name] for name, node in nodes.items()}
        for name, cpu_s in spent.items():
            report.row(f"idle, {name}", "cpu", 1_000 * cpu_s / plan.idle_s, "ms")
        for watchers in plan.watchers:
            cpu_s = await watched(nodes["with the role"], watchers, plan.idle_s)
            report.row(f"idle, {watchers} watching", "cpu", 1_000 * cpu_s / plan.idle_s, "ms")


async def watched(node: BenchNode, watchers: int, for_s: float) -> float:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(watchers):
            await watch(await stack.enter_async_context(connect(node.address)))
        before = cpu_seconds(node.pid)
        await asyncio.sleep(for_s)
        return cpu_seconds(node.pid) - before


async def watch(moor: Moor) -> None:
    for view in WATCHED:
        await moor._caller.call(  # noqa: SLF001 - a benchmark looks inside
            lambda call, view=view: SubscribeView(call, view),  # type: ignore[misc]
            ValuesSubscribed,
        )


async def run(report: Report, folder: Path, is_quick: bool) -> None:
    plan = QUICK if is_quick else FULL
    for name, part in (("opened", opened), ("idle", idle)):
        (folder / name).mkdir()
        tell(f"console: {name}")
        await part(report, folder / name, plan)


if __name__ == "__main__":
    run_bench("console", __doc__, run)
