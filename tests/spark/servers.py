"""Servers of Spark's own, from the pip package: masters, workers and Connect servers, on loopback.

Each is one process, because the scripts of Spark become the Java that they start; it is stopped by its id.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pyspark
from tests.process.nodes import clean_environment
from tests.spark.quick_java import quicken

from moorline.spark.java import ensure_java

ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__file__).parent
READY_S_MAX = 120
CONNECT_PORT = 15_002
CONNECT_S_MAX = 300
DRIVER_S_MAX = 300
HEAP = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def environment(**more: str) -> dict[str, str]:
    """What Spark's processes inherit: the Python of the tests, the code under test, and loopback."""
    flags = quicken()
    found = clean_environment() | {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": f"{' '.join(HEAP)} {flags}",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
    }
    home = ensure_java()
    if home is not None:
        found["JAVA_HOME"] = home
    return found | more


@contextlib.contextmanager
def connect_port() -> Iterator[None]:
    """Spark's own Connect server has this port and no other: one test at a time on this machine.

    A name that only one socket can have is the lock. One that is ending may still have the port.
    """
    end = time.monotonic() + CONNECT_S_MAX
    with socket.socket(socket.AF_UNIX) as lock:
        _until_bound(lock, f"\0moorline-tests-{CONNECT_PORT}", end)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _until_bound(probe, ("0.0.0.0", CONNECT_PORT), end)  # as Spark will
        yield


def _until_bound(one: socket.socket, address: str | tuple[str, int], end: float) -> None:
    while True:
        try:
            one.bind(address)
        except OSError:
            assert time.monotonic() < end, f"another program has {address!r}"
            time.sleep(0.1)
        else:
            return


class SparkServer:
    """One of them: ready when its log says so, and `found` is what the log named."""

    def __init__(self, folder: Path, arguments: list[str], ready: str) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(HOME / "bin" / "spark-class"), *arguments],
                cwd=folder,
                env=environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self.found = self._wait(ready)
        except BaseException:
            self.stop()
            raise

    def _wait(self, ready: str) -> str:
        end = time.monotonic() + READY_S_MAX
        while time.monotonic() < end:
            match = re.search(ready, self.log())
            if match is not None:
                return match[1]
            assert self.process.poll() is None, f"it ended:\n{self.log()}"
            time.sleep(0.05)
        raise AssertionError(f"it did not get ready:\n{self.log()}")

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> "SparkServer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def master(folder: Path) -> SparkServer:
    """`found` is its address, as `session(master=…)` takes it."""
    arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    return SparkServer(
        folder,
        ["org.apache.spark.deploy.master.Master", *arguments],
        r"Starting Spark master at (spark://127\.0\.0\.1:[1-9]\d*)",
    )


def worker(folder: Path, address: str) -> SparkServer:
    arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", "1"]
    arguments += ["--memory", "1g", "--work-dir", str(folder / "work"), address]
    return SparkServer(
        folder,
        ["org.apache.spark.deploy.worker.Worker", *arguments],
        r"(Successfully registered with master)",
    )


def connect_server(folder: Path) -> SparkServer:
    """`found` is its port."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": " ".join(HEAP),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    arguments = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    arguments += ["--master", "local[2]"]
    for name, value in settings.items():
        arguments += ["--conf", f"{name}={value}"]
    return SparkServer(
        folder,
        ["org.apache.spark.deploy.SparkSubmit", *arguments],
        r"Spark Connect server started at: \S*?:([1-9]\d*)",
    )


def drive(where: str, address: str, folder: Path, *steps: str) -> dict[str, dict[str, Any]]:
    """Runs the far driver; what each step found, by its name."""
    command = [sys.executable, "-m", "tests.spark.far_driver", where, address, str(folder), *steps]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DRIVER_S_MAX,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return {one.pop("step"): one for one in found}
