"""Room: client. Publishing: in batches, and at one home.

Order, and what is remembered of producers, are a home's. So the home of the first publish is that of all
later ones: while the client is elsewhere they go over a second link to that home, or wait for it. Design:
docs/design/client.md.
"""

import asyncio
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Sequence,
)
from functools import partial

from moorline.client.queue_homes import home_of
from moorline.client.record import record_bytes
from moorline.client.role_dial import Dial
from moorline.client.staying import StayingLink
from moorline.config.addresses import Address
from moorline.errors import Elsewhere, Unreachable
from moorline.limits import (
    PUBLISH_BATCH_BYTES,
    PUBLISH_BATCH_MAX,
    PUBLISH_BATCHES_AT_ONCE,
)
from moorline.net.caller import Caller, Calls
from moorline.wire.cluster import FindHome, HomeFound
from moorline.wire.topic import Record

DialHome = Callable[[Elsewhere], Awaitable[tuple[Caller, Address]]]
"""Connects to the home of a redirect, if that leads to somebody who is known."""

NumberedBatch = tuple[int, Sequence[Record]]
"""Records that fit a frame, and the number of the first of them."""


class Publishing:
    """The link to the home at which a client publishes."""

    def __init__(
        self,
        first: StayingLink,
        dials: Sequence[Dial],
        open_home: DialHome,
        deadline_s: float | None,
    ) -> None:
        """`dials` lead to the addresses that the program named, `open_home` to where another node says that
        the home is now."""
        self._first = first
        self._dials = dials
        self._open_home = open_home
        self._deadline_s = deadline_s
        self._link: StayingLink | None = None

    @property
    def calls(self) -> Calls:
        if self._link is None:
            self._first.check_loop()
            home = home_of(self._first)
            self._link = StayingLink(
                [
                    *(self._dialling(home, dial) for dial in self._dials),
                    partial(self._led, home),
                ],
                deadline_s=self._deadline_s,
                name="the link for publishing",
            )
            self._link.home_wanted = home
            self._link.borrowed = lambda caller: caller is self._first.current
            self._link.start()
        return self._link

    def _dialling(self, home: str, dial: Dial) -> Dial:
        async def dialled() -> tuple[Caller, Address]:
            # While the client looks for a node itself, what it finds is worth waiting for.
            await self._first.settled()
            here, address = self._first.current, self._first.address
            is_there = here is not None and here.is_open and home_of(here) == home
            if here is not None and address is not None and is_there:
                return here, address
            return await dial()

        return dialled

    async def _led(self, home: str) -> tuple[Caller, Address]:
        """The home is at none of the addresses that the program named: it was moved, or has another port."""
        here = self._first.current
        if here is None or not here.is_open:
            raise Unreachable(f"nobody is there who knows where the home {home!r} is")
        found = await here.call(partial(FindHome, home=home), HomeFound)
        return await self._open_home(Elsewhere("", home, found.addresses))

    def close(self) -> None:
        if self._link is not None:
            self._link.close("DONE", "the client is done")


class _Packer:
    """Cuts records into batches that fit a frame, and groups those that may be on their way at once."""

    def __init__(self) -> None:
        self._group: list[NumberedBatch] = []
        self._batch: list[Record] = []
        self._start = self._bytes = 0

    def add(self, one: Record) -> list[NumberedBatch] | None:
        """A group, when one is full."""
        one_bytes = record_bytes(one)
        batch, full = self._batch, None
        if batch and (
            self._bytes + one_bytes > PUBLISH_BATCH_BYTES or len(batch) >= PUBLISH_BATCH_MAX
        ):
            self._end_batch()
            if len(self._group) >= PUBLISH_BATCHES_AT_ONCE:
                full, self._group = self._group, []
        self._batch.append(one)
        self._bytes += one_bytes
        return full

    def rest(self) -> list[NumberedBatch]:
        if self._batch:
            self._end_batch()
        return self._group

    def _end_batch(self) -> None:
        self._group.append((self._start, self._batch))
        self._start += len(self._batch)
        self._batch, self._bytes = [], 0


async def groups_of_batches(
    records: Iterable[Record] | AsyncIterable[Record],
) -> AsyncIterator[list[NumberedBatch]]:
    """Batches that fit a frame each, as many together as may be on their way at once."""
    packer = _Packer()
    if isinstance(records, AsyncIterable):
        async for one in records:
            if (group := packer.add(one)) is not None:
                yield group
    else:
        is_lazy = not isinstance(records, Sequence)
        for number, one in enumerate(records):
            if (group := packer.add(one)) is not None:
                yield group
            elif is_lazy and number % PUBLISH_BATCH_MAX == 0:
                # A generator that reads a file, or computes, must not keep the loop to itself.
                await asyncio.sleep(0)
    if group := packer.rest():
        yield group
