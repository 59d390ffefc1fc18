"""The Containerfile is built and run by podman: a node with a queue and a topic, also behind a restart.

Its base is an image that `tools/container_base` has made, or the one that the file names if a registry is
reached. Packages come from where pip of this machine gets them.
"""

import json
import re
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.process.nodes import clean_environment

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
BASE = "localhost/moorline-base"
IMAGE = "localhost/moorline-of-a-test"
BUILT_S, PATIENCE_S = 600, 120


class Podman:
    """The engine, with the runtime that works here."""

    def __init__(self, *words: str) -> None:
        self.words = ("podman", *words)

    def run(self, *words: str, within_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.words, *words],
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
            env=clean_environment(),
        )

    def __call__(self, *words: str, within_s: float = PATIENCE_S) -> str:
        done = self.run(*words, within_s=within_s)
        assert done.returncode == 0, (words, done.stderr[-2_000:])
        return done.stdout.strip()


def limits() -> list[str]:
    """Those of this process: who may not raise its own may not give more to a container."""
    kinds = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    hard = {
        name: min(resource.getrlimit(kind)[1] % (1 << 63), 20_000) for name, kind in kinds.items()
    }
    return [f"--ulimit={name}={most}:{most}" for name, most in hard.items()]


def packages() -> list[str]:
    """The configuration of pip here, and the folders that it names, seen in the container too."""
    there = [Path("/etc/pip.conf"), Path("/etc/ssl/certs")]
    if there[0].exists():
        there += map(
            Path,
            re.findall(
                r"(?<![\w:/])(?:file://)?(/opt/[\w/.-]+?)(?:/simple)?(?=\s)",
                there[0].read_text() + "\n",
            ),
        )
    return [f"--volume={path}:{path}:ro" for path in dict.fromkeys(there) if path.exists()]


@pytest.fixture(scope="module")
def podman() -> Podman:
    if shutil.which("podman") is None:
        pytest.skip("no podman here (apt-get install podman)")
    why = ""
    for words in ((), ("--runtime=runc",)):
        engine = Podman(*words)
        if engine.run("image", "exists", BASE).returncode:
            pytest.skip(f"no image {BASE} here: tools/container_base makes it")
        tried = engine.run("run", "--rm", "--network=host", *limits(), BASE, "true")
        if tried.returncode == 0:
            return engine
        why = tried.stderr.strip().splitlines()[-1]
    pytest.skip(f"podman runs no container here: {why}")


@pytest.fixture(scope="module")
def image(podman: Podman) -> Iterator[str]:
    podman(
        *("build", "--format=docker", "--network=host", *packages(), f"--build-arg=BASE={BASE}"),
        *("-f", str(ROOT / "deploy" / "Containerfile"), "-t", IMAGE, str(ROOT)),
        within_s=BUILT_S,
    )
    yield IMAGE
    podman.run("rmi", "--force", IMAGE)


def free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def until_ready(podman: Podman, name: str, times: int) -> None:
    """Until it has said so that often, over all of its starts."""
    ends = time.monotonic() + PATIENCE_S
    while (said := podman.run("logs", name)).stdout.count(" ready: ") < times:
        assert time.monotonic() < ends, said
        time.sleep(0.1)


def test_a_node_in_a_container_keeps_what_it_has_in_its_volume(podman: Podman, image: str) -> None:
    name = f"moorline-{free_port()}"
    settings = [
        f"--env=MOOR_LISTEN=tcp://127.0.0.1:{free_port()}",
        f"--env=MOOR_HTTP=127.0.0.1:{free_port()}",
        f"--env=MOOR_MQTT=mqtt://127.0.0.1:{free_port()}",
    ]

    def moor(*words: str) -> str:
        return podman("exec", name, "moor", *words)

    try:
        podman(
            *("run", "--detach", "--name", name, "--network=host", *limits()),
            *(f"--volume={name}:/var/lib/moorline", *settings, image),
        )
        until_ready(podman, name, 1)
        queue = moor("queue", "create")
        moor("queue", "send", queue, "ahoy")
        moor("topic", "publish", "orders/eu", "an order")
        assert podman("exec", name, "id", "-u") == "7411"
        assert podman.run("exec", name, "touch", "/opt/moorline/changed").returncode != 0
        podman("healthcheck", "run", name)
        podman("stop", "--time", "15", name)
        state = json.loads(podman("inspect", name))[0]["State"]
        assert (state["Status"], state["ExitCode"]) == ("exited", 0)
        podman("start", name)
        until_ready(podman, name, 2)
        assert moor("queue", "read", queue).endswith("ahoy")
        assert moor("topic", "tail", "orders/#", "--start", "beginning", "--count", "1").endswith(
            "an order"
        )
    finally:
        podman.run("rm", "--force", name)
        podman.run("volume", "rm", "--force", name)
