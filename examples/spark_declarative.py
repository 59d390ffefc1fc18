"""Moorline in Spark Declarative Pipelines: a file of `transformations/` for `spark-pipelines run`.

It declares and runs nothing itself. docs/spark.md has the spark-pipeline.yml that goes with it.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession


@dp.table
def orders() -> DataFrame:
    """A table that grows with the topics."""
    return (
        SparkSession.active()
        .readStream.format("moorline")
        .option("address", "tcp://127.0.0.1:7411")
        .option("topics", "orders/#")
        .option("startingOffsets", "earliest")
        .load()
    )


@dp.materialized_view
def orders_by_topic() -> DataFrame:
    """Made anew at every run."""
    return SparkSession.active().read.table("orders").groupBy("topic").count()


dp.create_sink("alerts", "moorline", {"address": "tcp://127.0.0.1:7411", "topic": "alerts"})


@dp.append_flow(target="alerts")
def large_orders() -> DataFrame:
    """And back into a topic."""
    rows = SparkSession.active().readStream.table("orders")
    return rows.where("length(value) > 1000").select("key", "value")
