"""Views at a real node: subscribed once, pushed when they change, computed while somebody watches, judged."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.running import metric
from tests.console.talking import ECHO, ECHOED, FAILED, hear, logged_in, say
from tests.process.nodes import NodeProcess
from tests.waiting import until
from websockets.asyncio.client import ClientConnection

import moorline
from moorline.demo.stage import Stage
from moorline.ids import text_of
from moorline.limits import VIEWS_PER_PRINCIPAL_MAX, VIEWS_PER_SESSION_MAX

pytestmark = [pytest.mark.process]

SUBSCRIBE, SUBSCRIBED, UNSUBSCRIBE, UNSUBSCRIBED, CHANGED, ENDED = 660, 341, 342, 343, 346, 348
NODES_LISTED, DESCRIBED, GROUP_DESCRIBED, SERVICE_DESCRIBED = 375, 10, 124, 73
READ, FIGURES = 661, 662
AGREE, AGREED = 619, 620
GROUP = "$shared/crew/harbour/#"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node") / "data", "--set=streams.shards=4") as node:
        yield node


class Page:
    """What one page was told of its views."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.values: dict[int, Any] = {}
        self.ended: dict[int, str] = {}
        self.pushes = 0
        self._call = 0

    async def answer(self, *message: Any) -> list[Any]:
        """Of a call; what is pushed before it counts."""
        self._call += 1
        call = self._call
        await say(self.socket, [message[0], call, *message[1:]])
        while True:
            for heard in await hear(self.socket):
                if heard[0] in (CHANGED, ENDED):
                    self._pushed(heard)
                elif heard[1] == call:
                    return list(heard)

    async def watch(self, view: str) -> int:
        answer = await self.answer(SUBSCRIBE, view)
        assert answer[0] == SUBSCRIBED, answer
        ((code, one, value),) = answer[2]
        assert not code
        self.values[one] = value
        return int(one)

    async def pushed(self) -> None:
        """One message more."""
        for heard in await hear(self.socket):
            self._pushed(heard)

    def _pushed(self, heard: list[Any]) -> None:
        if heard[0] == ENDED:
            self.ended |= dict.fromkeys(heard[1], heard[2])
        else:
            assert heard[0] == CHANGED, heard
            self.pushes += 1
            self.values |= dict(zip(heard[1], heard[2], strict=True))


@asynccontextmanager
async def looking(node: NodeProcess, **login: str) -> AsyncIterator[Page]:
    async with logged_in(node, **login) as socket:
        yield Page(socket)


async def read(moor: moorline.Moor) -> None:
    async for message in moor.subscribe(GROUP, start="beginning"):
        await message.ack()


def holders(described: list[Any]) -> set[str]:
    return {cursor[5] for cursor in described[4]}


async def test_each_view_is_the_answer_to_the_call_for_the_same(node: NodeProcess) -> None:
    async with moorline.connect(node.address) as moor, looking(node) as page:
        await moor.group(GROUP).create()
        nodes = page.values[await page.watch("nodes")]
        assert nodes[0] == NODES_LISTED
        assert [one[1] for one in nodes[2]] == ["node-1"]
        described = page.values[await page.watch("nodes/node-1")]
        assert described[:3] == [DESCRIBED, 0, "node-1"]
        group = page.values[await page.watch(f"groups/{GROUP}")]
        assert group[0] == GROUP_DESCRIBED
        assert group[2][0] == GROUP
        figures = page.values[await page.watch("figures/node-1")]
        assert figures[:3] == [FIGURES, 0, "node-1"]
        assert (await page.answer(SUBSCRIBE, "tides"))[:3] == [FAILED, 5, "NOT_FOUND"]
        assert (await page.answer(SUBSCRIBE, "groups/$shared/none/x"))[2] == "NOT_FOUND"


