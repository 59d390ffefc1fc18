"""Room: spark. Moorline in Spark: a session in one line, and the data source `moorline`.

    import moorline.spark

    spark = moorline.spark.session()
    spark.read.format("moorline").option("topics", "orders/#").load()

Imported before a session of your own is made, it lets Spark find the source there too.

Design: docs/design/pipeline.md.
"""

from moorline.spark.jobs.flows import flow
from moorline.spark.session import register, session, use_this_python, watch_lag

__all__ = ["flow", "register", "session", "watch_lag"]

# Before a session of the user's own is made: later it would be too late.
use_this_python()
