"""Room: node. A node in this process: from its start to a signal, or to something it cannot survive."""

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Any

from moorline.config.settings import Config
from moorline.errors import MoorlineError
from moorline.node import service_manager
from moorline.node.garbage import Garbage
from moorline.node.hosting import Hosting

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
    nodes = Hosting(config, recompute_digests=recompute_digests, read_again=read_again)
    loop.add_signal_handler(signal.SIGHUP, nodes.reload)
    error: MoorlineError | None = None
    try:
        starting = asyncio.create_task(nodes.start())
        await _first(starting, asked)
        if starting.done():
            await starting
            error = await _until_asked(nodes, asked, announce)
        else:
            starting.cancel()
            await asyncio.wait([starting])
    finally:
        why = asked.result() if asked.done() else "an error"
        log.info("stopping", extra={"why": why})
        service_manager.tell_stopping(why)
        await nodes.close()
    if error is not None:
        raise error


async def _until_asked(
    nodes: Hosting, asked: asyncio.Future[str], announce: Callable[[str], None]
) -> MoorlineError | None:
    """Nodes that are ready, until they are asked to stop, or one fails: then why."""
    with Garbage().kept_small() as garbage:
        announce(nodes.ready_line())
        service_manager.tell_ready(nodes.ready_line())
        looking = asyncio.create_task(garbage.look_at_all_when_idle())
        await _first(asked, nodes.failed)
        looking.cancel()
        return nodes.failed.result() if nodes.failed.done() else None


async def _first(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def _ask(asked: asyncio.Future[str], name: str) -> None:
    if not asked.done():
        asked.set_result(name)
