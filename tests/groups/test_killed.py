"""`kill -9` of the node under a publisher and a group: what was answered is there, once, and is read."""

import asyncio
import contextlib
from collections import Counter
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess
from tests.topics.scenes import SMALL, Reader, all_there, described, is_done
from tests.waiting import until

import moorline
from moorline.core.frames.frame import frames_in
from moorline.journal.streams.segment import SEGMENT_HEAD
from moorline.wire.topic import Record

pytestmark = pytest.mark.process

KILLS, BATCH = 2, 50


async def test_nothing_answered_is_lost_and_nothing_is_stored_twice(tmp_path: Path) -> None:
    flags = [*SMALL, "--node=n1"]
    group = "$shared/g/a/#"
    published: list[bytes] = []
    readers: list[Reader] = []
    pending: list[Record] = []
    with contextlib.ExitStack() as stack:
        for number in range(KILLS + 1):
            node = stack.enter_context(NodeProcess(tmp_path / "data", *flags))
            moor = await moorline.connect(node.address, reconnect=False)
            readers.append(Reader(await moor.subscribe(group)))
            rounds = 0
            sequence = len(published)
            killing: asyncio.Task[None] | None = None
            try:
                while rounds < 40:
                    if not pending:
                        pending = [
                            moorline.record(f"a/{one % 16}", b"%d" % one)
                            for one in range(sequence, sequence + BATCH)
                        ]
                    # After a kill the same again, under the same numbers: nobody knows what was stored.
                    await moor.publish_all(pending, producer="p", sequence=sequence)
                    published += [one.body for one in pending]
                    sequence, pending = sequence + BATCH, []
                    rounds += 1
                    if rounds == 20 and number < KILLS:
                        killing = asyncio.create_task(asyncio.to_thread(node.kill))
            except moorline.ConnectionLost:
                assert number < KILLS
            if killing is not None:
                await killing
        await until(lambda: all_there(readers, published))
        await described(moor, group, is_done)
        everything = Reader(await moor.subscribe("a/#", start="beginning"))
        await until(lambda: len(everything.got) >= len(published))
        assert Counter(everything.bodies) == Counter(published)
        await moor.close()


async def test_a_shard_that_lost_its_end_gives_no_offset_twice(tmp_path: Path) -> None:
    """As a power cut does with `process`, or a copy that was put back."""
    data = tmp_path / "data"
    flags = [one for one in SMALL if "shards" not in one]
    flags += ["--node=n1", "--set=streams.shards=1"]
    old, new = [b"old %d" % one for one in range(100)], [b"new %d" % one for one in range(30)]
    groups = ["$shared/g/t", "$queue/g/t"]
    with NodeProcess(data, *flags) as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            readers = [Reader(await moor.subscribe(group)) for group in groups]
            await moor.publish_all([moorline.record("t", body) for body in old])
            await until(lambda: all(len(reader.got) == len(old) for reader in readers))
            for group in groups:
                await described(moor, group, is_done)
    segment = data / "streams/000/00000001.seg"
    frames = list(frames_in(segment.read_bytes()[SEGMENT_HEAD.size :]))
    segment.write_bytes(segment.read_bytes()[: -sum(map(len, frames[50:]))])
    with NodeProcess(data, *flags) as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            readers = [Reader(await moor.subscribe(group)) for group in groups]
            await moor.publish_all([moorline.record("t", body) for body in new])
            await until(lambda: all(len(reader.got) >= len(new) for reader in readers))
            assert [reader.bodies for reader in readers] == [new, new]
