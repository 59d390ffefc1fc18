"""The faults of a campaign. Each is made, stays for a while, and is undone; what it did is told in a line.

A fault that this machine does not let us make returns nothing, and the summary says so.
"""

import asyncio
import contextlib
import random
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import moorline
from chaos import damage
from chaos.history import Damaged, History, Mishap
from chaos.load import Load
from chaos.service_load import DRIFTS, ServiceClient
from chaos.small_disk import RESERVE_BYTES
from chaos.world import Node, World
from moorline.errors import MoorlineError

DISK_FULL, LOG_DAMAGED, MACHINE = 9, 13, 1
LAST_BLOCKS = 24 * 4_096
CANCEL_CHANCE = 0.25


class Scene:
    """What faults act on. A node, and the catalog, suffer one fault at a time."""

    def __init__(self, world: World, load: Load, services: Sequence[ServiceClient]) -> None:
        self.world = world
        self.load = load
        self.services = services
        self._busy: set[str] = set()
        self._catalog = asyncio.Event()
        self._catalog.set()

    @property
    def history(self) -> History:
        return self.load.history

    @contextlib.asynccontextmanager
    async def victim(self, chance: random.Random, name: str = "") -> AsyncIterator[Node | None]:
        """A running node that suffers nothing else; None if there is none."""
        free = [node for node in self.world.running() if node.name not in self._busy]
        if name:
            free = [node for node in free if node.name == name]
        node = chance.choice(free) if free else None
        if node is None:
            yield None
            return
        self._busy.add(node.name)
        try:
            yield node
        finally:
            self._busy.discard(node.name)

    async def start(self, node: Node) -> bool:
        await self._catalog.wait()
        return await self.world.start(node)

    @contextlib.asynccontextmanager
    async def without_catalog(self) -> AsyncIterator[bool]:
        if not self._catalog.is_set():
            yield False
            return
        self._catalog.clear()
        try:
            yield True
        finally:
            self._catalog.set()


Fault = Callable[[Scene, random.Random], Awaitable[str]]


async def kill(scene: Scene, chance: random.Random) -> str:
    async with scene.victim(chance) as node:
        if node is None:
            return ""
        await node.kill()
        await asyncio.sleep(chance.random() * 3)
        await scene.start(node)
        return f"kill -9 of {node.name}"


async def stop(scene: Scene, chance: random.Random) -> str:
    async with scene.victim(chance) as node:
        if node is None:
            return ""
        await node.stop()
        await scene.start(node)
        return f"{node.name} stopped and started"


async def freeze(scene: Scene, chance: random.Random) -> str:
    async with scene.victim(chance) as node:
        if node is None:
            return ""
        seconds = chance.choice((0.3, 1, 3, 6))
        node.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            node.signal(signal.SIGCONT)
        return f"SIGSTOP of {node.name} for {seconds} s"


