"""What a connection that says nothing holds of the node's memory."""

import re
import socket
from pathlib import Path

from tests.process.nodes import NodeProcess

from moorline.core.mqtt.packets import Connect
from moorline.limits import KIB
from moorline.wire.mqtt.encoder import encode

CONNECTIONS = 800
WARM = 100
EACH_BYTES_MAX = 14 * KIB
"""10 KiB were measured; before that was looked at it was 24."""


def resident_bytes(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * KIB


def connected(place: tuple[str, int], name: str) -> socket.socket:
    one = socket.create_connection(place, timeout=30)
    one.sendall(encode(Connect(4, name, True, 0), 4))
    assert one.recv(4) == b"\x20\x02\x00\x00"
    return one


def test_an_idle_connection_is_some_kilobytes(tmp_path: Path) -> None:
    clients: list[socket.socket] = []
    with NodeProcess(tmp_path / "data") as node:
        clients += [connected(node.mqtt, f"warm-{number}") for number in range(WARM)]
        before = resident_bytes(node.process.pid)
        clients += [connected(node.mqtt, f"idle-{number}") for number in range(CONNECTIONS)]
        each = (resident_bytes(node.process.pid) - before) / CONNECTIONS
        for client in clients:
            client.close()
    assert each < EACH_BYTES_MAX
