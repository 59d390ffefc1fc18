"""`moor top` and `moor bench` against a real node; what completes a command line."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator

import pytest
from tests.process.nodes import NodeProcess, run_moor

from moorline.cli.top import _look, figures_in
from moorline.client.connecting import connect

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("top") / "data") as node:
        yield node


def test_figures_with_labels_are_added_up() -> None:
    text = '# HELP a x\na{node="1"} 2\na{node="2"} 3.5\nb 1e3\nb_bucket{le="+Inf"} 7\n'
    assert figures_in(text) == {"a": 5.5, "b": 1_000.0, "b_bucket": 7.0}


@pytest.mark.parametrize("said", [b"what?\r\n", b"HTTP/1.1 200 OK\r\n\r\nnode e\nx -\n", b""])
def test_a_port_where_something_else_answers_is_a_node_without_figures(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            taken, _ = listening.accept()
            with taken:
                taken.recv(4_096)
                taken.sendall(said)

        answering = threading.Thread(target=answer)
        answering.start()
        port = listening.getsockname()[1]
        look = _look(f"http://127.0.0.1:{port}/metrics", None)
        answering.join()
    assert look is None or not look.figures


async def test_a_trial_is_measured_seen_and_leaves_nothing(node: NodeProcess) -> None:
    at = f"--address={node.address}"
    seeing = asyncio.create_task(
        asyncio.to_thread(run_moor, "top", "--interval=0.5", "--count=4", "--json", at)
    )
    unasked = await asyncio.to_thread(run_moor, "bench", "--seconds=0.2", at)
    assert unasked.returncode == 2
    assert "--yes" in unasked.stderr
    tried = await asyncio.to_thread(
        run_moor, "bench", "--seconds=1", "--clients=2", "--json", "--yes", at
    )
    assert tried.returncode == 0, tried.stderr
    rows = [json.loads(line) for line in tried.stdout.splitlines()]
    assert [row["part"] for row in rows] == ["queues", "topics", "singles"]
    for row in rows:
        assert row["messages"] > 0
        assert 0 < row["p50_ms"] <= row["p99_ms"]
    seen = await seeing
    assert seen.returncode == 0, seen.stderr
    looks = [json.loads(line) for line in seen.stdout.splitlines()]
    assert len(looks) == 4
    assert all(look["clients"] >= 1 and look["memory_bytes"] > 0 for look in looks)
    table = await asyncio.to_thread(run_moor, "top", "--interval=0.2", "--count=1", at)
    assert table.stdout.splitlines()[0].startswith("node")
    async with connect(node.address) as moor:
        assert not (await moor.list_queues()).queues


def test_a_shell_is_told_how_to_complete() -> None:
    of_shell = {"bash": "complete -o", "zsh": "#compdef moor", "fish": "complete --command moor"}
    for shell, line in of_shell.items():
        shown = run_moor("--show-completion", shell)
        assert shown.returncode == 0, shown.stderr
        assert "_MOOR_COMPLETE" in shown.stdout
        assert line in shown.stdout, "also where another shell runs it, as make's"
    asked = {"_MOOR_COMPLETE": "complete_bash", "COMP_WORDS": "moor queue de", "COMP_CWORD": "2"}
    assert run_moor("", variables=asked).stdout.split() == ["delete"]
