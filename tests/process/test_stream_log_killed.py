"""A node that is killed while small commits are in its log: all that was answered is there, whatever becomes
of the segments."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess, run_moor

import moorline
from moorline.core.frames.block import Block
from moorline.core.frames.frame import all_stored
from moorline.errors import ConnectionLost
from moorline.journal.streams.folder import FolderStreams
from moorline.journal.streams.layout import folder_of, path_of
from moorline.journal.streams.log_recovery import read_log

pytestmark = pytest.mark.process

FLAG = "--set=streams.shards=4"
LOG_BYTES = 12_000
"""What must be in the log alone for a power cut to take something that matters."""


def killed_while_publishing(folder: Path) -> list[bytes]:
    """What was answered."""
    answered: list[bytes] = []
    with NodeProcess(folder, FLAG) as node:

        async def publish_until_killed() -> None:
            async with moorline.connect(node.address, reconnect=False) as moor:

                async def one(number: int) -> None:
                    body = b"%06d" % number
                    await moor.publish(f"t/{number % 16}", body)
                    answered.append(body)

                def has_log() -> bool:
                    # A log goes when its segments are synced: between two of them there is none. Its file
                    # is larger than what is in it.
                    with suppress(FileNotFoundError):
                        logs = (folder / "streams" / "log").glob("*.log")
                        return any(logged_bytes(log) > LOG_BYTES for log in logs)
                    return False

                for start in range(0, 60_000, 30):
                    await asyncio.gather(*(one(start + place) for place in range(30)))
                    if len(answered) >= 600 and has_log():
                        node.kill()
                pytest.fail("nobody killed it")

        with pytest.raises(ConnectionLost):
            asyncio.run(publish_until_killed())
    return answered


def logged_bytes(log: Path) -> int:
    return sum(len(part.data) for part in read_log(log.read_bytes()).parts)


def cut_as_a_power_cut(streams: Path) -> int:
    """Takes from each segment what only the log is known to have synced; how many bytes."""
    begins: dict[Path, int] = {}
    for log in (streams / "log").glob("*.log"):
        for part in read_log(log.read_bytes()).parts:
            path = streams / (path_of(folder_of(part.segment[0]), part.segment[1]) + ".seg")
            begins[path] = min(begins.get(path, part.position), part.position)
    taken = 0
    for path, position in begins.items():
        data = path.read_bytes()
        path.write_bytes(data[:position])
        taken += len(data) - position
    return taken


def in_folder(data: Path) -> list[bytes]:
    streams, found = FolderStreams(str(data)), list[bytes]()
    for extent in streams.extents():
        offset = extent.first
        while offset < extent.end:
            block = streams.read(extent.stream, offset, 1 << 20)
            assert isinstance(block, Block)
            found += [one.body for one in all_stored(block.data) if one.topic.startswith("t/")]
            offset = block.upto
    return found


async def at_node(address: str, count: int) -> list[bytes]:
    async with moorline.connect(address) as moor:
        subscription = await moor.subscribe("t/#", start="beginning")
        found: list[bytes] = []
        async for message in subscription:
            found.append(message.body)
            await message.ack()
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize("what", ["process", "power"])
def test_all_that_was_answered_is_there_after_a_kill(tmp_path: Path, what: str) -> None:
    data = tmp_path / "data"
    answered = killed_while_publishing(data)
    assert list((data / "streams" / "log").glob("*.log")), "nothing went to the log"
    if what == "power":
        assert cut_as_a_power_cut(data / "streams") > 10_000
    found = in_folder(data)
    assert set(answered) <= set(found)
    assert len(found) == len(set(found))
    done = run_moor("journal", "check", f"--data={data}", "--json")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert json.loads(done.stdout)["streams"]["problems"] == []
    with NodeProcess(data, FLAG) as node:
        served = asyncio.run(asyncio.wait_for(at_node(node.address, len(found)), 60))
    assert sorted(served) == sorted(found)
    assert not list((data / "streams" / "log").glob("*.log")), "an orderly stop leaves none"
