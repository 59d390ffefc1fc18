"""Room: spark. Moorline in Spark: a session in one line, and the data source `moorline`.

    import moorline.spark

    spark = moorline.spark.session()
    spark.read.format("moorline").option("topics", "orders/#").load()

Design: docs/design/pipeline.md.
"""

from moorline.spark.jobs.flows import flow
from moorline.spark.session import register, session

__all__ = ["flow", "register", "session"]
