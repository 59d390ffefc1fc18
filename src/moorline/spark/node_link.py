"""Room: spark. Links from Spark's processes to running nodes.

They live on an event loop of their own, which also answers the nodes' pings while a task is busy with
something else.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from moorline.client.credentials import prepared
from moorline.config.addresses import Address, listen_address
from moorline.errors import ConfigError, ConnectionLost, Untrusted
from moorline.limits import (
    HELLO_TIMEOUT_MS,
    KEEPALIVE_MS,
    SPARK_LINK_PAUSE_MS,
    SPARK_LINK_TRIES,
    STREAMS_PER_PAGE_MAX,
)
from moorline.net.caller import Caller, open_caller
from moorline.spark.loop_thread import LoopThread
from moorline.spark.options import Endpoint
from moorline.version import SOFTWARE
from moorline.wire.message import Answer, Failed, Message
from moorline.wire.topic import NO_STREAM, DescribeStreams, StreamFacts, StreamsDescribed

log = logging.getLogger("moorline.spark")

Result = TypeVar("Result")
Reply = TypeVar("Reply", bound=Answer)
Told: TypeAlias = Result | BaseException
"""What was asked for, or why it did not come."""


class Links(LoopThread):
    """Links to nodes, by their addresses, on a loop in a thread. Opened when they are needed."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__("moorline-links")
        self._endpoint = endpoint
        self._callers: dict[str, Caller] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    def call(
        self, addresses: tuple[str, ...], make: Callable[[int], Message], reply: type[Reply]
    ) -> Reply:
        return self.run(self.ask(addresses, make, reply))

    def together(self, works: Mapping[str, Coroutine[Any, Any, Result]]) -> dict[str, Told[Result]]:
        """Of each node what came of its work, or its error; all of them side by side."""
        return self.run(together(works))

    def streams(self, addresses: tuple[str, ...]) -> list[StreamFacts]:
        return self.run(self.all_streams(addresses))

    async def all_streams(self, addresses: tuple[str, ...]) -> list[StreamFacts]:
        """All streams of a node, page by page."""
        found: list[StreamFacts] = []
        after = NO_STREAM
        while True:
            asked = partial(DescribeStreams, after=after, count=STREAMS_PER_PAGE_MAX)
            page = (await self.ask(addresses, asked, StreamsDescribed)).streams
            found += page
            if len(page) < STREAMS_PER_PAGE_MAX:
                return found
            after = (page[-1].shard, page[-1].generation)

    async def ask(
        self,
        addresses: tuple[str, ...],
        make: Callable[[int], Message],
        reply: type[Reply],
        tries_max: int = SPARK_LINK_TRIES,
    ) -> Reply:
        (answer,) = await self.ask_all(addresses, [make], reply, tries_max)
        return answer

    async def ask_all(
        self,
        addresses: tuple[str, ...],
        makes: Sequence[Callable[[int], Message]],
        reply: type[Reply],
        tries_max: int = SPARK_LINK_TRIES,
    ) -> list[Reply]:
        """Calls that change nothing are made again: a node that restarts is waited for."""
        tries = 0
        while True:
            try:
                caller = await self._link(addresses)
                answers = await caller.call_all(makes)
                break
            except Untrusted:
                raise  # its certificate stays as it is, however long it is waited for
            except ConnectionLost:
                tries += 1
                if tries >= tries_max:
                    raise
                await asyncio.sleep(SPARK_LINK_PAUSE_MS / 1_000)
        found: list[Reply] = []
        for answer in answers:
            if isinstance(answer, Failed):
                raise answer.error()
            assert isinstance(answer, reply), f"{type(answer).__name__} for {reply.__name__}"
            found.append(answer)
        return found

    async def _link(self, addresses: tuple[str, ...]) -> Caller:
        for address in addresses:
            caller = self._callers.get(address)
            if caller is not None and not caller.lost.done():
                return caller
        lost: ConnectionLost | None = None
        for address in addresses:
            try:
                return await self._opened(address)
            except ConnectionLost as error:
                # One that is merely away may be back, by an address that is trusted.
                if lost is None or not isinstance(error, Untrusted):
                    lost = error
        assert lost is not None, "a node has an address"
        raise lost

    async def _opened(self, address: str) -> Caller:
        # Several calls may find at once that there is no link: one of them opens it.
        async with self._opening.setdefault(address, asyncio.Lock()):
            caller = self._callers.get(address)
            if caller is None or caller.lost.done():
                caller = self._callers[address] = await self._open(address)
            return caller

    async def _open(self, address: str) -> Caller:
        endpoint = self._endpoint
        parsed = address_of(address)
        credentials = await prepared(endpoint.proof(), parsed)
        return await open_caller(
            parsed,
            lambda: Caller(
                f"{SOFTWARE} spark",
                hello_timeout_ms=HELLO_TIMEOUT_MS,
                keepalive_ms=KEEPALIVE_MS,
                credentials=credentials,
            ),
            timeout_ms=HELLO_TIMEOUT_MS,
            **endpoint.files(),
        )

    async def _say_goodbye(self) -> None:
        for caller in self._callers.values():
            caller.close("DONE", "the read is over")
        open_ones = [caller.lost for caller in self._callers.values() if not caller.lost.done()]
        if open_ones:
            await asyncio.wait(open_ones, timeout=1)


def address_of(text: str) -> Address:
    try:
        return listen_address(text)
    except ValueError as error:
        hint = ""
        if text.startswith(("moor://", "moors://")):
            hint = "; resolvers stand for a node in reads and writes of Spark, and not here"
        raise ConfigError(f"address: {text!r}: {error}{hint}") from None


async def together(works: Mapping[str, Awaitable[Result]]) -> dict[str, Told[Result]]:
    found = await asyncio.gather(*works.values(), return_exceptions=True)
    return dict(zip(works, found, strict=True))
