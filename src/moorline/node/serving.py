"""Room: node. A node in this process: from its start to a signal, or to something it cannot survive."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable
from typing import Any

from moorline.config.settings import Config
from moorline.errors import MoorlineError
from moorline.limits import STOP_MS_MAX
from moorline.node import service_manager
from moorline.node.garbage import Garbage
from moorline.node.node import Node

log = logging.getLogger("moorline.node")


async def serve(
    config: Config,
    announce: Callable[[str], None],
    *,
    recompute_digests: bool = False,
    read_again: Callable[[], Config] | None = None,
) -> None:
    """Runs a node until SIGTERM, SIGINT, or something it cannot survive; then stops it in bounded time."""
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[str] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _ask, asked, number.name)
    stack = contextlib.AsyncExitStack()
    node = Node(config, recompute_digests=recompute_digests, read_again=read_again)
    loop.add_signal_handler(signal.SIGHUP, node.reload)
    error: MoorlineError | None = None
    try:
        starting = asyncio.create_task(node.start(stack))
        await _first(starting, asked)
        if starting.done():
            await starting
            error = await _until_asked(node, asked, announce)
        else:
            starting.cancel()
            await asyncio.wait([starting])
    finally:
        why = asked.result() if asked.done() else "an error"
        log.info("stopping", extra={"why": why})
        service_manager.tell_stopping(why)
        await _close(stack)
    if error is not None:
        raise error


async def _until_asked(
    node: Node, asked: asyncio.Future[str], announce: Callable[[str], None]
) -> MoorlineError | None:
    """A node that is ready, until it is asked to stop, or fails: then why."""
    with Garbage().kept_small() as garbage:
        announce(node.ready_line())
        service_manager.tell_ready(node.ready_line())
        failing = asyncio.create_task(node.failed())
        looking = asyncio.create_task(garbage.look_at_all_when_idle())
        await _first(asked, failing)
        looking.cancel()
        failing.cancel()
        return failing.result() if failing.done() else None


async def _first(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def _ask(asked: asyncio.Future[str], name: str) -> None:
    if not asked.done():
        asked.set_result(name)


async def _close(stack: contextlib.AsyncExitStack) -> None:
    try:
        async with asyncio.timeout(STOP_MS_MAX / 1_000):
            await stack.aclose()
    except TimeoutError:
        # The embedded Postgres goes with us: it is told by the kernel when its parent ends.
        log.error("not stopped in time, leaving", extra={"after_ms": STOP_MS_MAX})
        os._exit(1)
