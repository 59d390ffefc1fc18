"""Real nodes, and clients that speak MQTT over plain sockets."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from tests.mqtt.wire_client import WireClient
from tests.process.nodes import NodeProcess

from moorline.core.mqtt.packets import MQTT_5

NUMBERS = itertools.count(1)

Join = Callable[..., WireClient]


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One real node for all that need nothing special of it."""
    with NodeProcess(tmp_path_factory.mktemp("mqtt") / "data", "--set=streams.shards=2") as node:
        yield node
        assert "Traceback" not in node.errors, node.errors


@pytest.fixture(params=[MQTT_5, 4], ids=["v5", "v3.1.1"])
def level(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def name() -> str:
    """A topic, and a client, of the test's own."""
    return f"t{next(NUMBERS)}"


@pytest.fixture
def join(node: NodeProcess) -> Iterator[Join]:
    """Opens connections to the node, and closes them at the end."""
    opened: list[WireClient] = []

    def one(name: str = "", level: int = MQTT_5, **how: object) -> WireClient:
        client = WireClient(node.mqtt, level, name or f"c{next(NUMBERS)}")
        opened.append(client)
        if how.pop("connects", True):
            client.connect(**how)  # type: ignore[arg-type]
        return client

    yield one
    for client in opened:
        client.socket.close()
