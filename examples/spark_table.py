"""A Postgres table in Parquet: kept from the topic of its changes, and proven against the table itself.

Before it, in the Postgres of the node:

    create table experiments (id bigint primary key, workspace_id integer, state text);
    insert into experiments values (1, 1, 'NEW'), (2, 1, 'NEW'), (3, 2, 'DONE');

then `moor records add experiments --key id`, and `moor records publish experiments --topic
tables/experiments`.

    .venv/bin/python examples/spark_table.py
"""

import tempfile

import moorline.spark
from moorline.spark.jobs.materialize import MaterializeOptions, materialize
from moorline.spark.jobs.materialized import materialized

NODE = {"address": "tcp://127.0.0.1:7411"}

spark = moorline.spark.session()
with tempfile.TemporaryDirectory() as folder:
    done = materialize(
        spark, MaterializeOptions(folder, NODE, "tables/experiments", table="experiments")
    )
    print(f"{done.rows} rows, proven: {done.is_proven}")
    rows = materialized(spark, folder).selectExpr("from_json(row, 'state string').state as state")
    for state, count in sorted(rows.groupBy("state").count().collect()):
        print(state, count)
spark.stop()
