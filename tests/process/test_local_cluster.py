"""`moor cluster up`: nodes of one machine that are killed, paused and healed by commands."""

import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.process.nodes import MOOR, NodeProcess, clean_environment, run_moor
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]


def free_ports() -> int:
    """A port P such that those of three nodes are free now."""
    for base in range(21_000 + os.getpid() % 5_000, 60_000, 40):
        try:
            for one in (10, 11, 12, 20, 21, 22, 30, 31, 32):
                with socket.socket() as tried:
                    tried.bind(("127.0.0.1", base + one))
        except OSError:
            continue
        return base
    raise AssertionError("no free ports")


class Up:
    def __init__(self, folder: Path, *flags: str, count: int = 2) -> None:
        self.folder = folder
        self.port = free_ports()
        self.process = subprocess.Popen(
            [
                *MOOR,
                "cluster",
                "up",
                *flags,
                f"--port={self.port}",
                f"--data={folder}",
                "--json",
            ],
            stdout=subprocess.PIPE,
            stderr=(folder.parent / "up.stderr").open("ab"),
            env=clean_environment(),
            text=True,
        )
        assert self.process.stdout is not None
        self.nodes: list[dict[str, Any]] = []
        while len(self.nodes) < count:
            line = self.process.stdout.readline()
            assert line, (folder.parent / "up.stderr").read_text()
            self.nodes.append(json.loads(line))

    def run(self, *arguments: str) -> list[dict[str, Any]]:
        done = run_moor("cluster", *arguments, f"--data={self.folder}", "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def states(self) -> list[str]:
        return [str(node["state"]) for node in self.run("ps")]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path / "cluster", "--nodes=2")
    try:
        yield running
    finally:
        running.end()


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_nodes_are_killed_paused_and_healed(up: Up) -> None:
    address = up.nodes[0]["address"]
    found = run_moor("node", "list", f"--address={address}", "--json")
    assert {json.loads(line)["name"] for line in found.stdout.splitlines()} == {"node-1", "node-2"}

    assert up.run("kill", "2")[0]["state"] == "dead"
    assert up.states() == ["up", "dead"]
    again = run_moor("cluster", "kill", "2", f"--data={up.folder}")
    assert again.returncode != 0
    assert "gone" in again.stderr

    assert up.run("pause", "1")[0]["state"] == "paused"
    assert up.states() == ["paused", "dead"]
    assert [node["state"] for node in up.run("heal")] == ["up", "up"]
    status = run_moor("status", f"--address={up.nodes[1]['address']}", "--json")
    assert json.loads(status.stdout)["node"] == "node-2"


def test_what_cannot_be_is_refused(up: Up, tmp_path: Path) -> None:
    nobody = run_moor("cluster", "kill", "3", f"--data={up.folder}")
    assert (nobody.returncode, "1 to 2" in nobody.stderr) == (12, True)
    second = run_moor("cluster", "up", f"--data={up.folder}")
    assert (second.returncode, "runs in" in second.stderr) == (4, True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    foreign = run_moor("cluster", "up", f"--data={tmp_path / 'mine'}")
    assert (foreign.returncode, "other things" in foreign.stderr) == (3, True)
    nowhere = run_moor("cluster", "heal", f"--data={tmp_path / 'none'}")
    assert "no cluster runs in" in nowhere.stderr


def test_the_data_folder_of_a_node_is_left_to_it(tmp_path: Path) -> None:
    """It has a `catalog` as a cluster's has, and its Postgres would be taken for a leftover, and ended."""
    data = tmp_path / "data"
    with NodeProcess(data) as node:
        wrong = run_moor("cluster", "up", f"--data={data}")
        assert (wrong.returncode, "other things" in wrong.stderr) == (3, True), wrong.stderr
        listed = run_moor("user", "list", f"--address={node.address}")
        assert listed.returncode == 0, listed.stderr
        assert node.stop() == 0
    wrong = run_moor("cluster", "up", f"--data={data}")
    assert wrong.returncode == 3
    assert not (data / "node-1").exists()


def test_two_who_start_one_cluster_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    flags = (f"--data={folder}", "--nodes=1", f"--port={free_ports()}", "--json")
    both = [
        subprocess.Popen(
            [*MOOR, "cluster", "up", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(),
            text=True,
        )
        for _ in range(2)
    ]
    try:
        eventually(lambda: any(one.poll() is not None for one in both), within_s=60)
        (second,) = [one for one in both if one.poll() is not None]
        (first,) = [one for one in both if one is not second]
        assert second.returncode == 4, second.communicate()
        assert first.stdout is not None
        assert json.loads(first.stdout.readline())["state"] == "up"
    finally:
        for one in both:
            if one.poll() is None:
                one.send_signal(signal.SIGTERM)
            one.communicate(timeout=60)


def test_down_leaves_no_process_and_keeps_the_folder(up: Up) -> None:
    pids = [int(node["pid"]) for node in up.nodes]
    up.run("pause", "2")
    done = run_moor("cluster", "down", f"--data={up.folder}")
    assert done.returncode == 0, done.stderr
    assert not any(map(is_there, pids))
    assert up.process.wait(30) == 0
    assert (up.folder / "node-1").is_dir()
    assert "no cluster runs in" in run_moor("cluster", "ps", f"--data={up.folder}").stderr


def test_nodes_end_with_whoever_keeps_them(up: Up) -> None:
    pids = [int(node["pid"]) for node in up.nodes]
    up.process.kill()
    up.process.wait(30)
    eventually(lambda: not any(map(is_there, pids)), within_s=60)
    assert "runs no more" in run_moor("cluster", "ps", f"--data={up.folder}").stderr


def test_three_nodes_say_where_their_pages_and_mqtt_are(tmp_path: Path) -> None:
    up = Up(tmp_path / "cluster", count=3)
    try:
        for node in up.nodes:
            first = up.port + 10 * int(node["number"])
            assert node["address"] == f"tcp://127.0.0.1:{first}"
            assert node["http"] == f"http://127.0.0.1:{first + 1}"
            assert node["mqtt"] == f"mqtt://127.0.0.1:{first + 2}"
            with urllib.request.urlopen(f"{node['http']}/readyz", timeout=20) as answer:
                assert answer.status == 200
        assert up.run("ps") == up.nodes
    finally:
        up.end()
