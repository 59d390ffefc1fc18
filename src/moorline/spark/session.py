"""Room: spark. A Spark session in one line, with the settings that suit Moorline.

spark = moorline.spark.session()                            # here, on all cores
spark = moorline.spark.session(master="spark://host:7077")  # a cluster
spark = moorline.spark.session(remote="sc://host:15002")    # Spark Connect
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from moorline.errors import ConfigError, NotInstalled
from moorline.limits import SPARK_TASK_TRIES
from moorline.spark.connect_server import bound_patience, find_server, is_far
from moorline.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moorline.spark.lag import Heard, LagListener

PACKAGE = "pyspark_moorline"

ANY_PYTHON = "python3"
"""What Spark runs workers with where nobody has chosen one."""

JAVA_RUNS = "PYSPARK_GATEWAY_PORT"
"""Set where Spark's Java has started this Python, and not the other way round."""

CONNECT_PACKAGES = ("grpc", "grpc_status", "zstandard", "pandas")

_SOCKET_PATH_BYTES_MAX = 107
"""What Linux takes as the path of a socket."""

_SOCKET_NAME_BYTES = 48
"""Spark's own part of it: a slash and a UUID, and some room."""

OF_A_QUERY = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""What a session may set at any time, also one that is connected to somebody else's server."""

EVERYWHERE = {
    **OF_A_QUERY,
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    # A task is one thread of Spark's: polars would take all cores for each.
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
}
LOCAL = f"local[*,{SPARK_TASK_TRIES}]"
"""This machine, all cores. Spark would give up at the first task that fails, and a node may restart."""

TRUSTING = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""For every value of a batch Arrow's Java asks whether its buffer is still there and so wide. Batches come
from pyarrow, which made them whole; without the questions Java takes a tenth less time to read a topic."""

LOCALLY = {
    "spark.driver.extraJavaOptions": TRUSTING,
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
}
SHORT_JOB = {
    "spark.driver.extraJavaOptions": f"{TRUSTING} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
}
"""For tests and jobs of seconds: Java compiles quickly and not well, which saves a third of a start."""


DAEMON = "moorline.spark.daemon"

MASTERS = ("local", "spark:", "k8s:", "yarn")
"""How the address of a cluster begins: of another one Spark says after seconds that Java has ended."""


def session(
    master: str | None = None,
    remote: str | None = None,
    app_name: str = "moorline",
    config: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A session with the source `moorline`; `config` goes before our settings."""
    from pyspark.sql import SparkSession

    if master and remote:
        raise ConfigError("master and remote: give one, a cluster or a Connect server")
    if master and not master.startswith(MASTERS):
        raise ConfigError(
            f"master {master!r}: Spark takes local, local[N], spark://HOST:PORT, k8s://URL or yarn"
        )
    if remote:
        return register(_connected(remote, app_name, config or {}))
    _prepare_environment()
    settings = settings_for(master, config or {})
    if is_local(master):
        settings = _sockets() | _daemon(settings) | settings
    builder = SparkSession.builder.appName(app_name).master(master or LOCAL)
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    # A package that is found by its name is registered by Spark itself, which warns of a second time. A
    # session that was there before us may look for it with any Python.
    is_found = find_spec(PACKAGE) is not None and made.sparkContext.pythonExec != ANY_PYTHON
    return made if is_found else register(made)


def _connected(remote: str, app_name: str, config: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    if remote.startswith("local"):
        # The server is started here, and inherits what a session of ours would.
        _prepare_environment()
    missing = [package for package in CONNECT_PACKAGES if find_spec(package) is None]
    if missing:
        raise NotInstalled(
            f"Spark Connect needs {', '.join(missing)}: in Moorline's folder, "
            "pip install -c constraints.txt '.[connect]'"
        )
    if is_far(remote):
        find_server(remote)
    builder = SparkSession.builder.remote(remote).appName(app_name)
    # What belongs to the server is not ours to set.
    for name, value in (OF_A_QUERY | dict(config)).items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    if is_far(remote):
        bound_patience(made)
    return made


def register(spark: "SparkSession") -> "SparkSession":
    """Makes the source known where the package `pyspark_moorline` is not found by itself."""
    from moorline.spark.source import MoorlineSource

    if is_remote(spark):
        spark.dataSource.register(MoorlineSource)  # the server has a Python of its own
        return spark
    context = spark.sparkContext
    before = context.pythonExec
    if before == ANY_PYTHON and is_local(context.master):
        context.pythonExec = sys.executable
    try:
        _check_python(context.pythonExec, spark.conf.get("spark.submit.pyFiles", ""))
        # The source takes this Python with it; functions of the user's keep theirs.
        spark.dataSource.register(MoorlineSource)
    finally:
        context.pythonExec = before
    return spark


def watch_lag(spark: "SparkSession", heard: "Heard | None" = None) -> "LagListener":
    """A listener that knows how far each query of the session is behind; `heard` is called at every batch."""
    from moorline.spark.lag import LagListener

    listener = LagListener(heard)
    spark.streams.addListener(listener)
    return listener


def is_remote(spark: object) -> bool:
    """Whether it is a session of Spark Connect, which has no Java here."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def use_this_python() -> None:
    """Sessions that are made from now on run their workers with our Python, unless the user chose one.

    Spark looks for data sources with the same one. Without a choice that is any python3 of the PATH, which in
    an environment that is not activated has neither pyarrow nor us. Under spark-submit Java runs already, and
    whoever submitted has chosen.
    """
    if JAVA_RUNS not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _check_python(python: str, shipped: str | None) -> None:
    """One line in place of a traceback of every worker."""
    if python == sys.executable or shipped:
        return
    look = "import importlib.util as u; raise SystemExit(not all(map(u.find_spec, {!r})))"
    command = [python, "-c", look.format(("moorline", "pyarrow"))]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=30, check=False)  # noqa: S603
        has_us = ended.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        has_us = False
    if not has_us:
        raise ConfigError(
            f"Spark runs its workers as {python!r}, a Python without moorline and pyarrow: "
            f"set PYSPARK_PYTHON={sys.executable} before the session is made"
        )


def settings_for(master: str | None, config: Mapping[str, str]) -> dict[str, str]:
    """Ours, those of a session on this machine, and those that were given."""
    settings = dict(EVERYWHERE)
    if is_local(master):
        settings |= LOCALLY
        settings["spark.sql.shuffle.partitions"] = str(len(os.sched_getaffinity(0)))
    return settings | dict(config)


def is_local(master: str | None) -> bool:
    return master is None or master.startswith("local")


def _sockets() -> dict[str, str]:
    """Java and Python talk by Unix sockets in a folder of our own: a read of a topic costs a sixth less than
    through TCP. Nothing, where the names would be too long."""
    folder = tempfile.mkdtemp(prefix="moor-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if len(os.fsencode(folder)) + _SOCKET_NAME_BYTES > _SOCKET_PATH_BYTES_MAX:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": folder,
    }


def _daemon(settings: Mapping[str, str]) -> dict[str, str]:
    """What forks the workers, where they run with our Python: another one may have no Moorline."""
    chosen = settings.get("spark.pyspark.python", os.environ.get("PYSPARK_PYTHON"))
    return {"spark.python.daemon.module": DAEMON} if chosen == sys.executable else {}


def _prepare_environment() -> None:
    """What Java and Python processes of this session inherit. What the user has set stays."""
    home = ensure_java()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    # Else Spark takes any python3 of the PATH, which has neither pyarrow nor us.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
