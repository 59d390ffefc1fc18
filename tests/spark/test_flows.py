"""`run FILE`: a user's flows on a real Spark, once and again, with their proof."""

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.client.proving_node import secret_file
from tests.process.nodes import NodeProcess
from tests.spark.archives import count_of, filled, messages_of, source_of
from tests.spark.publishing import COUNT, message, number_of, publish

from moorline.client.connecting import connect
from moorline.errors import ConfigError, DriftFound, FlowFailed
from moorline.spark import flow
from moorline.spark.jobs.flows import FlowReport, FlowsOptions, check, flows_in, run_flows

__all__ = ["filled"]

FLOWS = """
from pyspark.sql import functions
from moorline.spark import flow

@flow(source={"topics": "orders/#,größe", "includeHeaders": "true"}, sink={}, one_to_one=True)
def copy(messages):
    copied = functions.concat(functions.lit("copied/"), "topic")
    return messages.select(copied.alias("topic"), "key", "value", "headers")

@flow(source={"topics": "orders/#"}, sink={"topic": "europe"}, one_to_one=True)
def europe(messages):
    return messages.where("topic like 'orders/eu/%'").select("key", "value")

@flow(source={"topics": "orders/#"}, sink={"format": "parquet", "path": "FOLDER"}, one_to_one=True)
def stored(messages):
    return messages.select("topic", "key", "value")

@flow(source={"topics": "orders/#", "topicz": "x"}, sink={"topic": "x"})
def typo(messages):
    return messages.select("value")

@flow(source={"topics": "orders/#"}, sink={"topic": "x"}, name="no frame")
def nothing(messages):
    return 7
"""

ANNAS = """
from moorline.spark import flow

@flow(source={"topics": "orders/#"}, sink={"topic": "annas"}, one_to_one=True)
def annas(messages):
    return messages.select("key", "value")
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "flows.py"
    path.write_text(FLOWS.replace("FOLDER", str(tmp_path / "stored")), encoding="utf-8")
    return str(path)


def test_the_flows_of_a_file(file: str, tmp_path: Path) -> None:
    names = [one.name for one in flows_in(file)]
    assert names == ["copy", "europe", "stored", "typo", "no frame"]
    assert [one.name for one in flows_in(file, ["typo"])] == ["typo"]
    with pytest.raises(ConfigError, match="has no flow 'nope': there are copy, europe"):
        flows_in(file, ["nope"])
    with pytest.raises(ConfigError, match="is not a file"):
        flows_in(str(tmp_path / "nowhere.py"))
    path = tmp_path / "other.py"
    for text, words in (
        ("x = 1", "has no flows: mark functions"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        (
            "from moorline.spark import flow\n@flow(source={'a': 1}, sink={})\ndef f(x): ...",
            "f: source: a=1",
        ),
        (
            "from moorline.spark import flow\n@flow(source={}, sink={}, name='g')\ndef f(x): ...\n"
            "@flow(source={}, sink={})\ndef g(x): ...",
            "two flows are named g",
        ),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=words):
            flows_in(str(path))


def test_a_marked_function_is_still_itself() -> None:
    def itself(messages: DataFrame) -> DataFrame:
        return messages

    assert flow(source={}, sink={})(itself) is itself


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_copy_is_made_once_and_proven(
    spark: SparkSession, filled: NodeProcess, file: str
) -> None:
    options = FlowsOptions(file, ["copy"], source_of(filled))
    (done,) = run_flows(spark, options)
    assert (done.messages, done.verified, done.source_count, done.sink_count) == (
        COUNT,
        True,
        COUNT,
        COUNT,
    )
    (again,) = run_flows(spark, options)
    assert (again.messages, again.batches, again.verified) == (0, 0, None)
    asyncio.run(publish(filled.address, 100, COUNT))
    (more,) = run_flows(spark, options)
    assert (more.messages, more.verified, more.sink_count) == (100, True, 100)
    check([done, again, more])
    assert asyncio.run(count_of(filled.address, "copied/#")) == COUNT + 100
    found = asyncio.run(messages_of(filled.address, "copied/#", COUNT + 100))
    plain = [one._replace(topic=one.topic.removeprefix("copied/")) for one in found]
    assert sorted(plain, key=number_of) == [message(number) for number in range(COUNT + 100)]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_copy_of_a_user_is_proven_by_what_that_user_wrote(
    spark: SparkSession, filled: NodeProcess, tmp_path: Path
) -> None:
    """Names of queries are within principals, and so are the producers that a proof looks for."""

    async def welcome() -> None:
        async with connect(filled.address) as operator:
            await operator.access.add_user("anna", b"swordfish")
            await operator.access.add_grant("/topics", "anna", "slw")

    asyncio.run(welcome())
    password = secret_file(tmp_path / "password", "swordfish")
    reach = {**source_of(filled), "user": "anna", "passwordFile": str(password)}
    file = tmp_path / "annas.py"
    file.write_text(ANNAS, encoding="utf-8")
    (done,) = run_flows(spark, FlowsOptions(str(file), ["annas"], reach))
    assert (done.verified, done.sink_count) == (True, done.messages)
    assert asyncio.run(count_of(filled.address, "annas")) == done.messages > 0


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_flows_run_side_by_side_until_they_are_told_to_end(
    spark: SparkSession, filled: NodeProcess, file: str, tmp_path: Path
) -> None:
    stored = asyncio.run(count_of(filled.address, "orders/#"))
    total = 2 * stored + asyncio.run(count_of(filled.address, "größe"))
    before = asyncio.run(count_of(filled.address, "copied/#"))
    done: list[int] = [0]
    reports = run_flows(
        spark,
        FlowsOptions(file, ["copy", "stored"], source_of(filled), trigger="1 second"),
        lambda rows, _: done.append(rows),
        lambda: done[-1] >= total,
    )
    assert [(one.name, one.messages) for one in reports] == [
        ("copy", total - stored),
        ("stored", stored),
    ]
    assert asyncio.run(count_of(filled.address, "copied/#")) == before + total - stored
    assert spark.read.parquet(str(tmp_path / "stored")).count() == stored
    # They go on where they were, now one after the other.
    again = run_flows(spark, FlowsOptions(file, ["copy", "stored"], source_of(filled)))
    assert [one.messages for one in again] == [0, 0]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_files_as_a_sink_and_a_copy_that_is_none(
    spark: SparkSession, filled: NodeProcess, file: str
) -> None:
    reports = run_flows(spark, FlowsOptions(file, ["europe", "stored"], source_of(filled)))
    europe, stored = reports
    assert stored.verified is True
    assert stored.sink_count == stored.source_count == stored.messages
    assert europe.verified is False
    with pytest.raises(DriftFound, match=rf"flow europe: {europe.source_count} messages should"):
        check(reports)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_an_error_names_its_flow(spark: SparkSession, filled: NodeProcess, file: str) -> None:
    with pytest.raises(ConfigError, match="flow typo: unknown option 'topicz'"):
        run_flows(spark, FlowsOptions(file, ["typo"], source_of(filled)))
    with pytest.raises(ConfigError, match="flow no frame: it returned int, not a DataFrame"):
        run_flows(spark, FlowsOptions(file, ["no frame"], source_of(filled)))


RAISING = """
from pyspark.sql import functions
from moorline.spark import flow

