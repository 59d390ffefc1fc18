"""A real node whose queues' files are not what they were: DAMAGED for one, service for all others."""

import asyncio
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess, run_moor

import moorline
from moorline.ids import id_of

pytestmark = pytest.mark.process


async def filled(address: str) -> list[bytes]:
    async with moorline.connect(address) as moor:
        queues = await moor.create_queues(3)
        for queue in queues:
            await moor.send(queue.id, b"ahoy")
        return [queue.id for queue in queues]


async def heads(address: str, queues: list[bytes]) -> list[str]:
    """Of each queue its first message, or the code of the refusal."""
    found = []
    async with moorline.connect(address) as moor:
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
