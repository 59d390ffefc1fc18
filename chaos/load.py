"""What all actors of the load share: when they flow, how often they give a call up, how they come back."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import moorline
from chaos.history import History, Outcome
from chaos.world import Node, World
from moorline.client.moor import Moor
from moorline.errors import CallFailed, MoorlineError, OutcomeUnknown

Result = TypeVar("Result")

CONNECT_MS_MAX = 5_000
AGAIN_S = 0.1
GIVE_UP_S_MAX = 0.004


class Load:
    """All actors of a campaign. Those that make messages stop while the load does not flow."""

    def __init__(self, world: World, history: History, seed: int) -> None:
        self.world = world
        self.history = history
        self.seed = seed
        self.flowing = asyncio.Event()
        self.reading = asyncio.Event()
        """While it is not set nobody takes messages, so that they pile up on disk."""
        self.reading.set()
        self.cancel_chance = 0.0
        """How often a call is given up after some milliseconds: a fault like others."""
        self.cancelled = 0
        self._at_work = 0
        self._calm = asyncio.Event()
        self._calm.set()
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, actor: "Actor") -> None:
        self._tasks.append(asyncio.create_task(actor.run(), name=actor.name))

    @contextlib.asynccontextmanager
    async def making(self) -> Any:
        """A maker is at work on one call: `pause` waits for it."""
        await self.flowing.wait()
        self._at_work += 1
        self._calm.clear()
        try:
            yield
        finally:
            self._at_work -= 1
            if not self._at_work:
                self._calm.set()

    def resume(self) -> None:
        self.flowing.set()

    async def pause(self) -> None:
        """No new messages; returns when the calls that were under way are over."""
        self.flowing.clear()
        await self._calm.wait()

    def failed(self) -> list[str]:
        """Actors that met what they should not have: a mistake of the client's, or of the campaign."""
        return [
            f"{task.get_name()}: {task.exception()!r}"
            for task in self._tasks
            if task.done() and not task.cancelled() and task.exception() is not None
        ]

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Actor:
    """A client that works, loses its connection, and comes back. Its chance is its own."""

    def __init__(self, load: Load, name: str) -> None:
        self.name = name
        self.load = load
        self.random = random.Random(f"{load.seed}/{name}")

    def node(self) -> Node | None:
        """Where to connect now; None if there is nowhere."""
        raise NotImplementedError

    async def work(self, moor: Moor) -> None:
        raise NotImplementedError

    async def run(self) -> None:
        while True:
            with contextlib.suppress(MoorlineError, OSError, TimeoutError):
                await self._once()
            await asyncio.sleep(AGAIN_S * (1 + self.random.random()))

    async def _once(self) -> None:
        node = self.node()
        if node is not None:
            async with moorline.connect(
                node.address, timeout_ms=CONNECT_MS_MAX, reconnect=False
            ) as moor:
                await self.work(moor)

    def note(self, event: Any) -> None:
        self.load.history.note(event)

    async def call(
        self,
        ask: Callable[[], Coroutine[Any, Any, Result] | Awaitable[Result]],
    ) -> Result:
        """One call, which may be given up in the middle: then TimeoutError is raised."""
        if self.random.random() >= self.load.cancel_chance:
            return await ask()
        self.load.cancelled += 1
        async with asyncio.timeout(self.random.random() * GIVE_UP_S_MAX):
            return await ask()

    async def settled(
        self, ask: Callable[[], Coroutine[Any, Any, Result]]
    ) -> tuple[Outcome, Result | None]:
        """One call and what is known of it at its end; a lost connection is raised behind `UNKNOWN`."""
        try:
            return Outcome.ANSWERED, await self.call(ask)
        except (OutcomeUnknown, TimeoutError):
            return Outcome.UNKNOWN, None
        except CallFailed:
            return Outcome.REFUSED, None


async def until(condition: Callable[[], Awaitable[bool] | bool], within_s: float) -> bool:
    """Looks often; whether it came true in time."""
    end = asyncio.get_running_loop().time() + within_s
    while True:
        found = condition()
        if found if isinstance(found, bool) else await found:
            return True
        if asyncio.get_running_loop().time() > end:
            return False
        await asyncio.sleep(0.05)
