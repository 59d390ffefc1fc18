"""The example for Spark Declarative Pipelines declares what it says; running it needs Spark Connect."""

import runpy
from pathlib import Path

from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import (
    GraphElementRegistry,
    graph_element_registration_context,
)
from pyspark.pipelines.output import Output, Sink

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
