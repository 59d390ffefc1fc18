"""Room: node. The nodes of a process: its own, and one for each home that moved here.

    own      the data folder of the process; when its home moves away, the same folder without it
    guests   homes/NAME in that folder, each a node like any other, with addresses of its own

Each is looked after by a task that looks for a move of its home in the catalog, and makes it. A node that
ends by itself ends the process, with all of them: one supervisor starts one process.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from moorline.catalog.home_moves import HomeMoves
from moorline.config.settings import Config
from moorline.errors import HomeMoved, MoorlineError
from moorline.limits import HOME_MOVE_LOOK_MS, STOP_MS_MAX
from moorline.node import set_aside
from moorline.node.folder import home_number
from moorline.node.guests import (
    guest_config,
    guest_config_again,
    guest_name,
    guests_of,
    opened_again,
)
from moorline.node.moving import mover
from moorline.node.node import Node

log = logging.getLogger("moorline.node")

Make = Callable[[Config], Node]


class HostedNode:
    """One node of this process, opened, closed and opened again."""

    def __init__(
        self, config: Config, make: Make, failed: Callable[[MoorlineError], None], data: Path
    ) -> None:
        self.config = config
        self.node: Node | None = None
        self.catalog_dsn = ""
        self.node_id = self.incarnation = b""
        self.is_gone = False
        """Its home moved away, and there is nothing left to serve: of a guest only."""
        self._make = make
        self._failed = failed
        self._data = data
        self._stack = contextlib.AsyncExitStack()
        self._watching: asyncio.Task[None] | None = None

    @property
    def folder(self) -> Path:
        return Path(os.path.abspath(self.config.data))

    @property
    def settings(self) -> Config:
        """Those in force."""
        return self.config if self.node is None else self.node.settings

    @property
    def is_own(self) -> bool:
        return self.folder == self._data

    async def open(self) -> None:
        """`HomeMoved` if its home is at another node."""
        node, stack = self._make(self.config), contextlib.AsyncExitStack()
        try:
            await node.start(stack)
        except BaseException:
            await _closed_in_time(stack)
            raise
        self.node, self._stack = node, stack
        self.catalog_dsn = node.catalog_dsn
        self.node_id, self.incarnation = node.identity.id, node.identity.incarnation
        self.config = opened_again(self.config, node.ports)
        self._watching = asyncio.create_task(self._watch(node))
        set_aside.forget_leaving(self.folder)

    async def open_first(self) -> None:
        """At the start of the process: a home that went while it was killed is let go of now."""
        set_aside.settle(self.folder, self._data)
        try:
            await self.open()
        except HomeMoved:
            if not set_aside.is_leaving(self.folder):
                raise
            await self.let_go()

    async def close(self) -> None:
        node, self.node = self.node, None
        if node is not None:
            # What SIGHUP has changed since counts for the next one too.
            self.config = opened_again(node.settings, node.ports)
        if self._watching is not None:
            self._watching.cancel()
        if node is not None:
            await _closed_in_time(self._stack)

    async def let_go(self) -> None:
        await asyncio.to_thread(set_aside.set_aside, self.folder, self._data)
        if self.is_own:
            await self.open()
        else:
            self.is_gone = True

    def reload(self) -> None:
        if self.node is not None:
            self.node.reload()

    async def _watch(self, node: Node) -> None:
        self._failed(await node.failed())


class Hosting:
    """All of them."""

    def __init__(
        self,
        config: Config,
        *,
        recompute_digests: bool = False,
        read_again: Callable[[], Config] | None = None,
    ) -> None:
        self._data = Path(os.path.abspath(config.data))
        self._recompute_digests = recompute_digests
        self._read_again = read_again
        self._guests: dict[str, HostedNode] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.failed: asyncio.Future[MoorlineError] = asyncio.get_running_loop().create_future()
        self.own = HostedNode(config, self._own, self._fail, self._data)

    @property
    def guests(self) -> list[HostedNode]:
        return list(self._guests.values())

    def ready_line(self) -> str:
        assert self.own.node is not None
        return self.own.node.ready_line()

    async def start(self) -> None:
        await self.own.open_first()
        node = self.own.node
        assert node is not None
        await node.settle_homes()
        for folder in guests_of(self._data):
            if folder.name not in self._guests:
                await self._serve_guest(folder.name)
        self._spawn(self._look_forever(self.own))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        # Side by side: a supervisor waits as long for all of them as for one.
        await asyncio.gather(*(one.close() for one in (*self._guests.values(), self.own)))

    def reload(self) -> None:
        for hosted in (self.own, *self._guests.values()):
            hosted.reload()

    # --- nodes ------------------------------------------------------------------------------------

    def _own(self, config: Config) -> Node:
        recompute, self._recompute_digests = self._recompute_digests, False
        return Node(
            config,
            recompute_digests=recompute,
            read_again=self._read_again,
            arrived=self._arrived,
        )

    def _arrived(self, home: str) -> None:
        self._spawn(self._serve_guest(home))

    async def _serve_guest(self, home: str) -> None:
        folder = self._folder_of(home)
        ours = self.own.settings
        name = guest_name(home, ours.node, home_number(folder))

        def make(given: Config) -> Node:
            return Node(given, is_guest=True, read_again=self._guest_again(folder, name))

        config = guest_config(ours, folder, name)
        guest = HostedNode(config, make, self._fail, self._data)
        await guest.open_first()
        if guest.is_gone or guest.node is None:
            return
        self._guests[home] = guest
        addresses = " ".join(map(str, guest.node.addresses))
        log.warning("a home that moved here is served", extra={"home": home, "at": addresses})
        with contextlib.suppress(MoorlineError, OSError, TimeoutError):
            await HomeMoves(guest.node.catalog).arrived(guest.node.identity.home_number)
        self._spawn(self._look_forever(guest))

    def _guest_again(self, folder: Path, name: str) -> Callable[[], Config] | None:
        read_again = self._read_again
        if read_again is None:
            return None
        return lambda: guest_config_again(read_again(), folder, name)

    def _folder_of(self, home: str) -> Path:
        found = {folder.name: folder for folder in guests_of(self._data)}
        return found[home]

    # --- moves ------------------------------------------------------------------------------------

    async def _look_forever(self, hosted: HostedNode) -> None:
        """Makes the moves of one home that operators want, one after the other."""
        while not hosted.is_gone:
            if hosted.node is not None:
                try:
                    wanted = await HomeMoves(hosted.node.catalog).of_node(hosted.node_id)
                    if wanted:
                        async with mover(hosted, wanted[0]) as moving:
                            await moving.run()
                except (MoorlineError, OSError, TimeoutError) as error:
                    log.info("moves of homes are not known", extra={"error": str(error)})
            if hosted.node is None and not hosted.is_gone:
                raise RuntimeError("a home that nobody serves")
            await asyncio.sleep(HOME_MOVE_LOOK_MS / 1_000)
        self._guests.pop(hosted.folder.name, None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("a home cannot be served", exc_info=error)
        known = error if isinstance(error, MoorlineError) else MoorlineError(str(error))
        self._fail(known)

    def _fail(self, error: MoorlineError) -> None:
        if not self.failed.done():
            self.failed.set_result(error)


async def _closed_in_time(stack: contextlib.AsyncExitStack) -> None:
    try:
        async with asyncio.timeout(STOP_MS_MAX / 1_000):
            await stack.aclose()
    except TimeoutError:
        # The embedded Postgres goes with us: it is told by the kernel when its parent ends. Nothing may
        # follow in this process: what is left of the node may hold files, or write to them.
        log.error("not stopped in time, leaving", extra={"after_ms": STOP_MS_MAX})
        os._exit(1)
