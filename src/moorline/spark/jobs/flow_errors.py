"""Room: spark. Errors of a user's flows: which flow, which exception, and where in the user's own file.

A function of a flow raises here, in the driver; one that Spark runs for each row raises in a worker, and
comes back as text inside of Spark's error. Either way the user's file is in the traceback.
"""

import contextlib
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

from moorline.errors import FlowFailed, MoorlineError
from moorline.limits import SPARK_WORDS_MAX
from moorline.spark.jobs.failures import SparkFailed, explained, raised_in

_FRAME = r'File "{file}", line (\d+), in (\S+)'


@contextlib.contextmanager
def of_flow(name: str, file: str) -> Iterator[None]:
    """What is raised in it leaves as an error of ours that names the flow."""
    try:
        with explained(f"flow {name}"):
            yield
    except SparkFailed as error:
        cause = error.__cause__
        where = place_in(cause, file) if cause is not None else ""
        if not where:
            raise
        raise FlowFailed(f"flow {name}: {said_by(cause)} ({where})") from error
    except MoorlineError:
        raise
    except (Exception, SystemExit) as error:
        where = place_in(error, file)
        what = f"flow {name}: {said_by(error)}"
        raise FlowFailed(f"{what} ({where})" if where else what) from error


def place_in(error: BaseException | None, file: str) -> str:
    """The last frame of the file in the traceback of an error; empty where there is none."""
    if error is None:
        return ""
    path = str(file)
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path
    ]
    found = re.findall(_FRAME.format(file=re.escape(path)), str(error))
    if found:
        # A worker's: it is behind all that was called here.
        line, function = found[-1]
        return f"{Path(path).name}, line {line}, in {function}"
    if not frames:
        return ""
    last = frames[-1]
    text = f": {last.line}" if last.line else ""
    return f"{Path(path).name}, line {last.lineno}, in {last.name}{text}"


def said_by(error: BaseException | None) -> str:
    """The exception and what it says, on one line."""
    if error is None:
        return ""
    text = str(error)
    # A worker's exception is in the text of Spark's, and is what the user should hear of.
    raised = raised_in(text) if "Traceback (most recent call last)" in text else ""
    if raised:
        return raised
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    name = type(error).__name__
    return (f"{name}: {first}" if first else name)[:SPARK_WORDS_MAX]
