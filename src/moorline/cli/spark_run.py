"""Room: cli. How a command gets its Spark: one definition of the flags, a quiet start, a bar, clear errors.

What Spark logs goes to a file, which is named where a job fails and removed where it does not. With
MOOR_DEBUG=1 it goes to stderr.
"""

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorline.cli import output
from moorline.cli.installed import need_spark
from moorline.cli.progress import progress
from moorline.errors import ConfigError
from moorline.limits import PIPELINE_TASKS_MIN, SPARK_CONNECT_END_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PANEL = "Spark"

EXIT_INTERRUPTED = 130
"""As cli.main says it, for an end that no exception leads to."""

_EVERY = re.compile(r"(\d{1,6}) (millisecond|second|minute|hour|day)s?")
_SECONDS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3_600.0, "day": 86_400.0}

MASTER = typer.Option(
    "--master",
    show_default=False,
    rich_help_panel=PANEL,
    help="A cluster, as spark://host:7077; without it, this machine.",
)
REMOTE = typer.Option(
    "--remote", show_default=False, rich_help_panel=PANEL, help="Spark Connect, as sc://host:15002."
)
CONF = typer.Option(
    "--conf",
    metavar="KEY=VALUE",
    show_default=False,
    rich_help_panel=PANEL,
    help="Any setting of Spark's. Repeatable.",
)
Master = Annotated[str | None, MASTER]
Remote = Annotated[str | None, REMOTE]
Conf = Annotated[list[str] | None, CONF]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON value.")]


@contextlib.contextmanager
def spark_run(
    what: str,
    master: str | None,
    remote: str | None,
    conf: list[str] | None,
    *,
    is_light: bool = True,
) -> Iterator[tuple["SparkSession", Callable[[int, int], None]]]:
    """A session for one job, and what hears of its progress.

    A light job does its work in Python, and Java little: on this machine it is not compiled for long.
    """
    settings = dict(map(_setting, conf or []))
    need_spark()
    from moorline.spark.jobs.failures import explained

    with _logged_aside() as log, explained():
        from moorline.spark.connect_server import end_patience, is_far
        from moorline.spark.session import SHORT_JOB, session

        if is_light and not master and not remote:
            settings = SHORT_JOB | settings
        with _ends_at_once(remote) as knows:
            # Interrupted while it starts, Java would be left behind: who wants an end gets it right after.
            with log(), _java_apart(), stoppable(not is_far(remote)) as is_asked:
                spark = session(master, remote, f"moor pipeline: {what}", settings)
                knows.append(spark)
                _quiet(spark)
            try:
                if is_asked():
                    raise KeyboardInterrupt
                with progress(what) as seen:
                    yield spark, seen
            finally:
                if is_far(remote):
                    end_patience(spark)  # a server that is gone need not hear of the end
                with contextlib.suppress(Exception):
                    spark.stop()


@contextlib.contextmanager
def _ends_at_once(remote: str | None) -> Iterator[list["SparkSession"]]:
    """SIGTERM interrupts as Ctrl-C does; a job at a far server ends, whether or not that one answers."""
    from moorline.spark.connect_server import end_patience, is_far

    known: list[SparkSession] = []

    def end(number: int, frame: FrameType | None) -> None:
        for spark in known:
            end_patience(spark)
        # Spark tells the server of the end, and would wait for a server that hangs.
        last = threading.Timer(SPARK_CONNECT_END_MS / 1_000, os._exit, [EXIT_INTERRUPTED])
        last.daemon = True
        last.start()
        _interrupt(number, frame)

    if is_far(remote):
        with _signals(end, signal.SIGINT, signal.SIGTERM):
            yield known
    else:
        with _signals(_interrupt, signal.SIGTERM):
            yield known


