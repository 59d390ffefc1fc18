"""Flows: functions from a source to a sink, each a streaming query with a checkpoint beside this file.

Run again, each goes on where it was. The node is the one that the command names.

    .venv/bin/moor pipeline run examples/spark_flows.py
"""

from pyspark.sql import DataFrame, functions

from moorline.spark import flow


@flow(source={"topics": "orders/#"}, sink={}, one_to_one=True)
def copy(orders: DataFrame) -> DataFrame:
    """Every message under another topic; proven at the end, because it is one to one."""
    copied = functions.concat(functions.lit("copy/"), "topic")
    return orders.select(copied.alias("topic"), "key", "value")


@flow(source={"topics": "orders/#"}, sink={"topic": "large-orders"})
def large(orders: DataFrame) -> DataFrame:
    """Some messages, to one topic."""
    return orders.where("length(value) > 1000").select("key", "value")


@flow(source={"topics": "orders/#"}, sink={"format": "parquet", "path": "orders-by-day"})
def by_day(orders: DataFrame) -> DataFrame:
    """Into files, as any other sink of Spark's."""
    return orders.select("topic", "value", functions.to_date("timestamp").alias("day"))
