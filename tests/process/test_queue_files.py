"""A real node whose queues' files are not what they were: DAMAGED for one, service for all others."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess, run_moor

import moorline
from moorline.ids import id_of

pytestmark = pytest.mark.process


async def filled(address: str) -> list[bytes]:
    async with moorline.connect(address, reconnect=False) as moor:
        queues = await moor.create_queues(3)
        for queue in queues:
            await moor.send(queue.id, b"ahoy")
        return [queue.id for queue in queues]


async def heads(address: str, queues: list[bytes]) -> list[str]:
    """Of each queue its first message, or the code of the refusal."""
    found = []
    async with moorline.connect(address, reconnect=False) as moor:
        for queue in queues:
            try:
                message = await moor.queue(queue).get()
                found.append("" if message is None else message.body.decode())
            except moorline.CallFailed as error:
                found.append(error.code)
    return found


def test_files_replaced_by_something_else_are_damage_and_no_mistake_of_ours(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodeProcess(data, "--roles=broker") as node:
        queues = asyncio.run(filled(node.address))
        assert node.stop() == 0
    with NodeProcess(data, "--roles=broker") as node:
        folders = {
            id_of("".join(path.parts[-5:])): path for path in data.glob("queues/messages/*/*/*/*/*")
        }
        (folders[queues[0]] / "queue.log").unlink()
        (folders[queues[0]] / "queue.log").mkdir()
        rescued = folders[queues[1]].rename(tmp_path / "rescued")
        folders[queues[1]].symlink_to(folders[queues[1]].name)
        assert asyncio.run(heads(node.address, queues)) == ["DAMAGED", "DAMAGED", "ahoy"]
        assert node.stop() == 0
        assert "Traceback" not in node.errors
    assert (rescued / "queue.log").exists()
    mended = run_moor("journal", "check", "--repair", f"--data={data}")
    assert mended.returncode == 0, mended.stderr
    with NodeProcess(data, "--roles=broker") as node:
        # Of the first all messages were there; those of the second are where they were moved to.
        assert asyncio.run(heads(node.address, queues)) == ["ahoy", "", "ahoy"]


async def five_more(address: str, queue: bytes | None, first: int) -> bytes:
    async with moorline.connect(address, reconnect=False) as moor:
        queue = queue or (await moor.create_queue()).id
        for number in range(first, first + 5):
            await moor.send(queue, b"%d" % number)
        return queue


async def all_of(address: str, queue: bytes) -> tuple[int, list[str]]:
    """How many wait as the node says, and what is read."""
    async with moorline.connect(address, reconnect=False) as moor:
        source = moor.queue(queue)
        waiting, found = (await source.info()).waiting, []
        while (message := await source.get()) is not None:
            found.append(message.body.decode())
            await message.ack()
        return waiting, found


@pytest.mark.parametrize("cut", [1, 9], ids=["newline", "check"])
def test_a_state_that_lost_its_last_bytes_costs_no_message(tmp_path: Path, cut: int) -> None:
    data, queue = tmp_path / "data", None
    for first in (0, 5):
        with NodeProcess(data, "--roles=broker") as node:
            queue = asyncio.run(five_more(node.address, queue, first))
            assert node.stop() == 0
    assert queue is not None
    (state,) = data.glob("queues/messages/*/*/*/*/*/queue.log")
    assert len(state.read_text().splitlines()) == 2
    os.truncate(state, state.stat().st_size - cut)
    checked = run_moor("journal", "check", "--json", f"--data={data}")
    assert json.loads(checked.stdout)["lost"] == 0
    with NodeProcess(data, "--roles=broker") as node:
        waiting, found = asyncio.run(all_of(node.address, queue))
        assert (waiting, found) == (10, [str(number) for number in range(10)])
