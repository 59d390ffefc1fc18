"""A process of the benchmark that does what it is told: a word with its arguments, and one answer.

    with Worker(PublisherRole) as publisher:
        await publisher.ask("open", address)

What it does is an object with a coroutine for each word. Errors there are errors here.
"""

import asyncio
import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import uvloop

HANG_S = 180


class Worker:
    """Started on entering, killed on leaving."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._here, there = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=_work, args=(make, there), daemon=True
        )

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    async def ask(self, word: str, *arguments: Any) -> Any:
        return await asyncio.to_thread(self._ask, word, arguments)

    def _ask(self, word: str, arguments: tuple[Any, ...]) -> Any:
        self._here.send((word, arguments))
        if not self._here.poll(HANG_S):
            raise TimeoutError(f"bench: {word} was not done within {HANG_S} s")
        answer, trouble = self._here.recv()
        if trouble:
            raise RuntimeError(f"bench: {word} failed in its process:\n{trouble}")
        return answer

    def __enter__(self) -> "Worker":
        self._process.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.join()


def _work(make: Callable[[], object], pipe: "Connection[Any, Any]") -> None:
    async def run() -> None:
        role = make()
        while True:
            word, arguments = await asyncio.to_thread(pipe.recv)
            try:
                answer, trouble = await getattr(role, word)(*arguments), ""
            except Exception:
                answer, trouble = None, traceback.format_exc()
            pipe.send((answer, trouble))

    uvloop.run(run())
