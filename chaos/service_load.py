"""Services under load: one subscription for many queues, associations that come and go, and the proof."""

import asyncio
import contextlib
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

import moorline
from chaos.history import Mishap, Proof
from chaos.load import CONNECT_MS_MAX, Actor, Load
from chaos.queue_load import SESSIONS, take
from chaos.world import Node
from moorline.client.connecting import Connecting
from moorline.client.moor import Moor
from moorline.client.service import Service
from moorline.errors import MoorlineError

WINDOW = 4
CHANGE_S_MAX = 0.5
DRIFT_FOUND = 17
ELSEWHERE_CHANCE = 0.2
"""How often the client tries another node first when it comes back."""


class ServiceClient(Actor):
    """A service of one node. `own` queues get messages; the others only come and go."""

    def __init__(self, load: Load, name: str, node: Node, file: Path, certificates: Path) -> None:
        super().__init__(load, name)
        self.own: list[bytes] = []
        self._others: list[bytes] = []
        self._node = node
        self._file = file
        self._certificates = certificates
        self._rejoin = asyncio.Event()
        self._is_drifted = False

    def node(self) -> Node | None:
        return self._node if self._node.is_running else None

    def connecting(self, node: Node | None = None) -> Connecting:
        return moorline.connect(
            (node or self._node).tls_address,
            timeout_ms=CONNECT_MS_MAX,
            ca=self.load.world.certificates.ca,
            certificate=self._certificates,
            key=self._certificates,
            reconnect=False,
        )

    async def found(self, own: int, others: int) -> None:
        """Makes its queues, and associates those that get messages."""
        async with self.connecting() as moor:
            self.own = [queue.id for queue in await moor.create_queues(own)]
            self._others = [queue.id for queue in await moor.create_queues(others)]
            async with moor.service(self._file) as service:
                assert not await service.associate(self.own)

    async def _once(self) -> None:
        if self.random.random() < ELSEWHERE_CHANCE:
            await self._enter_elsewhere()
        if self.node() is not None:
            async with self.connecting() as moor:
                await self.work(moor)

    async def _enter_elsewhere(self) -> None:
        """The list is of one node; at another one it must not become shorter."""
        node = self.random.choice(self.load.world.running() or [self._node])
        if node is not self._node:
            with contextlib.suppress(MoorlineError, OSError):
                async with self.connecting(node) as moor, moor.service(self._file):
                    pass
            if not set(self.own) <= self._listed():
                self.note(Mishap(f"{self.name} entered at {node.name}: its list has lost queues"))

    async def work(self, moor: Moor) -> None:
        async with moor.service(self._file, window=WINDOW) as service:
            tasks = [
                asyncio.create_task(work)
                for work in (self._read(service), self._change(service), self._rejoin.wait())
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                self._rejoin.clear()
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, service: Service) -> bool:
        session = next(SESSIONS)
        async for message in service:
            if not await take(self, session, message):
                break
        return True

    async def _change(self, service: Service) -> bool:
        while True:
            async with self.load.making():
                some = self.random.sample(self._others, 5)
                act = self.random.choice((service.associate, service.dissociate))
                with contextlib.suppress(TimeoutError):
                    await self.call(partial(act, some))
            await asyncio.sleep(self.random.random() * CHANGE_S_MAX)

    # --- proofs -----------------------------------------------------------------------------------

    async def mend(self) -> str:
        """After drift: what says that there is none is wrong, and an operator's commands put it right."""
        if not self._is_drifted:
            return ""
        self._is_drifted = False
        if await self._verified("moor service verify, after drift"):
            return ""
        for command in ("recompute", "repair"):
            file = [f"--client-file={self._file}"] if command == "repair" else []
            await self._moor(command, *file)
        if not await self._verified("moor service verify, after a repair"):
            self.note(Mishap(f"no command mends {self.name}"))
        self._rejoin.set()
        return f"drift of {self.name} found and repaired"

    async def prove(self) -> None:
        """While nothing flows: what is said to be equal is compared with what is there."""
        await self._verified("moor service verify")

    async def _verified(self, what: str) -> bool:
        """Whether the command says equal; noted beside the truth."""
        done = await self._moor("verify", f"--client-file={self._file}", "--json")
        if done.returncode not in (0, DRIFT_FOUND):
            self.note(Mishap(f"{what} {self.name}: {done.stderr[-300:]}"))
            return False
        is_equal = await self._is_equal()
        self.note(Proof(f"{what} {self.name}", done.returncode == 0, is_equal))
        return done.returncode == 0

    async def _moor(self, command: str, *given: str) -> "subprocess.CompletedProcess[str]":
        node = self._node
        return await node.moor("service", command, self.name, *given, f"--address={node.address}")

    async def _is_equal(self) -> bool:
        """Whether the ids themselves are the same on both sides."""
        async with self._catalog() as catalog:
            rows = await catalog.fetch(
                "select queue from moorline.association a "
                "join moorline.service s on s.number = a.service where s.name = $1",
                self.name,
            )
        return {bytes(row["queue"]) for row in rows} == self._listed()

    def _listed(self) -> set[bytes]:
        """The ids in the client's own file."""
        with contextlib.closing(
            sqlite3.connect(f"{self._file.absolute().as_uri()}?mode=ro", uri=True)
        ) as file:
            return {row[0] for row in file.execute("select queue from association")}

    @contextlib.asynccontextmanager
    async def _catalog(self) -> AsyncIterator[Any]:
        catalog = await asyncpg.connect(self.load.world.dsn)
        try:
            yield catalog
        finally:
            await catalog.close()

    async def drift(self, kind: str) -> None:
        """Changes rows of the catalog behind everybody's back, as a restored backup or a hand would."""
        victims: Sequence[bytes] = self.random.sample(self.own, 2)
        async with self._catalog() as catalog:
            await catalog.execute(DRIFTS[kind], list(victims))
        self._is_drifted = True


DRIFTS = {
    "taken out with their digest": "select * from moorline.dissociate($1)",
    "taken out": "delete from moorline.association where queue = any ($1)",
    "given other ids": "update moorline.association "
    "set queue = substring(sha256(queue) for 24) where queue = any ($1)",
}
"""By what becomes of the rows of some queues: how it is done."""
