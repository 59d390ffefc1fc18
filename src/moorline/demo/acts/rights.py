"""Act: a right ends. Two users read a topic; one loses the right in mid-flow, and the other goes on."""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import moorline
from moorline.demo.stage import Stage

TITLE = "a right ends"

TOPIC = "harbour/berths"
PATH = "/topics/harbour"
USERS = ("anna", "bert")
MIDST = 200
"""Messages that each of them has got when one loses the right, and that the other gets after it."""
PAUSE_S = 0.002
BOUND_S = 2.0
"""What `access.revocation_ms` says without a word of ours."""
PATIENCE_S = 30


class Reader:
    """What one user got, and how it ended."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.ended = ""
        self.ended_s = 0.0
        self.over = asyncio.Event()

    async def read(self, subscription: moorline.Subscription) -> None:
        try:
            async for message in subscription:
                self.got.append(int(message.body))
                await message.ack()
        except moorline.SubscriptionEnded as error:
            self.ended_s, self.ended = time.perf_counter(), error.reason
            self.over.set()


async def play(stage: Stage) -> None:
    async with contextlib.AsyncExitStack() as stack:
        operator = await stack.enter_async_context(moorline.connect(stage.address))
        trail = await operator.subscribe("$SYS/audit/grant")
        anna, bert = [
            await stack.enter_async_context(reading(stage, operator, name)) for name in USERS
        ]
        stage.tell(TITLE, "two users that may read", PATH)
        await stack.enter_async_context(flowing(operator))
        async with asyncio.timeout(PATIENCE_S):
            await reached(anna, MIDST)
            await reached(bert, MIDST)
            started_s = time.perf_counter()
            await operator.access.remove_grant(PATH, "anna", "s")
            await anna.over.wait()
            others = len(bert.got)
            await reached(bert, others + MIDST)
            line = await removal(trail)
        cut_s = anna.ended_s - started_s
        assert cut_s < BOUND_S, f"it took {cut_s:.1f} s"
        assert not bert.ended, bert.ended
        assert bert.got == list(range(bert.got[0], bert.got[0] + len(bert.got))), "some are missing"
        stage.tell(TITLE, "the right is taken from one: it is cut in", f"{cut_s * 1_000:,.0f} ms")
        stage.tell(TITLE, "and told why", anna.ended)
        stage.claim(
            TITLE,
            "a right that is taken away ends what runs by it, and is in the audit",
            f"cut after {cut_s * 1_000:,.0f} ms",
        )
        stage.tell(TITLE, "the other goes on, missing", "0")
        said = f"{line['act']} {line['path']} {line['detail']['subject']}"
        stage.tell(TITLE, "the audit says", said)


@contextlib.asynccontextmanager
async def reading(stage: Stage, operator: moorline.Moor, name: str) -> AsyncIterator[Reader]:
    """A user with a row of its own, who subscribes."""
    await operator.access.add_user(name)
    await operator.access.add_grant(PATH, name, "s")
    token = (await operator.access.add_token(name, "demo")).token
    credentials = moorline.TokenCredentials(token)
    async with moorline.connect(stage.address, credentials=credentials) as moor:
        reader = Reader()
        task = asyncio.create_task(reader.read(await moor.subscribe(TOPIC)))
        try:
            yield reader
        finally:
            task.cancel()
            await asyncio.wait([task])


@contextlib.asynccontextmanager
async def flowing(moor: moorline.Moor) -> AsyncIterator[None]:
    """A steady flow of numbers, until nobody needs it any more."""

    async def publish() -> None:
        for number in itertools.count():
            await moor.publish(TOPIC, str(number).encode())
            await asyncio.sleep(PAUSE_S)

    task = asyncio.create_task(publish())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def reached(reader: Reader, count: int) -> None:
    while len(reader.got) < count:
        assert not reader.ended, reader.ended
        await asyncio.sleep(0.001)


async def removal(trail: moorline.Subscription) -> dict[str, Any]:
    """The line that was written before the right was taken."""
    async for message in trail:
        line: dict[str, Any] = json.loads(message.body)
        if line["act"] == "RemoveGrant":
            return line
    raise AssertionError("the trail ended")
