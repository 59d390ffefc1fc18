"""Room: spark. What Spark says when a job fails, as one of our errors: whose mistake, and what to do.

An error that our code raised in a worker, a planner or a committer comes back as text inside of others.
"""

import contextlib
import re
import traceback
from collections.abc import Iterator

import moorline.errors
from moorline.errors import CallFailed, ConnectionLost, MoorlineError
from moorline.limits import SPARK_WORDS_MAX
from moorline.spark.connect_server import is_server_gone

_RAISED = re.compile(r"^    .*\n([A-Za-z_][\w.]*: .+)$", re.MULTILINE)
"""The last line of a Python traceback."""

JAVA_GONE = "Spark's Java process has ended: was it killed, or was there no memory? Run it again"

SERVER_GONE = "the Spark Connect server does not answer any more: is it running? Run it again"

_OURS = re.compile(r"^(?:.*?: )?moorline\.[\w.]+\.(\w+): (.*)$", re.MULTILINE)


class SparkFailed(MoorlineError):
    """Spark could not do it, and it was none of our errors: its own words follow."""


class JavaGone(SparkFailed):
    """The Java process that Spark runs in has ended, and nobody of us ended it."""


@contextlib.contextmanager
def explained(what: str = "") -> Iterator[None]:
    """Errors of Spark leave as ours; `what` goes before the text, such as the name of a flow."""
    try:
        yield
    except MoorlineError as error:
        if not what:
            raise
        raise _with_text(type(error), f"{what}: {error}") from error
    except ConnectionError as error:
        if not _is_java_gone(error):
            raise
        raise JavaGone(f"{what}: {JAVA_GONE}" if what else JAVA_GONE) from error
    except spark_errors() as error:
        found = _gone(error) or ours_in(str(error))
        raise _with_text(type(found), f"{what}: {found}" if what else str(found)) from error


def _gone(error: Exception) -> MoorlineError | None:
    """Where there is no Spark any more that could do it."""
    if _is_java_gone(error):
        return JavaGone(JAVA_GONE)
    return ConnectionLost(SERVER_GONE) if is_server_gone(error) else None


def _is_java_gone(error: Exception) -> bool:
    """Whether it is of the connection to Java, and not of one that a user's function made."""
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    if isinstance(error, Py4JNetworkError):
        return True
    frames = traceback.walk_tb(error.__traceback__)
    return isinstance(error, ConnectionError) and any(
        frame.f_globals.get("__name__", "").startswith("py4j.") for frame, _ in frames
    )


def ours_in(text: str) -> MoorlineError:
    """The error of ours that a text of Spark's ends in, or the beginning of its own words."""
    found = _OURS.findall(text)
    for name, words in reversed(found):
        kind = _kind(name)
        if kind is not None:
            return _with_text(kind, words.strip())
    raised = raised_in(text)
    if raised:
        return SparkFailed(raised)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith(("at ", "JVM stacktrace", "==", "File "))]
    return SparkFailed((own[0] if own else text)[:SPARK_WORDS_MAX])


def raised_in(text: str) -> str:
    """The exception that a traceback in a text of Spark's ends with; empty without one."""
    raised = _RAISED.findall(text)
    return str(raised[-1])[:SPARK_WORDS_MAX] if raised else ""


def _kind(name: str) -> type[MoorlineError] | None:
    kind = getattr(moorline.errors, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, MoorlineError) else None


def _with_text(kind: type[MoorlineError], text: str) -> MoorlineError:
    try:
        return kind(text)
    except TypeError:  # one that is made of more than a text
        return CallFailed(text) if issubclass(kind, CallFailed) else MoorlineError(text)


def spark_errors() -> tuple[type[Exception], ...]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError)