@contextlib.contextmanager
def _java_apart() -> Iterator[None]:
    """Java is started so that a signal to all processes of the command ends the command, and not Java.

    A service manager, or `timeout`, sends SIGTERM to all of them; Java would be gone before the job can end
    its work. It ends with us in any case: its stdin is closed then.
    """
    import pyspark.java_gateway

    gateway: Any = pyspark.java_gateway
    popen = subprocess.Popen
    starting: list[subprocess.Popen[bytes]] = []

    def started(command: list[str], **options: Any) -> Any:
        before = options.pop("preexec_fn", None)

        def prepare() -> None:
            if before is not None:
                before()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        made = popen(command, preexec_fn=prepare, process_group=0, **options)
        starting.append(made)
        return made

    gateway.Popen = started
    try:
        yield
    except BaseException:
        # Interrupted before it listens, Java would wait for us for ever.
        for one in starting:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)  # its shell may have started others
            one.wait()
        raise
    finally:
        gateway.Popen = popen


@contextlib.contextmanager
def stoppable(is_endless: bool) -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask a job without an end to end; said again, they interrupt it like any other."""
    asked = threading.Event()
    if not is_endless:
        yield asked.is_set
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            _interrupt(number, frame)
        asked.set()

    with _signals(ask, signal.SIGINT, signal.SIGTERM):
        yield asked.is_set


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """So that a job that is told to end leaves no Java and no file behind."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def _signals(
    handler: Callable[[int, FrameType | None], None], *numbers: signal.Signals
) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, one in before.items():
            signal.signal(number, one)


@contextlib.contextmanager
def _logged_aside() -> Iterator[Callable[[], Any]]:
    """Gives what sends the stderr of programs that are started under it to a file."""
    if os.environ.get("MOOR_DEBUG", "") not in ("", "0"):
        yield contextlib.nullcontext
        return
    # Of a Java that is gone we tell in our words; this library would tell of it in pages.
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    handle, name = tempfile.mkstemp(prefix="moor-pipeline-", suffix=".log")
    try:
        yield lambda: _redirected(handle)
    except BaseException as error:
        from moorline.spark.jobs.failures import SparkFailed

        # An error of ours has said what there is to say, wherever it was raised.
        if isinstance(error, SparkFailed) and Path(name).stat().st_size:
            output.error(f"what Spark logged is in {name}")
        else:
            Path(name).unlink(missing_ok=True)
        raise
    else:
        Path(name).unlink(missing_ok=True)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _redirected(handle: int) -> Iterator[None]:
    """Java and its workers keep the stderr that they are started with."""
    sys.stderr.flush()
    saved = os.dup(2)
    os.dup2(handle, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


def _quiet(spark: "SparkSession") -> None:
    from pyspark.errors import PySparkException

    with contextlib.suppress(PySparkException, AttributeError):  # Spark Connect has no context here
        spark.sparkContext.setLogLevel("ERROR")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise ConfigError(f"--conf {text!r}: accepted: spark.NAME=VALUE")
    return name, value


def tasks_of(spark: "SparkSession") -> int:
    """About as many tasks as the session runs at once, twice: the last ones are not waited for long."""
    from pyspark.errors import PySparkException

    try:
        return max(PIPELINE_TASKS_MIN, 2 * spark.sparkContext.defaultParallelism)
    except (PySparkException, AttributeError):
        return PIPELINE_TASKS_MIN * 4


def check_every(text: str) -> None:
    """Refuses what Spark would not take as the time between batches, before there is a Spark."""
    if not _EVERY.fullmatch(text.strip()):
        raise ConfigError(f"--every {text!r}: accepted: a time as '30 seconds' or '5 minutes'")


def seconds_of(text: str) -> float:
    """Of what `check_every` took; never 0."""
    found = _EVERY.fullmatch(text.strip())
    assert found is not None, "it was checked"
    return max(0.001, int(found[1]) * _SECONDS[found[2]])


def time_us(text: str, option: str, default: int) -> int:
    """Microseconds since 1970; a time without a zone is UTC."""
    if not text:
        return default
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{option} {text!r}: accepted: a time as 2026-05-04T08:00:00Z") from None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return round(when.timestamp() * 1_000_000)
