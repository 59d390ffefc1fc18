"""`moor client`: who is connected, what one does, and to end one."""

import json
from pathlib import Path

import pytest
from tests.mqtt.conftest import Join
from tests.mqtt.wire_client import WireClient
from tests.process.nodes import NodeProcess, run_moor

from moorline.core.mqtt.packets import Disconnect
from moorline.core.mqtt.reason import ReasonCode


def moor(node: NodeProcess, *words: str) -> str:
    done = run_moor("client", *words, "--address", node.address)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_clients_are_listed_shown_and_ended(node: NodeProcess, join: Join, name: str) -> None:
    client = join(name, clean=False, expiry_s=600)
    client.subscribe(f"{name}/+", qos=2)
    client.publish(f"{name}/a", b"x", 1)
    listed = [json.loads(line) for line in moor(node, "list", "--json").splitlines()]
    (mine,) = [one for one in listed if one["client_id"] == name]
    assert mine["is_connected"]
    assert (mine["version"], mine["filters"], mine["received"]) == ("5", 1, 1)
    shown = json.loads(moor(node, "show", name, "--json"))
    assert shown["subscriptions"] == [{"filter": f"{name}/+", "qos": 2}]
    assert f"{name}/+" in moor(node, "show", name)
    moor(node, "kick", name)
    assert client.hear(Disconnect).reason is ReasonCode.ADMINISTRATIVE_ACTION
    assert client.is_closed()
    shown = json.loads(moor(node, "show", name, "--json"))
    assert not shown["is_connected"]
    assert shown["subscriptions"] == [{"filter": f"{name}/+", "qos": 2}]
    moor(node, "kick", name, "--session", "--yes")
    done = run_moor("client", "show", name, "--address", node.address)
    assert done.returncode != 0
    assert "no client" in done.stderr


def test_figures_are_on_metrics(node: NodeProcess, join: Join, name: str) -> None:
    import urllib.request

    client = join(name)
    client.publish("t/" * 40 + "t", b"x", 1)
    with urllib.request.urlopen(f"{node.http}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    for figure in ("mqtt_clients", "mqtt_connects_total", "mqtt_refused_total"):
        assert figure in text


@pytest.mark.parametrize("version", [5, 4])
def test_whoever_finds_no_room_is_told_so_in_its_version(tmp_path: Path, version: int) -> None:
    with NodeProcess(tmp_path / "data", "--set=connections_max=4") as node:
        clients, said = [], []
        for number in range(8):
            clients.append(WireClient(node.mqtt, version, f"c{number}"))
            said.append(clients[-1].connect().reason)
        assert said[0] is ReasonCode.SUCCESS
        busy = ReasonCode.SERVER_BUSY if version == 5 else ReasonCode.SERVER_UNAVAILABLE
        assert said[-1] is busy
        assert clients[-1].is_closed()
        for client in clients:
            client.socket.close()
