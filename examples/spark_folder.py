"""Topics read from the data folder of a node, or a copy of one: no server is asked, and none need run.

Start it in the folder in which `moor serve` was started.

    .venv/bin/python examples/spark_folder.py
"""

from pathlib import Path

import moorline.spark

spark = moorline.spark.session()
messages = (
    spark.read.format("moorline")
    .option("path", str(Path("moorline-data").absolute()))
    .option("topics", "#")
    .load()
)
print(messages.count(), "messages in", messages.select("topic").distinct().count(), "topics")
spark.stop()