async def test_a_group_is_pushed_when_a_member_comes_and_when_it_goes(node: NodeProcess) -> None:
    async with (
        moorline.connect(node.address) as moor,
        moorline.connect(node.address) as second,
        looking(node) as page,
    ):
        reading = [asyncio.create_task(read(moor))]
        await moor.publish_all([moorline.record(f"harbour/{n}", b"m") for n in range(20)])
        group = moor.group(GROUP)
        await group.create(start="beginning")
        one = await page.watch(f"groups/{GROUP}")
        while len(holders(page.values[one]) - {""}) != 1:
            await page.pushed()
        reading.append(asyncio.create_task(read(second)))
        while len(holders(page.values[one]) - {""}) != 2:
            await page.pushed()
        reading[1].cancel()
        while len(holders(page.values[one]) - {""}) != 1:
            await page.pushed()
        reading[0].cancel()
        await asyncio.gather(*reading, return_exceptions=True)


async def test_figures_are_kept_before_anybody_looks_and_the_newest_are_pushed(
    node: NodeProcess,
) -> None:
    async with moorline.connect(node.address) as moor:
        queue = await moor.create_queue()
        for _ in range(10):
            await moor.send(queue.id, b"m")
        async with looking(node) as page:

            async def sent() -> list[float]:
                found = await page.answer(READ)
                assert found[0] == FIGURES
                return list(found[5][0])

            # Nobody has watched: the node has counted by itself.
            while sum(await sent()) == 0:
                await asyncio.sleep(0.1)
            one = await page.watch("figures/node-1")
            step = page.values[one][3]
            while page.values[one][3] <= step:
                await page.pushed()
            kept = await page.answer(READ)
            assert len(kept[5]) == 6
            assert len({len(series) for series in kept[5]}) == 1
            since = kept[3] - 1
            assert len((await page.answer(READ, "", since))[5][0]) >= 1
            assert page.values[one][6][0] >= 1, "queues that are there"


async def test_nothing_is_computed_that_nobody_watches(node: NodeProcess) -> None:
    async with looking(node) as one, looking(node) as other:
        first, second = await one.watch("nodes/node-1"), await other.watch("nodes/node-1")
        assert first == second, "two pages watch the same"
        await one.watch("figures/node-1")
        assert metric(node, "views_watched") == 2
        looks = metric(node, "view_looks_total")
        await until(lambda: metric(node, "view_looks_total") > looks)
        assert (await one.answer(UNSUBSCRIBE, [first]))[0] == UNSUBSCRIBED
        assert metric(node, "views_watched") == 2, "the other still watches"
    await until(lambda: metric(node, "views_watched") == 0)
    looks = metric(node, "view_looks_total")
    # As long as two looks at them were apart.
    await asyncio.sleep(2.5)
    assert metric(node, "view_looks_total") == looks


