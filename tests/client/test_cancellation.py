"""Every call of the client is cancelled at random moments, on both loops, against one real node."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.client.public_calls import ClientCertificate, missing
from tests.process.nodes import NodeProcess, clean_environment
from tests.queues.queue_server import Certificates as Certificates

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

CANCELLED_IN_TOTAL = 1_000
SEED = 13


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientCertificate]:
    folder = tmp_path_factory.mktemp("cancelled")
    made = Certificates(folder, "service")
    flags = [
        "--listen=tls://127.0.0.1:0",
        f"--tls-certificate={made.path('server')}",
        f"--tls-key={made.path('server')}",
        f"--tls-client-ca={made.ca}",
        "--set=queues.sync=process",
        "--set=streams.sync=process",
        "--set=streams.shards=2",
        "--set=groups.ping_ms=200",
        "--set=groups.revoke_ms=500",
    ]
    with NodeProcess(folder / "data", *flags) as node:
        note = json.loads((node.data / "node.json").read_text())
        (tls,) = [one for one in note["addresses"] if one.startswith("tls:")]
        yield ClientCertificate(
            node.address, tls, made.ca, made.path("service"), folder / "service.sqlite"
        )
        assert node.stop() == 0
        assert "Traceback" not in node.errors


def test_every_call_of_the_client_is_known_here() -> None:
    assert missing() == []


@pytest.mark.parametrize(("loop", "stays"), [("asyncio", False), ("uvloop", True)])
def test_calls_that_are_cancelled_at_random_leave_everything_right(
    certificates: ClientCertificate, loop: str, *, stays: bool
) -> None:
    """List, digest, tasks, connections, groups and messages; and neither Python nor the loop complains."""
    own = msgspec.structs.replace(
        certificates,
        listed=certificates.listed.with_name(f"{loop}-{stays}.sqlite"),
        stays=stays,
    )
    command = [sys.executable, "-X", "dev", "-m", "tests.client.cancelled_client"]
    ended = subprocess.run(
        [
            *command,
            loop,
            str(SEED + len(loop)),
            str(CANCELLED_IN_TOTAL // 2),
            msgspec.json.encode(own, enc_hook=str).decode(),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        env=clean_environment(),
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert ended.stderr == ""