def looked_up(messages):
    return messages.select({}["no such column"])

@functions.udf("string")
def shouted(value):
    if int(bytes(value).split(b":")[0]) >= 1_900:
        raise ValueError("this one is not for shouting")
    return "LOUD"

@flow(source={"topics": "orders/#"}, sink={"topic": "first"})
def first(messages):
    return messages.select("value")

@flow(source={"topics": "orders/#"}, sink={"topic": "x"})
def raises(messages):
    return looked_up(messages)

@flow(source={"topics": "orders/#"}, sink={"topic": "x"})
def unknown(messages):
    return messages.select("walue")

@flow(source={"topics": "orders/#"}, sink={"topic": "x"})
def leaves(messages):
    raise SystemExit("no")

@flow(source={"topics": "#", "maxOffsetsPerTrigger": "500"}, sink={"topic": "loud"})
def loud(messages):
    return messages.where("topic like 'orders/%'").select(shouted("value").alias("value"))

@flow(source={"topics": "orders/#"}, sink={"topic": "x"})
def last(messages):
    return messages.select("value")
"""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_flow_that_raises_is_named_and_what_was_done_before_is_told(
    spark: SparkSession, filled: NodeProcess, tmp_path: Path
) -> None:
    path = tmp_path / "raising.py"
    path.write_text(RAISING, encoding="utf-8")
    stored = asyncio.run(count_of(filled.address, "orders/#"))

    def run(*names: str, trigger: str = "") -> tuple[str, list[FlowReport]]:
        reports: list[FlowReport] = []
        options = FlowsOptions(str(path), list(names), source_of(filled), trigger=trigger)
        with pytest.raises(FlowFailed) as caught:
            run_flows(spark, options, reports=reports)
        assert "\n" not in str(caught.value)
        return str(caught.value), reports

    text, reports = run("first", "raises", "last")
    assert text == (
        "flow raises: KeyError: 'no such column' (raising.py, line 6, in looked_up: "
        'return messages.select({}["no such column"]))'
    )
    assert [(one.name, one.state, one.messages) for one in reports] == [
        ("first", "DONE", stored),
        ("raises", "FAILED", 0),
        ("last", "NOT_BEGUN", 0),
    ]
    assert asyncio.run(count_of(filled.address, "first")) == stored
    text, _ = run("unknown")
    assert text.startswith("flow unknown: AnalysisException: [UNRESOLVED_COLUMN")
    assert "(raising.py, line 24, in unknown: " in text
    text, _ = run("leaves")
    assert text.startswith("flow leaves: SystemExit: no (raising.py, line 28, in leaves: ")
    # In a worker, behind batches that were published.
    text, (report,) = run("loud")
    assert text == (
        "flow loud: ValueError: this one is not for shouting (raising.py, line 11, in shouted)"
    )
    assert report.state == "FAILED"
    assert report.batches > 0
    # Side by side: the one that fails ends the others, and both are told.
    text, reports = run("first", "raises", trigger="1 second")
    assert text.startswith("flow raises: KeyError")
    assert [(one.name, one.state) for one in reports] == [("first", "DONE"), ("raises", "FAILED")]


def test_a_file_that_raises_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "flows.py"
    for text, words in (
        (
            "x = 1\ny = x / 0\n",
            r"ZeroDivisionError: division by zero \(flows\.py, line 2, in <module>",
        ),
        ("import sys\nsys.exit(0)\n", r"SystemExit: 0 \(flows\.py, line 2"),
        ("def\n", "SyntaxError"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=words):
            flows_in(str(path))
