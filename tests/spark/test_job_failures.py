"""What Spark says when something fails, as an error of ours that says whose mistake it was."""

import pytest

from moorline.errors import (
    BadTopic,
    ConfigError,
    DriftFound,
    MessagesGone,
    MoorlineError,
    Refused,
)
from moorline.spark.jobs.failures import JavaGone, SparkFailed, explained, ours_in

WORKER = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
{error}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("line", "kind", "text"),
    [
        ("moorline.errors.DriftFound: a/b.parquet is gone", DriftFound, "a/b.parquet is gone"),
        ("moorline.errors.BadTopic: # stands alone", BadTopic, "# stands alone"),
        ("moorline.errors.MessagesGone: 3 messages", MessagesGone, "3 messages"),
        ("moorline.errors.Refused: BUSY: later", MoorlineError, "BUSY: later"),
        ("ValueError: no such thing", SparkFailed, "ValueError: no such thing"),
        ("pyarrow.lib.ArrowInvalid: x", SparkFailed, "pyarrow.lib.ArrowInvalid: x"),
    ],
)
def test_an_error_of_a_worker(line: str, kind: type[MoorlineError], text: str) -> None:
    found = ours_in(WORKER.format(error=line))
    assert isinstance(found, kind)
    assert str(found).startswith(text)


def test_what_only_spark_knows_is_said_in_its_words() -> None:
    found = ours_in("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03\n\tat org.x")
    assert isinstance(found, SparkFailed)
    assert str(found) == "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03"


def test_a_java_that_is_gone_is_told_and_another_connection_is_not_taken_for_it() -> None:
    from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]

    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=1))
    with pytest.raises(JavaGone, match=r"^flow copy: Spark's Java process has ended"):  # noqa: SIM117
        with explained("flow copy"):
            gateway.jvm.System.nanoTime()
    with pytest.raises(ConnectionRefusedError), explained():
        raise ConnectionRefusedError("of a user's function")


def test_an_error_of_ours_stays_and_may_get_a_name() -> None:
    with pytest.raises(ConfigError, match=r"^no$"), explained():
        raise ConfigError("no")
    with pytest.raises(ConfigError, match=r"^flow copy: no$"), explained("flow copy"):
        raise ConfigError("no")
    with pytest.raises(MoorlineError, match="flow copy: BUSY: later"), explained("flow copy"):
        raise Refused("BUSY", "later")
