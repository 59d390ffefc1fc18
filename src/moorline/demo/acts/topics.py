"""Act: a group that loses a member. Two members share the messages; one is killed, and none is missing.

Publishers and members are processes of their own:

    python -m moorline.demo.acts.topics publish ADDRESS NAME
    python -m moorline.demo.acts.topics member ADDRESS[,ADDRESS] GROUP
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator

import moorline
from moorline.demo.stage import Stage

TITLE = "a group loses a member"

GROUP = "$shared/crew/voyage/#"
PUBLISHERS = ("port", "starboard")
MESSAGES = 12_000
"""Of each publisher."""
BATCH = 60
PAUSE_S = 0.01
WORK_S = 0.02
"""What a member has unfinished when it is killed is what came in that time."""
KILL_AFTER = 6_000
"""Messages that the members have got when one of them is killed."""
PATIENCE_S = 60
LINE_BYTES_MAX = 1 << 22


async def play(stage: Stage) -> None:
    async with contextlib.AsyncExitStack() as stack:
        moor = await stack.enter_async_context(moorline.connect(stage.address))
        # Declared first: whatever is published from now on is the group's.
        await moor.group(GROUP).create()
        members = [
            await stack.enter_async_context(started("member", stage.address, GROUP))
            for _ in range(2)
        ]
        async with asyncio.timeout(PATIENCE_S):
            await both_are_there(moor)
        log = Log()
        reading = [
            asyncio.create_task(log.read(number, member)) for number, member in enumerate(members)
        ]
        publishers = [
            await stack.enter_async_context(started("publish", stage.address, name))
            for name in PUBLISHERS
        ]
        async with asyncio.timeout(PATIENCE_S):
            await log.reaches(KILL_AFTER)
            members[0].kill()
            killed_s = time.perf_counter()
            await reading[0]
            flow_s = await log.flows(log.shards[0], killed_s, len(PUBLISHERS) * MESSAGES)
            codes = [await publisher.wait() for publisher in publishers]
        assert codes == [0, 0], "a publisher failed; its reason is above"
        published = {f"{name}-{n}" for name in PUBLISHERS for n in range(MESSAGES)}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while not log.got.keys() >= published:
                    await log.more()
        missing = published - log.got.keys()
        assert not missing, f"{len(missing)} messages are missing, one of them {min(missing)}"
        reading[1].cancel()
        await asyncio.wait(reading)
    first, second = log.counts
    twice = sum(count - 1 for count in log.got.values())
    stage.tell(TITLE, "published by two processes", f"{len(published):,}")
    stage.tell(TITLE, "one member, killed in mid-flow, got", f"{first:,}")
    stage.tell(TITLE, "the other got", f"{second:,}")
    stage.tell(TITLE, "came twice: the dead one had not finished them", f"{twice:,}")
    stage.tell(TITLE, "missing", f"{len(missing)}")
    stage.tell(TITLE, "from the kill to full flow", f"{flow_s * 1_000:,.0f} ms")
    stage.claim(
        TITLE,
        "a member of a group is killed in mid-flow, and the other takes over",
        f"{len(missing)} of {len(published):,} missing, full flow after {flow_s * 1_000:,.0f} ms",
    )


async def both_are_there(moor: moorline.Moor, group: str = GROUP) -> None:
    """Waits until both have come, and have shared the streams."""
    while True:
        members = (await moor.group(group).info()).members
        if len(members) == 2 and all(one.streams for one in members):
            return
        await asyncio.sleep(0.01)


class Log:
    """What the members said that they got, as it came in."""

    def __init__(self) -> None:
        self.got: dict[str, int] = {}
        """How often each message was delivered."""
        self.counts = [0, 0]
        self.shards: tuple[set[str], set[str]] = (set(), set())
        """Those that each member has got something of."""
        self._seen_s: dict[tuple[int, str], float] = {}
        self._news = asyncio.Event()

    async def read(self, number: int, member: asyncio.subprocess.Process) -> None:
        assert member.stdout is not None
        async for line in member.stdout:
            if not line.endswith(b"\n"):
                return  # torn by the kill: it was not acknowledged, and comes again
            shard, *names = line.decode().split()
            for name in names:
                self.got[name] = self.got.get(name, 0) + 1
            self.counts[number] += len(names)
            self.shards[number].add(shard)
            self._seen_s[number, shard] = time.perf_counter()
            self._news.set()

    async def reaches(self, count: int) -> None:
        while len(self.got) < count:
            await self.more()

    async def flows(self, shards: set[str], since_s: float, total: int) -> float:
        """Seconds until the second member has got something of all these shards, or there is no more."""
        while len(self.got) < total and any(
            self._seen_s.get((1, shard), 0) < since_s for shard in shards
        ):
            await self.more()
        return time.perf_counter() - since_s

    async def goes_on(self, member: int, since_s: float) -> float:
        """Seconds until a member has got something again."""
        while not any(
            number == member and seen_s > since_s for (number, _), seen_s in self._seen_s.items()
        ):
            await self.more()
        return time.perf_counter() - since_s

    async def more(self) -> None:
        self._news.clear()
        await self._news.wait()


@contextlib.asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "moorline.demo.acts.topics",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_BYTES_MAX,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def publish(address: str, name: str) -> None:
    """A steady flow over many topics, and so over all shards."""
    async with moorline.connect(address) as moor:
        for start in range(0, MESSAGES, BATCH):
            numbers = range(start, start + BATCH)
            await moor.publish_all(
                [moorline.record(f"voyage/{n % 50}", f"{name}-{n}".encode()) for n in numbers]
            )
            await asyncio.sleep(PAUSE_S)


async def member(addresses: list[str], group: str) -> None:
    """Says what it got, works on it, and acknowledges: whoever hears it knows all that is done with."""
    async with moorline.connect(addresses) as moor:
        working: set[asyncio.Task[None]] = set()
        subscription = await moor.subscribe(group)
        async for batch in subscription.batches():
            names = [message.body.decode() for message in batch.messages]
            os.write(1, f"{batch.stream.shard} {' '.join(names)}\n".encode())
            working.add(task := asyncio.create_task(work(batch)))
            task.add_done_callback(working.discard)


async def work(batch: moorline.Batch) -> None:
    await asyncio.sleep(WORK_S)
    # Of a connection that is gone: it comes again.
    with contextlib.suppress(moorline.ConnectionLost, moorline.Stale):
        await batch.ack()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["publish", address, name]:
            asyncio.run(publish(address, name))
        case ["member", addresses, group]:
            asyncio.run(member(addresses.split(","), group))
