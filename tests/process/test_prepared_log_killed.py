"""A node that is killed while its log goes on in prepared segments: all that was answered is there."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess, run_moor

import moorline
from moorline.errors import ConnectionLost

pytestmark = pytest.mark.process

QUEUES, PER_CALL, BODY = 40, 100, bytes(1_000)
# With a segment of 1 MiB; so large that no checkpoint is in the way.
FLAGS = ("--set=queues.log_bytes_max=16_777_216", "--set=queues.max_file_messages=2000")
MANY = "--set=queues.max_queue_messages=1999"


def begun(data: Path) -> int:
    """Prepared segments that the log has gone on in."""
    found = 0
    for path in (data / "queues" / "wal").glob("prepared-*.wal"):
        with path.open("rb") as file:
            found += file.read(8) == b"MOORWAL3"
    return found


def test_all_that_was_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    sent = answered = 0
    with NodeProcess(tmp_path / "data", *FLAGS, MANY) as node:

        async def send_until_killed() -> None:
            nonlocal sent, answered
            async with moorline.connect(node.address, reconnect=False) as moor:
                queues = [await moor.create_queue() for _ in range(QUEUES)]
                place = 0
                while True:
                    place += 1
                    calls = [(queues[(place + n) % QUEUES].id, BODY) for n in range(PER_CALL)]
                    sent += PER_CALL
                    answers = await moor.send_all(calls)
                    answered += sum(isinstance(answer, int) for answer in answers)
                    assert sent < 60_000, "the log never went on in a prepared segment"
                    if begun(node.data) and killing is None:
                        kill_soon()

        killing: asyncio.Future[None] | None = None

        def kill_soon() -> None:
            """In mid-flight: sends go on until it is gone."""
            nonlocal killing
            killing = asyncio.get_running_loop().run_in_executor(None, node.kill)

        with pytest.raises(ConnectionLost):
            asyncio.run(send_until_killed())
    assert begun(node.data)
    done = run_moor("journal", "check", f"--data={node.data}", "--json")
    assert done.returncode == 0, (done.stdout, done.stderr)
    messages = json.loads(done.stdout)["messages"]
    assert answered <= messages <= sent
    with NodeProcess(tmp_path / "data", *FLAGS, MANY) as node:

        async def checkpointed() -> None:
            async with moorline.connect(node.address, reconnect=False) as moor:
                await moor.checkpoint()

        asyncio.run(checkpointed())
    assert node.process.returncode == 0
    assert begun(node.data) == 0, "what is in the queues' files is no longer in the log"
    done = run_moor("journal", "check", f"--data={node.data}", "--json")
    found = json.loads(done.stdout)
    assert (found["messages"], found["problems"]) == (messages, [])
