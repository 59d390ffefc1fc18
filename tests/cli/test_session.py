"""`moor session` against a real node."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from tests.cli.commands import running
from tests.process.nodes import NodeProcess, run_moor

from moorline.client.connecting import connect

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    yield from running(tmp_path_factory, "session")


async def test_sessions_are_listed_by_name(node: NodeProcess) -> None:
    async with connect(node.address) as one, connect(node.address) as other:
        await one.session("till 7", expiry_s=3_600)
        await one.subscribe("prices/#")
        await one.subscribe("orders/#")
        await other.session("audit", expiry_s=60)
    listed = await asyncio.to_thread(
        run_moor, "session", "list", "--json", f"--address={node.address}"
    )
    assert listed.returncode == 0, listed.stderr
    found = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [(row["name"], row["filters"], row["expiry_s"]) for row in found] == [
        ("audit", 0, 60),
        ("till 7", 2, 3_600),
    ]
    table = await asyncio.to_thread(run_moor, "session", "list", f"--address={node.address}")
    assert table.stdout.splitlines()[0].split()[:2] == ["session", "owner"]
    assert "till 7" in table.stdout