async def test_a_view_of_a_service_says_what_it_has_compared(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    ours = stage.certificates
    async with stage.node(), moorline.connect(stage.address) as operator:
        made = await operator.access.make_pass()
        async with (
            moorline.connect(
                stage.tls_address, ca=ours.ca, certificate=ours.service, key=ours.service_key
            ) as moor,
            moor.service(tmp_path / "service.sqlite") as service,
        ):
            queues = [queue.id for queue in await moor.create_queues(5)]
            await service.associate(queues)
            async with logged_in(stage, proof=made.text) as socket:
                page = Page(socket)
                one = await page.watch("services/harbour")
                told = page.values[one]
                assert told[0] == SERVICE_DESCRIBED
                by_id = text_of(base64.b64decode(told[2][0]))
                assert await page.watch(f"services/{by_id}") == one, "by any name it is one view"
                assert (await page.answer(AGREE, "harbour"))[0] == AGREED
                while page.values[one] == told or page.values[one][4] != 5:
                    await page.pushed()


async def test_a_view_needs_the_right_and_ends_with_it(node: NodeProcess) -> None:
    async with moorline.connect(node.address) as moor:
        await moor.access.add_user("willa", b"swordfish")
        async with (
            looking(node, mechanism="password", proof="willa\0swordfish") as page,
            looking(node) as other,
        ):
            views = ("nodes", "nodes/node-1", "figures/node-1", f"groups/{GROUP}", "services/x")
            denied = metric(node, "calls_denied_total")
            for view in views:
                assert (await page.answer(SUBSCRIBE, view))[2] == "DENIED", view
            assert metric(node, "calls_denied_total") == denied + len(views), "each is in the audit"
            assert (await page.answer(READ))[2] == "DENIED"
            await other.watch("figures/node-1")
            await moor.access.add_grant("/admin/cluster", "willa", "l")
            while (await page.answer(SUBSCRIBE, "nodes"))[0] == FAILED:
                await asyncio.sleep(0.05)
            one = await page.watch("figures/node-1")
            await moor.access.remove_grant("/admin/cluster", "willa")
            while one not in page.ended:
                await page.pushed()
            assert page.ended[one] == "DENIED"
            pushes = page.pushes
            # Others go on, and this one hears of nothing more.
            step = max(other.values.values(), key=lambda value: value[3])[3]
            while max(value[3] for value in other.values.values()) < step + 2:
                await other.pushed()
            assert (await page.answer(ECHO, ""))[0] == ECHOED
            assert page.pushes == pushes


async def test_a_page_that_does_not_read_gets_the_latest_when_it_does(node: NodeProcess) -> None:
    async with moorline.connect(node.address) as moor, looking(node) as page:
        await moor.group(GROUP).create()
        one = await page.watch(f"groups/{GROUP}")
        # It asks for more than the node holds for one that does not read.
        filler = json.dumps([[ECHO, 1_000_000, "A" * 400_000]])
        sending = asyncio.create_task(_send_many(page.socket, filler, 30))
        await until(lambda: metric(node, "views_watched") == 1)
        for n in range(5):
            await moor.publish(f"harbour/late/{n}", b"m")
            looks = metric(node, "view_looks_total")
            await until(lambda looks=looks: metric(node, "view_looks_total") > looks)  # type: ignore[misc]
        ends = sum(one.end for one in (await moor.group(GROUP).info()).cursors)
        async with asyncio.timeout(30):
            while sum(cursor[3] for cursor in page.values[one][4]) != ends:
                for heard in await hear(page.socket):
                    if heard[0] == CHANGED:
                        page._pushed(heard)
        sending.cancel()


async def _send_many(socket: ClientConnection, text: str, times: int) -> None:
    for _ in range(times):
        await socket.send(text)


async def test_more_views_than_a_page_may_have_are_refused(node: NodeProcess) -> None:
    async with moorline.connect(node.address) as moor, looking(node) as page:
        names = [f"$shared/many-{n}/many/{n}" for n in range(VIEWS_PER_SESSION_MAX)]
        for name in names:
            await moor.group(name).create()
        for name in names:
            await page.watch(f"groups/{name}")
        assert (await page.answer(SUBSCRIBE, "nodes"))[2] == "LIMIT"


async def test_one_principal_leaves_views_to_others(node: NodeProcess) -> None:
    names = [f"$shared/mine-{n}/mine/{n}" for n in range(VIEWS_PER_PRINCIPAL_MAX + 1)]
    async with moorline.connect(node.address) as moor:
        for name in names:
            await moor.group(name).create()
        await moor.access.add_user("jonas", b"swordfish")
        await moor.access.add_grant("/admin/cluster", "jonas", "l")
    async with (
        looking(node) as first,
        looking(node) as second,
        looking(node, mechanism="password", proof="jonas\0swordfish") as other,
    ):
        for name in names[:VIEWS_PER_SESSION_MAX]:
            await first.watch(f"groups/{name}")
        # The same in another window costs nothing more.
        shared = [await second.watch(f"groups/{name}") for name in names[:3]]
        for name in names[VIEWS_PER_SESSION_MAX:-1]:
            await second.watch(f"groups/{name}")
        refused = await second.answer(SUBSCRIBE, f"groups/{names[-1]}")
        assert refused[2] == "LIMIT"
        assert "all of its windows" in refused[3]
        assert metric(node, "views_watched") == VIEWS_PER_PRINCIPAL_MAX
        await other.watch("nodes")
        # What one window gives up the other has still; what none has makes room.
        assert (await second.answer(UNSUBSCRIBE, shared))[0] == UNSUBSCRIBED
        assert (await second.answer(SUBSCRIBE, f"groups/{names[-1]}"))[2] == "LIMIT"
        last = await second.watch(f"groups/{names[0]}")
        assert (await first.answer(UNSUBSCRIBE, [last]))[0] == UNSUBSCRIBED
        assert (await second.answer(UNSUBSCRIBE, [last]))[0] == UNSUBSCRIBED
        await second.watch(f"groups/{names[-1]}")
    await until(lambda: metric(node, "views_watched") == 0)
