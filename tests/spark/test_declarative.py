"""The example for Spark Declarative Pipelines declares what it says, and `spark-pipelines run` runs it."""

import asyncio
import runpy
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import (
    GraphElementRegistry,
    graph_element_registration_context,
)
from pyspark.pipelines.output import Output, Sink
from tests.process.nodes import NodeProcess
from tests.spark.archives import count_of, messages_of
from tests.spark.servers import HEAP, HOME, connect_port, environment

import moorline

SPEC = """
name: orders
storage: STORAGE
libraries:
  - glob:
      include: transformations/**
"""
RUN_S_MAX = 300

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_declarative.py"


class Noted(GraphElementRegistry):
    """Keeps what a file declares."""

    def __init__(self) -> None:
        self.outputs: dict[str, Output] = {}
        self.flows: dict[str, Flow] = {}

    def register_output(self, output: Output) -> None:
        self.outputs[output.name] = output

    def register_flow(self, flow: Flow) -> None:
        self.flows[flow.name] = flow

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        raise AssertionError(f"{flow} is not in the example")

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        raise AssertionError(f"{sql_text} of {file_path} is not in the example")


def test_the_example_declares_tables_and_a_sink_of_ours() -> None:
    noted = Noted()
    with graph_element_registration_context(noted):
        runpy.run_path(str(EXAMPLE))
    assert set(noted.outputs) == {"orders", "orders_by_topic", "alerts"}
    assert {flow.name: flow.target for flow in noted.flows.values()} == {
        "orders": "orders",
        "orders_by_topic": "orders_by_topic",
        "large_orders": "alerts",
    }
    sink = noted.outputs["alerts"]
    assert isinstance(sink, Sink)
    assert sink.format == "moorline"


@pytest.mark.long
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(700)
def test_the_example_runs_and_publishes_through_the_sink(tmp_path: Path) -> None:
    large = [b"%d" % number * 1_001 for number in range(5)]
    small = [b"%d" % number for number in range(20)]

    async def publish(address: str) -> None:
        async with moorline.connect(address) as moor:
            await moor.publish_all([moorline.record("orders/eu", body) for body in small + large])

    with NodeProcess(tmp_path / "data") as node:
        asyncio.run(publish(node.address))
        project = tmp_path / "project"
        (project / "transformations").mkdir(parents=True)
        text = EXAMPLE.read_text(encoding="utf-8")
        assert "tcp://127.0.0.1:7411" in text
        (project / "transformations" / "orders.py").write_text(
            text.replace("tcp://127.0.0.1:7411", node.address), encoding="utf-8"
        )
        spec = SPEC.replace("STORAGE", (tmp_path / "storage").as_uri())
        (project / "spark-pipeline.yml").write_text(spec)
        with connect_port():
            done = subprocess.run(
                [
                    str(HOME / "bin" / "spark-pipelines"),
                    "run",
                    "--remote=local[2]",
                    "--conf=spark.ui.enabled=false",
                ],
                cwd=project,
                env=environment(JDK_JAVA_OPTIONS=" ".join(HEAP)),
                capture_output=True,
                text=True,
                timeout=RUN_S_MAX,
                check=False,
            )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Run is COMPLETED" in done.stdout + done.stderr
        found = asyncio.run(messages_of(node.address, "alerts", len(large)))
        assert sorted(one.value for one in found) == large
        assert asyncio.run(count_of(node.address, "alerts")) == len(large)
    by_topic = pq.read_table(project / "spark-warehouse" / "orders_by_topic").to_pylist()
    assert by_topic == [{"topic": "orders/eu", "count": len(small + large)}]
