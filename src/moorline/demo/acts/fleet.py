"""Act: a group that loses a node. A second node joins the cluster, serves a member, and is killed.

Both members know two addresses, and nothing of faults: the one at the dead node goes on at the other. Nothing
is missing, and twice comes only what was in hand.
"""

import asyncio
import contextlib
import re
import sys
import time
from collections.abc import AsyncIterator

import moorline
from moorline.demo.acts.topics import (
    KILL_AFTER,
    MESSAGES,
    PATIENCE_S,
    PUBLISHERS,
    Log,
    both_are_there,
    started,
)
from moorline.demo.stage import READY_S_MAX, Stage

TITLE = "a group loses a node"

GROUP = "$shared/fleet/voyage/#"
SETTINGS = ("groups.lease_ms=2000", "groups.ping_ms=500", "groups.member_timeout_ms=2000")
"""How long a dead Leader or member is waited for: of a demo, not of a busy cluster."""


async def play(stage: Stage) -> None:
    async with contextlib.AsyncExitStack() as stack:
        moor = await stack.enter_async_context(moorline.connect(stage.address))
        second, address = await stack.enter_async_context(second_node(stage))
        await moor.group(GROUP).create()
        places = (f"{address},{stage.address}", f"{stage.address},{address}")
        members = [
            await stack.enter_async_context(started("member", place, GROUP)) for place in places
        ]
        async with asyncio.timeout(PATIENCE_S):
            await both_are_there(moor, GROUP)
        nodes = len(await moor.nodes())
        log = Log()
        reading = [
            asyncio.create_task(log.read(number, member)) for number, member in enumerate(members)
        ]
        publishers = [
            await stack.enter_async_context(started("publish", stage.address, name))
            for name in PUBLISHERS
        ]
        published = {f"{name}-{n}" for name in PUBLISHERS for n in range(MESSAGES)}
        async with asyncio.timeout(PATIENCE_S):
            await log.reaches(KILL_AFTER)
            second.kill()
            killed_s = time.perf_counter()
            await second.wait()
            back_s = await log.goes_on(0, killed_s)
            codes = [await publisher.wait() for publisher in publishers]
            assert codes == [0, 0], "a publisher failed; its reason is above"
            while not log.got.keys() >= published:
                await log.more()
        for one in reading:
            one.cancel()
        await asyncio.wait(reading)
        # It comes back, with what it had: whoever reads all streams reads those on its disk too.
        again, _ = await begun(stage)
        stage.others.append(again)
    first, other = log.counts
    twice = sum(count - 1 for count in log.got.values())
    stage.tell(TITLE, "nodes in the cluster", f"{nodes}")
    stage.tell(TITLE, "the member at the node that was killed got", f"{first:,}")
    stage.tell(TITLE, "the member at the other node got", f"{other:,}")
    stage.tell(TITLE, "came twice: they were in hand", f"{twice:,}")
    stage.tell(TITLE, "missing", f"{len(published - log.got.keys())}")
    stage.tell(
        TITLE, "from the kill until its member goes on at the other", f"{back_s * 1_000:,.0f} ms"
    )
    stage.claim(
        TITLE,
        "a node is killed, and its member goes on at another one",
        f"0 of {len(published):,} missing, on after {back_s * 1_000:,.0f} ms",
    )


@contextlib.asynccontextmanager
async def second_node(stage: Stage) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Another node of the same catalog; its process, and where it listens."""
    process, address = await begun(stage)
    try:
        yield process, address
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def begun(stage: Stage) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "moorline.cli.main", "serve", "--node=second"),
        f"--data={stage.folder / 'second'}",
        f"--catalog={stage.catalog}",
        *("--listen=tcp://127.0.0.1:0", "--http=off", "--log-level=error"),
        *(f"--set={setting}" for setting in SETTINGS),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), READY_S_MAX)
    found = re.search(r"(tcp://\S+)", line.decode())
    assert found is not None, "the second node did not get ready; its reason is above"
    return process, found[1]
