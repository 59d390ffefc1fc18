"""Spark Connect: a server that was there before, and one that the session starts itself."""

import asyncio
import importlib
from collections import Counter
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess
from tests.spark.archives import count_of, filled, messages_of
from tests.spark.far_driver import COPIES
from tests.spark.publishing import COUNT, message
from tests.spark.servers import connect_port, connect_server, drive

import moorline.spark
from moorline.errors import ConfigError

__all__ = ["filled"]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_connect_server_reads_writes_streams_and_archives(
    filled: NodeProcess, tmp_path: Path
) -> None:
    with connect_server(tmp_path / "server") as server:
        remote = f"sc://127.0.0.1:{server.found}"
        found = drive(remote, filled.address, tmp_path, "read", "write", "stream", "archive")
    assert found["read"] == {"rows": COUNT, "is_equal": True}
    written = asyncio.run(messages_of(filled.address, "far/#", COPIES))
    assert sorted(int(one.value) for one in written) == list(range(COPIES))
    assert found["stream"]["batches"][0] > 0, "the bound makes several batches"
    expected = [
        one
        for one in (message(number) for number in range(COUNT))
        if one.topic.startswith("orders/")
    ]
    streamed = asyncio.run(messages_of(filled.address, "streamed", len(expected)))
    assert Counter((one.key, one.value) for one in streamed) == Counter(
        (one.key, one.value) for one in expected
    )
    assert found["archive"]["is_equal"]
    assert found["archive"]["repaired"]
    assert found["archive"]["fetched"] > 0
    # The second run read what the first one published, and took none of it.
    assert asyncio.run(count_of(filled.address, "streamed")) == len(expected)


@pytest.mark.long
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_session_may_start_its_own_server(filled: NodeProcess, tmp_path: Path) -> None:
    with connect_port():
        found = drive("local[2]", filled.address, tmp_path, "read")
    assert found["read"] == {"rows": COUNT, "is_equal": True}


def test_what_connect_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # `moorline.spark.session` is the function: the module has the same name.
    module = importlib.import_module("moorline.spark.session")
    monkeypatch.setattr(module, "CONNECT_PACKAGES", ("grpc_of_nobody",))
    with pytest.raises(ConfigError, match=r"needs grpc_of_nobody: .*pip install .*'\.\[connect\]'"):
        moorline.spark.session(remote="sc://127.0.0.1:1")