async def fill_disk(scene: Scene, chance: random.Random) -> str:
    disk = scene.world.disk
    small = next((node.name for node in scene.world.nodes.values() if node.disk), "-")
    async with scene.victim(chance, small) as node:
        if node is None or disk.why_not:
            return ""
        kind = chance.choice(("nearly", "wholly", "at a start"))
        try:
            if kind == "at a start":
                await node.kill()
                disk.fill(left_bytes=RESERVE_BYTES // 2)
                await scene.start(node)
            else:
                node.codes_allowed = {DISK_FULL, MACHINE} if kind == "wholly" else set()
                left = LAST_BLOCKS if kind == "wholly" else RESERVE_BYTES // 2
                disk.fill(left_bytes=left)
            await asyncio.sleep(2 + chance.random() * 2)
        finally:
            disk.empty()
        await _up_again(scene, node)
        return f"disk of {node.name} full: {kind}"


async def _up_again(scene: Scene, node: Node) -> None:
    """Starts a node that the fault has ended; its code must be one of those that are foreseen."""
    if not node.is_running:
        if node.is_meant_to_run:
            scene.world.ended(node, "ended by itself")
        node.is_meant_to_run = False
        await scene.start(node)
    node.codes_allowed = set()


async def cut_peers(scene: Scene, chance: random.Random) -> str:
    return await _cut(scene, chance, "peers")


async def cut_clients(scene: Scene, chance: random.Random) -> str:
    return await _cut(scene, chance, "clients")


async def _cut(scene: Scene, chance: random.Random, whom: str) -> str:
    async with scene.victim(chance) as node:
        if node is None:
            return ""
        links = [node.peers] if whom == "peers" else [node.clients, node.services]
        way = chance.choice(("drop", "hold", "hold, then drop"))
        seconds = chance.choice((0.2, 1, 4))
        try:
            for link in links:
                if way == "drop":
                    link.drop()
                else:
                    link.hold()
            await asyncio.sleep(seconds)
            for link in links:
                if way == "hold, then drop":
                    link.drop()
        finally:
            for link in links:
                link.heal()
        return f"links of {node.name} to its {whom} cut ({way}) for {seconds} s"


async def restart_catalog(scene: Scene, chance: random.Random) -> str:
    async with scene.without_catalog() as is_ours:
        if not is_ours:
            return ""
        killed = chance.random() < 0.5
        await scene.world.stop_catalog(killed=killed)
        try:
            await asyncio.sleep(chance.choice((0, 1, 4)))
        finally:
            await scene.world.start_catalog()
        return f"Postgres {'killed' if killed else 'stopped'} and started"


async def cancel_calls(scene: Scene, chance: random.Random) -> str:
    before = scene.load.cancelled
    scene.load.cancel_chance = CANCEL_CHANCE
    try:
        await asyncio.sleep(3 + chance.random() * 3)
    finally:
        scene.load.cancel_chance = 0
    return f"{scene.load.cancelled - before} calls of clients given up"


async def harm_files(scene: Scene, chance: random.Random) -> str:
    """A stopped node's file is harmed; what is lost by it must be said."""
    async with scene.victim(chance) as node:
        if node is None:
            return ""
        await _stopped_with_a_backlog(scene, node, chance)
        kinds = list(damage.KINDS)
        chance.shuffle(kinds)
        scene.history.note(Damaged(node.name))
        told, kind = "", ""
        while kinds and not told:
            kind = kinds.pop()
            told = damage.harm(node, kind, chance)
        with_repair = chance.random() < 0.5
        problems = await damage.check(node, scene.history, repair=with_repair)
        if told and not problems and kind in damage.NEVER_HARMLESS:
            scene.history.note(Mishap(f"moor journal check says nothing of {node.name}: {told}"))
        node.codes_allowed = {LOG_DAMAGED}
        if not await scene.start(node):
            await damage.check(node, scene.history, repair=True)
            node.codes_allowed = set()
            await scene.start(node)
        node.codes_allowed = set()
        found = f"; check: {'; '.join(problems)}" if problems else ""
        repaired = " and repaired" if with_repair else ""
        return f"{node.name}: {told}{repaired}{found}" if told else ""


async def _stopped_with_a_backlog(scene: Scene, node: Node, chance: random.Random) -> None:
    """Nobody reads for a while: what is on disk then is still owed to somebody."""
    scene.load.reading.clear()
    try:
        await asyncio.sleep(1 + chance.random() * 2)
        if chance.random() < 0.5:
            await node.stop()
        else:
            with contextlib.suppress(MoorlineError):
                async with moorline.connect(node.address, reconnect=False) as moor:
                    await moor.checkpoint()
            await node.kill()
    finally:
        scene.load.reading.set()


async def lose_associations(scene: Scene, chance: random.Random) -> str:
    """Rows of the catalog change behind everybody's back; a proof must find it, a command mend it."""
    async with scene.without_catalog() as is_ours:
        if not is_ours:
            return ""
        service = chance.choice(scene.services)
        kind = chance.choice(list(DRIFTS))
        await service.drift(kind)
        return f"associations of {service.name} {kind} in the catalog"


async def run_a_copy(scene: Scene, chance: random.Random) -> str:
    """A second process on a copy of a node's folder: it must not get ready beside the first."""
    async with scene.victim(chance) as node:
        if node is None:
            return ""
        copy = Node(node.name, scene.world.folder / f"{node.name}-copy")
        await asyncio.to_thread(_copied, node.files, copy.data)
        async with copy.peers, copy.clients, copy.services:
            try:
                await copy.start(scene.world.dsn, scene.world.certificates)
                if copy.is_running and node.is_running:
                    scene.history.note(Mishap(f"a copy of {node.name} runs beside it"))
            finally:
                await copy.kill()
                await asyncio.to_thread(shutil.rmtree, copy.data.parent)
        return f"a copy of {node.name} started beside it: it ended with {copy.code}"


def _copied(source: Path, target: Path) -> None:
    """As far as a running node's files can be copied: some go away meanwhile."""
    with contextlib.suppress(shutil.Error):
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("run"))


FAULTS: dict[str, tuple[int, Fault]] = {
    "kill -9": (5, kill),
    "SIGTERM": (1, stop),
    "SIGSTOP": (4, freeze),
    "full disk": (3, fill_disk),
    "links to nodes cut": (3, cut_peers),
    "links to clients cut": (3, cut_clients),
    "Postgres restarted": (3, restart_catalog),
    "calls cancelled": (3, cancel_calls),
    "files harmed": (4, harm_files),
    "associations lost": (1, lose_associations),
    "folder copied": (1, run_a_copy),
}
"""By name: how often it is drawn, and what it does."""


def drawn(chance: random.Random, among: Sequence[str] = ()) -> Iterator[str]:
    """Each once, in an order of chance; from then on as often as they are to be drawn."""
    names = list(among or FAULTS)
    yield from chance.sample(names, len(names))
    while True:
        yield from chance.choices(names, [FAULTS[name][0] for name in names], k=len(names))
