"""Act: live values. A publisher is killed and its subscriber follows to the next one; and a resolver that
restarted empty is whole again."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator

import moorline
from moorline.demo.stage import Stage

TITLE = "live values"

TIDE = "/harbour/tide"
PATHS = 10_000
UPDATES = 1_000
PATIENCE_S = 60


async def play(stage: Stage) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await failover(stage)
        await flow(stage)
        await restart(stage)


async def failover(stage: Stage) -> None:
    """Two commands publish the same path; the one that the subscriber has is killed."""
    async with contextlib.AsyncExitStack() as stack:
        subscriber = await stack.enter_async_context(moorline.Subscriber(stage.address))
        first = await stack.enter_async_context(publishing(stage, "flood"))
        tide = subscriber.durable_subscribe(TIDE)
        stage.tell(TITLE, f"a durable subscription to {TIDE} says", await tide.wait())
        await stack.enter_async_context(publishing(stage, "ebb"))
        killed_s = time.perf_counter()
        first.kill()
        async for event in tide:
            if event.value == "ebb":
                break
        found_ms = (time.perf_counter() - killed_s) * 1_000
        stage.tell(
            TITLE, "its publisher is killed; the next one is found in", f"{found_ms:,.0f} ms"
        )
        stage.tell(TITLE, "and says", tide.value)
        stage.claim(
            TITLE,
            "a publisher dies, and a durable subscriber follows to the next",
            f"within {found_ms:,.0f} ms",
        )


@contextlib.asynccontextmanager
async def publishing(stage: Stage, value: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`moor value publish`, as a user calls it, in a process that can be killed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "moorline.cli.main", "value", "publish", TIDE, value),
        *("--address", stage.address),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        assert b"is published" in line, line
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def flow(stage: Stage) -> None:
    """Updates in batches, straight from the publisher to the subscriber."""
    async with (
        moorline.Publisher(stage.address) as publisher,
        moorline.Subscriber(stage.address) as subscriber,
    ):
        values = publisher.publish_all((f"/harbour/buoys/{number}", 0) for number in range(1_000))
        await publisher.replicated()
        found = await subscriber.subscribe_all([value.path for value in values])
        last = found[-1]
        assert isinstance(last, moorline.ValueSubscription), last
        ids = [value.id for value in values]
        arrived = asyncio.create_task(until_last(last))
        started_s = time.perf_counter()
        for number in range(1, UPDATES + 1):
            publisher.update_all(ids, [number] * len(ids))
            await publisher.commit(10)
            await asyncio.sleep(0)
        await arrived
        rate = UPDATES * len(ids) / (time.perf_counter() - started_s)
        stage.tell(TITLE, f"{UPDATES * len(ids):,} updates, 1,000 a batch", f"{rate:,.0f} a second")


async def until_last(subscription: moorline.ValueSubscription) -> None:
    async for event in subscription:
        if event.value == UPDATES:
            return


async def restart(stage: Stage) -> None:
    """A second resolver is killed and comes back with nothing: the publisher brings it all there again."""
    folder = stage.folder / "second-resolver"
    folder.mkdir()
    other = Stage(folder)
    await other.start()
    try:
        async with moorline.Publisher([stage.address, other.address]) as publisher:
            publisher.publish_all((f"/harbour/lamps/{number}", True) for number in range(PATHS))
            assert all(member.is_current for member in await publisher.replicated())
            stage.tell(TITLE, "paths at two resolvers", f"{PATHS:,}")
            port = int(other.address.rpartition(":")[2])
            await other.kill()
            await other.start(port=port)
            started_s = time.perf_counter()
            await publisher.current()
            whole_s = time.perf_counter() - started_s
        stage.tell(TITLE, "one is killed and starts empty; whole again in", f"{whole_s:.1f} s")
    finally:
        await other.stop()
