"""`moor resolve` and `moor ls`: for people and for programs, with errors that say their class."""

import asyncio
import json
import signal
import subprocess
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.process.nodes import MOOR, NodeProcess, clean_environment, run_moor
from tests.resolver.processes import resolver_node
from tests.waiting import eventually

from moorline.client.values.publisher import Publisher

pytestmark = pytest.mark.process

Made = TypeVar("Made")


class Publishing:
    """A publisher in a thread of its own, told what to do from the test."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._publisher = self._do(self._open(address))

    def publish(self, path: str) -> None:
        self._do(self._published(path))

    def close(self) -> None:
        self._do(self._publisher.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self, address: str) -> Publisher:
        publisher = Publisher(address)
        await publisher.__aenter__()
        return publisher

    async def _published(self, path: str) -> None:
        self._publisher.publish(path, 1)
        await self._publisher.commit()
        await self._publisher.replicated(20)

    def _do(self, work: Coroutine[Any, Any, Made]) -> Made:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with resolver_node(tmp_path_factory.mktemp("resolver")) as running:
        yield running


@pytest.fixture
def publishing(node: NodeProcess) -> Iterator[Publishing]:
    made = Publishing(node.address)
    made.publish("/oslo/fjord/temperature")
    made.publish("/oslo/wind")
    yield made
    made.close()


@pytest.mark.usefixtures("publishing")
def test_where_paths_are(node: NodeProcess) -> None:
    done = run_moor("resolve", "/oslo/wind", "/nodes/node-1", f"--address={node.address}", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    wind, itself = json.loads(done.stdout)
    assert (wind["path"], wind["rights"], wind["publisher"]) == (
        "/oslo/wind",
        "slwpdag",
        "anonymous",
    )
    assert wind["address"].startswith("tcp://127.0.0.1:")
    assert itself["address"] == node.address
    assert "token" not in done.stdout
    shown = run_moor("resolve", "/oslo/wind", f"--address={node.address}")
    assert "/oslo/wind" in shown.stdout


@pytest.mark.usefixtures("publishing")
def test_an_error_says_its_class_and_the_others_are_shown(node: NodeProcess) -> None:
    done = run_moor("resolve", "/oslo/wind", "/none", "bad", f"--address={node.address}", "--json")
    assert done.returncode == 12
    assert [(row["error"], row["code"]) for row in json.loads(done.stdout)] == [
        ("", ""), ("NotFound", "NOT_FOUND"), ("BadPath", "BAD_PATH"),
    ]  # fmt: skip
    got = run_moor("value", "get", "/oslo/wind", "/none", f"--address={node.address}", "--json")
    wind, none = map(json.loads, got.stdout.splitlines())
    assert wind == {"path": "/oslo/wind", "value": 1}
    assert (none["error"], none["code"]) == ("NotFound", "NOT_FOUND")
    assert done.stderr.startswith("moor: NotFound: /none: nobody publishes it")
    away = run_moor("resolve", "/a", "--address=tcp://127.0.0.1:1", timeout_s=60)
    assert away.returncode == 10
    assert away.stderr.startswith("moor: Unreachable: no resolver of tcp://127.0.0.1:1 answers")
    for command in ("get", "write", "watch"):
        given = ("5",) if command == "write" else ("--count=1",) if command == "watch" else ()
        none = run_moor("value", command, "bad", *given, f"--address={node.address}")
        assert none.stderr.startswith("moor: BadPath: "), (command, none.stderr)


def test_what_hangs_is_unreachable_by_its_address(node: NodeProcess) -> None:
    node.signal(signal.SIGSTOP)
    try:
        for command, *given in (("get",), ("write", "5")):
            words = ("value", command, "/oslo/wind", *given, "--timeout=1")
            done = run_moor(*words, f"--address={node.address}")
            assert done.returncode == 10
            assert done.stderr.startswith(
                f"moor: Unreachable: {node.address}: no answer within 1 s"
            )
    finally:
        node.signal(signal.SIGCONT)


@pytest.mark.usefixtures("publishing")
def test_lists_and_globs(node: NodeProcess) -> None:
    def ls(*arguments: str) -> str:
        done = run_moor("ls", *arguments, f"--address={node.address}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert ls("/oslo") == "/oslo/fjord/\n/oslo/wind\n"
    assert "/oslo/\n" in ls()
    assert ls("/oslo/**") == "/oslo/fjord/temperature\n/oslo/wind\n"
    assert json.loads(ls("/oslo/w*", "--json")) == ["/oslo/wind"]
    assert json.loads(ls("/oslo/", "--json"))[0] == {
        "path": "/oslo/fjord", "is_published": False, "has_below": True,
    }  # fmt: skip
    bad = run_moor("ls", "/[", f"--address={node.address}")
    assert (bad.returncode, "is no glob" in bad.stderr) == (12, True)


def test_watching_goes_on(node: NodeProcess, publishing: Publishing, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        watching = subprocess.Popen(
            [*MOOR, "ls", "/oslo/**", "--watch", f"--address={node.address}"],
            stdout=file,
            env=clean_environment(),
        )
    try:
        eventually(lambda: "+ /oslo/wind\n" in out.read_text())
        publishing.publish("/oslo/rain")
        eventually(lambda: "+ /oslo/rain\n" in out.read_text())
    finally:
        watching.terminate()
        watching.wait(20)


def test_any_command_takes_a_list_of_resolvers(node: NodeProcess) -> None:
    host = node.address.removeprefix("tcp://")
    done = run_moor("status", f"--address=moor://{host}", "--json")
    assert done.returncode == 0, done.stderr
    assert "resolver" in json.loads(done.stdout)["roles"]
