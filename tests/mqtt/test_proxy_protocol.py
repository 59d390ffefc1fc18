"""MQTT behind a proxy that speaks the PROXY protocol: who is behind it, and who is no proxy."""

import socket
import struct
from pathlib import Path

import pytest
from tests.mqtt.wire_client import WireClient
from tests.process.nodes import NodeProcess

from moorline.core.mqtt.packets import Connack, Connect, Pingreq, Pingresp
from moorline.core.mqtt.reason import ReasonCode
from moorline.wire.mqtt import encode
from moorline.wire.proxy_head import SIGNATURE

pytestmark = pytest.mark.process


def free_address() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"mqtt://127.0.0.1:{one.getsockname()[1]}"


def place_of(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("mqtt://").rpartition(":")
    return host, int(port)


HEADS = {
    "v1": b"PROXY TCP4 192.0.2.7 127.0.0.1 50000 1883\r\n",
    "v2": SIGNATURE + struct.pack(">BBH", 0x21, 0x11, 12) + bytes((192, 0, 2, 7) * 2 + (0, 1) * 2),
}


@pytest.mark.parametrize("version", HEADS)
def test_a_client_behind_a_proxy_is_who_the_proxy_says(tmp_path: Path, version: str) -> None:
    """It is not on this machine any more, and anonymous from elsewhere is not let in."""
    address = free_address()
    flags = (f"--mqtt={address}", f"--set=mqtt_proxy={address}")
    with NodeProcess(tmp_path / "closed", *flags):
        client = WireClient(place_of(address))
        # In two writes: a head may be cut.
        client.socket.sendall(HEADS[version][:9])
        client.socket.sendall(HEADS[version][9:] + encode(Connect(5, "c", True, 0), 5))
        assert client.hear(Connack).reason is ReasonCode.NOT_AUTHORIZED
        client.socket.close()
        # Without a head nobody is heard.
        bare = WireClient(place_of(address))
        bare.say(Connect(5, "c", True, 0))
        assert bare.is_closed()
        bare.socket.close()


def test_a_proxy_passes_on_what_follows_and_strangers_are_cut(tmp_path: Path) -> None:
    address = free_address()
    everywhere = (
        "--set=anonymous=everywhere",
        f"--mqtt={address}",
        f"--set=mqtt_proxy={address}",
    )
    with NodeProcess(tmp_path / "open", *everywhere):
        client = WireClient(place_of(address))
        said = encode(Connect(5, "c", True, 0), 5) + encode(Pingreq(), 5)
        client.socket.sendall(HEADS["v2"] + said)
        assert client.hear(Connack).reason is ReasonCode.SUCCESS
        client.hear(Pingresp)
        client.socket.close()
    with NodeProcess(tmp_path / "strange", *everywhere, "--set=mqtt_proxy_sources=192.0.2.0/24"):
        stranger = WireClient(place_of(address))
        stranger.socket.sendall(HEADS["v1"] + said)
        assert stranger.is_closed()
        stranger.socket.close()
