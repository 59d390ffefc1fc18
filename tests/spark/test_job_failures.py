"""What Spark says when something fails, as an error of ours that says whose mistake it was."""

import pytest

from moorline.errors import (
    BadTopic,
    ConfigError,
    ConnectionLost,
    DriftFound,
    FlowFailed,
    MessagesGone,
    MoorlineError,
    Refused,
)
from moorline.spark.jobs.failures import JavaGone, SparkFailed, explained, ours_in
from moorline.spark.jobs.flow_errors import of_flow, place_in, said_by

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


IN_WORKER = """[STREAM_FAILED] Query [id = 5] terminated with exception: Job aborted due to stage failure:
Traceback (most recent call last):
  File "/opt/flows.py", line 7, in looked_up
    return table[value]
           ~~~~~^^^^^^^
  File "/opt/flows.py", line 11, in shouted
    raise ValueError("not for shouting")
ValueError: not for shouting
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: moor pipeline run loud [id = 5]
Current State: ACTIVE
"""


def test_what_a_users_function_raised_in_a_worker_is_found_in_the_words_of_spark() -> None:
    error = RuntimeError(IN_WORKER)
    assert said_by(error) == "ValueError: not for shouting"
    assert place_in(error, "/opt/flows.py") == "flows.py, line 11, in shouted"
    assert place_in(error, "/opt/others.py") == ""


def test_an_error_of_a_flow_says_which_flow_and_where() -> None:
    with pytest.raises(FlowFailed) as caught, of_flow("mine", __file__):
        raise ZeroDivisionError("no\nsecond line")
    assert str(caught.value).startswith(
        "flow mine: ZeroDivisionError: no (test_job_failures.py, line "
    )
    with pytest.raises(FlowFailed, match=r"flow mine: SystemExit: 3 \("), of_flow("mine", __file__):
        raise SystemExit(3)
    # What is not the user's mistake keeps its kind.
    with pytest.raises(ConnectionLost, match="flow mine: gone"), of_flow("mine", __file__):
        raise ConnectionLost("gone")
    with pytest.raises(KeyboardInterrupt), of_flow("mine", __file__):
        raise KeyboardInterrupt
