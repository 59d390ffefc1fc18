"""Three nodes are backed up one after the other under load, and all of them are made anew from the copies."""

import asyncio
import contextlib
import signal
from pathlib import Path

import pytest
from tests.catalog.databases import empty_database
from tests.cluster.running import PATIENT, Nodes
from tests.process.test_backup import backed_up, restored
from tests.waiting import until

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.client.moor import Moor
from moorline.errors import MoorlineError

pytestmark = [pytest.mark.process, pytest.mark.long]

NAMES = ("a", "b", "c")
FILTER, GROUP = "load/#", "$shared/g/load/#"


class Load:
    """Publishes at one node, number by number, each behind the answer before."""

    def __init__(self, moor: Moor, name: str) -> None:
        self.name = name
        self.answered = 0
        self._moor = moor
        self._task = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        with contextlib.suppress(MoorlineError):
            while True:
                await self._moor.publish(f"load/{self.name}", self._body(self.answered))
                self.answered += 1

    def _body(self, number: int) -> bytes:
        return f"{self.name} {number}".encode()

    def bodies(self) -> set[bytes]:
        """All that was answered by now."""
        return set(map(self._body, range(self.answered)))

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


class Reading:
    """All that a subscription gets, acknowledged."""

    def __init__(self) -> None:
        self.got: set[bytes] = set()
        self._task: asyncio.Task[None]

    async def begin(self, moor: Moor, wanted: str) -> "Reading":
        subscription = await moor.subscribe(wanted, start="beginning")

        async def go_on() -> None:
            with contextlib.suppress(MoorlineError):
                async for message in subscription:
                    self.got.add(message.body)
                    await message.ack()

        self._task = asyncio.create_task(go_on())
        return self

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def test_what_each_node_answered_before_its_cut_is_there_and_nothing_is_passed_over(
    postgres: EmbeddedPostgres, nodes: Nodes, tmp_path: Path
) -> None:
    running = dict(zip(NAMES, await nodes.start(*NAMES, settings=PATIENT), strict=True))
    before_cut: dict[str, set[bytes]] = {}
    read_at_first_cut = set[bytes]()
    async with contextlib.AsyncExitStack() as stack:
        moors = [
            await stack.enter_async_context(moorline.connect(node.address, reconnect=False))
            for node in running.values()
        ]
        loads = [Load(moor, name) for moor, name in zip(moors, NAMES, strict=True)]
        member = await Reading().begin(moors[1], GROUP)
        await until(lambda: len(member.got) > 100)
        for load in loads:
            # What is answered before the command begins is answered before its cut.
            before_cut[load.name] = load.bodies()
            await backed_up(running[load.name], tmp_path / "copies" / load.name)
            # More than what the catalog of that cut can know to be read.
            read_at_first_cut = read_at_first_cut or set(member.got)
            more = load.answered + 20
            await until(lambda load=load, more=more: load.answered > more)  # type: ignore[misc]
        for load in loads:
            await load.end()
        await member.end()
    for node in running.values():
        node.signal(signal.SIGKILL)
        await asyncio.to_thread(node.process.wait, 30)

    catalog = await empty_database(postgres)
    for place, name in enumerate(NAMES):
        # The catalog is that of the first cut.
        keep = ("--keep-catalog",) if place else ()
        where = tmp_path / "fresh" / name
        await restored(tmp_path / "copies" / name, where, f"--catalog={catalog}", *keep)
    wanted = set().union(*before_cut.values())
    async with Nodes(catalog, tmp_path / "fresh") as again:
        (first, *_) = await again.start(*NAMES, settings=PATIENT)
        async with moorline.connect(first.address, reconnect=False) as moor:
            everything = await Reading().begin(moor, FILTER)
            member = await Reading().begin(moor, GROUP)
            await until(lambda: wanted <= everything.got, what="what each had answered")
            await until(
                lambda: wanted <= read_at_first_cut | member.got, what="what nobody had read"
            )
            await everything.end()
            await member.end()
