"""Services under load: one subscription for many queues, associations that come and go, and the proof."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import asyncpg

import moorline
from chaos.history import Proof
from chaos.load import CONNECT_MS_MAX, Actor, Load
from chaos.queue_load import SESSIONS, take
from chaos.world import Node
from moorline.client.moor import Moor
from moorline.client.service import Service

WINDOW = 4
CHANGE_S_MAX = 0.5
DRIFT_FOUND = 17


class ServiceClient(Actor):
    """A service of one node. `own` queues get messages; the others only come and go."""

    def __init__(self, load: Load, name: str, node: Node, file: Path, papers: Path) -> None:
        super().__init__(load, name)
        self.own: list[bytes] = []
        self._others: list[bytes] = []
        self._node = node
        self._file = file
        self._papers = papers

    def node(self) -> Node | None:
        return self._node if self._node.is_running else None

    def connecting(self) -> moorline.client.moor.Connecting:
        return moorline.connect(
            self._node.tls_address,
            timeout_ms=CONNECT_MS_MAX,
            ca=self.load.world.papers.ca,
            certificate=self._papers,
            key=self._papers,
        )

    async def found(self, own: int, others: int) -> None:
        """Makes its queues, and associates those that get messages."""
        async with self.connecting() as moor:
            self.own = [queue.id for queue in await moor.create_queues(own)]
            self._others = [queue.id for queue in await moor.create_queues(others)]
            async with moor.service(self._file) as service:
                assert not await service.associate(self.own)

    async def _once(self) -> None:
        if self.node() is not None:
            async with self.connecting() as moor:
                await self.work(moor)

    async def work(self, moor: Moor) -> None:
        async with moor.service(self._file, window=WINDOW) as service:
            changing = asyncio.create_task(self._change(service))
            try:
                await self._read(service)
            finally:
                changing.cancel()
                await asyncio.gather(changing, return_exceptions=True)

    async def _read(self, service: Service) -> None:
        session = next(SESSIONS)
        async for message in service:
            if not await take(self, session, message):
                return

    async def _change(self, service: Service) -> None:
        while True:
            async with self.load.making():
                some = self.random.sample(self._others, 5)
                act = self.random.choice((service.associate, service.dissociate))
                with contextlib.suppress(TimeoutError):
                    await self.call(partial(act, some))
            await asyncio.sleep(self.random.random() * CHANGE_S_MAX)

    # --- proofs -----------------------------------------------------------------------------------

    async def prove(self) -> None:
        """While nothing flows: what is said to be equal is compared with what is there."""
        await self._prove_by_command(f"moor service verify {self.name}")

    async def _prove_by_command(self, what: str) -> None:
        node = self._node
        done = await node.moor(
            "service",
            "verify",
            self.name,
            f"--client-file={self._file}",
            f"--address={node.address}",
            "--json",
        )
        if done.returncode in (0, DRIFT_FOUND):
            is_equal = await self.is_equal()
            self.note(Proof(what, said_equal=done.returncode == 0, is_equal=is_equal))

    async def is_equal(self) -> bool:
        """Whether the ids themselves are the same on both sides."""
        catalog = await asyncpg.connect(self.load.world.dsn)
        try:
            rows = await catalog.fetch(
                "select queue from moorline.association a "
                "join moorline.service s on s.number = a.service where s.name = $1",
                self.name,
            )
        finally:
            await catalog.close()
        return {bytes(row["queue"]) for row in rows} == self.listed()

    def listed(self) -> set[bytes]:
        """The ids in the client's own file."""
        with contextlib.closing(
            sqlite3.connect(f"{self._file.absolute().as_uri()}?mode=ro", uri=True)
        ) as file:
            return {row[0] for row in file.execute("select queue from association")}

    async def drift(self) -> int:
        """Takes rows out of the catalog behind everybody's back, as a restored backup would."""
        victims: Sequence[bytes] = self.random.sample(self.own, 2)
        catalog = await asyncpg.connect(self.load.world.dsn)
        try:
            await catalog.fetch("select * from moorline.dissociate($1)", list(victims))
        finally:
            await catalog.close()
        return len(victims)
