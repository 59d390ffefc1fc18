"""Something else stands in the place of a file that a start needs: it ends, and says which and what to do."""

import asyncio
import subprocess
from pathlib import Path

import pytest
from tests.process.nodes import MOOR, NodeProcess, clean_environment

import moorline

pytestmark = pytest.mark.process

FLAGS = ("--set=streams.shards=1", "--set=streams.generation_s=1", "--set=queues.sync=process")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sealed generation and one that grows; no node runs on it."""
    folder = tmp_path_factory.mktemp("misplaced") / "data"
    with NodeProcess(folder, *FLAGS) as node:
        asyncio.run(_fill(node.address))
        assert node.stop() == 0
    return folder


async def _fill(address: str) -> None:
    async with moorline.connect(address, reconnect=False) as moor:
        await moor.publish("t", b"retained", retain=True)
        async with asyncio.timeout(60):
            while not any(one.digest for one in (await moor.streams()).streams):
                await asyncio.sleep(0.01)
        await moor.publish("t", b"two")


@pytest.mark.parametrize(
    "place",
    [
        "streams/layout",
        "streams/retained.log",
        "streams/000/00000001.seg",
        "streams/000/00000001.seal",
        "streams/000/00000002.seg",
        "streams/000/00000002.snapshot",
    ],
)
def test_a_folder_in_the_place_of_a_stream_file_is_named(data: Path, place: str) -> None:
    path, aside = data / place, data.parent / "aside"
    if path.exists():
        path.rename(aside)
    path.mkdir()
    try:
        # It ends by itself: a start that cannot be is no start.
        ended = subprocess.run(
            [*MOOR, "serve", f"--data={data}", "--listen=tcp://127.0.0.1:0", "--http=off", *FLAGS],
            capture_output=True,
            text=True,
            timeout=60,
            env=clean_environment(),
            check=False,
        )
    finally:
        path.rmdir()
        if aside.exists():
            aside.rename(path)
    assert ended.returncode == 6
    assert str(path) in ended.stderr
    assert "Move what stands in its place" in ended.stderr
    assert "Traceback" not in ended.stderr
