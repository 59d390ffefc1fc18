"""The settings of a node that serves a home which moved here, and what a home leaves behind."""

import socket
from pathlib import Path

import msgspec

from moorline.config.settings import Config
from moorline.node import set_aside
from moorline.node.guests import guest_config, guest_name, guests_of

NUMBER = b"\1\2\3\4"


def config(data: Path) -> Config:
    access = {
        "mechanisms": ["anonymous", "password@tcp://127.0.0.1:7411"],
        "proxied": ["tcp://127.0.0.2:7411"],
        "quotas": ["tcp://127.0.0.2:7411 connections=7"],
    }
    given = {
        "data": str(data),
        "listen": ["tcp://127.0.0.1:7411", "tcp://127.0.0.2:7411"],
        "advertise": ["tcp://node-2.example:7411"],
        "http": "127.0.0.1:7412",
        "mqtt": ["mqtt://127.0.0.1:1883"],
        "mqtt_proxy": ["mqtt://127.0.0.1:1883"],
        "catalog": "postgresql://localhost/moorline",
        "access": access,
    }
    return msgspec.convert(given, Config)


def test_what_is_said_of_an_address_counts_for_the_one_that_stands_for_it(tmp_path: Path) -> None:
    own = config(tmp_path)
    guest = guest_config(own, tmp_path, "node-1-at-node-2")
    first, second = guest.listen
    assert first.startswith("tcp://127.0.0.1:")
    assert second.startswith("tcp://127.0.0.2:")
    assert not {first, second} & set(own.listen)
    assert guest.access.mechanisms_of(first) == own.access.mechanisms_of(own.listen[0])
    assert guest.access.mechanisms_of(second) == own.access.mechanisms_of(own.listen[1])
    assert guest.access.proxied == [second]
    assert guest.access.quotas == [f"{second} connections=7"]
    assert guest.mqtt_proxy == guest.mqtt != own.mqtt
    assert guest.http != own.http
    assert guest.advertise == [f"tcp://node-2.example:{first.rpartition(':')[2]}"]
    assert guest.roles == ["broker", "records"]


def test_a_guest_keeps_its_ports_but_for_one_that_another_program_took(tmp_path: Path) -> None:
    own = config(tmp_path)
    before = guest_config(own, tmp_path, "g")
    assert guest_config(own, tmp_path, "g") == before
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(before.listen[0].rpartition(":")[2])))
        taken.listen()
        again = guest_config(own, tmp_path, "g")
    assert again.listen[0] != before.listen[0]
    assert again.listen[1] == before.listen[1]


def test_the_name_of_a_guest_is_one_that_a_node_may_have() -> None:
    assert guest_name("node-1", "node-2", NUMBER) == "node-1-at-node-2"
    long = guest_name("h" * 63, "n" * 63, NUMBER)
    assert len(long) <= 63
    assert long.endswith("01020304")


def test_what_a_home_leaves_is_set_aside_also_if_that_is_cut_short(tmp_path: Path) -> None:
    for name in ("node.id", "node.home", "node.stores", "lock", "format"):
        (tmp_path / name).write_text(name)
    (tmp_path / "queues").mkdir()
    (tmp_path / "queues" / "index").write_text("index")
    set_aside.note_leaving(tmp_path, "node-1", 0)
    # As a crash leaves it that came in the middle of it.
    (tmp_path / "moved" / "node-1-1").mkdir(parents=True)
    (tmp_path / "queues").rename(tmp_path / "moved" / "node-1-1" / "queues")
    assert set_aside.is_leaving(tmp_path)
    aside = set_aside.set_aside(tmp_path, tmp_path)
    assert sorted(one.name for one in aside.iterdir()) == [
        *("node.home", "node.id", "node.stores", "queues"),
    ]
    assert (aside / "queues" / "index").read_text() == "index"
    assert not set_aside.is_leaving(tmp_path)
    assert (tmp_path / "format").exists(), "the folder is one of a node, without a home"
    assert guests_of(tmp_path) == []
