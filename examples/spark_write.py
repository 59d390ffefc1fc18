"""A table published to topics: all of it at once, and not a second time.

The options `query` and `batch` name this write. Run again under the same names, it publishes nothing.

    .venv/bin/python examples/spark_write.py
"""

import moorline.spark

ADDRESS = "tcp://127.0.0.1:7411"

spark = moorline.spark.session()
prices = spark.range(1_000).selectExpr(
    "concat('catalogue/', id % 7) as topic",  # or the option topic, for all rows
    "cast(concat('article ', id) as binary) as key",  # rows of one key keep their order
    "cast(concat(id, '.99') as binary) as value",
)
for attempt in ("first", "second"):
    (
        prices.write.format("moorline")
        .option("address", ADDRESS)
        .option("query", "price list of spring")
        .option("batch", 1)
        .mode("append")
        .save()
    )
    published = (
        spark.read.format("moorline").option("address", ADDRESS).option("topics", "catalogue/#")
    )
    print(f"after the {attempt} write: {published.load().count()} messages")
spark.stop()
