"""Room: spark. Moorline in Spark: a session in one line, and the data source `moorline`.

    import moorline.spark

    spark = moorline.spark.session()
    spark.read.format("moorline").option("topics", "orders/#").load()

Imported before a session of your own is made, it lets Spark find the source there too.

Design: docs/design/pipeline.md.
"""

from typing import TYPE_CHECKING, Any

from moorline.spark.session import register, session, use_this_python, watch_lag

if TYPE_CHECKING:
    from moorline.spark.jobs.flows import flow
    from moorline.spark.value_publisher import ValuePublisher

__all__ = ["ValuePublisher", "flow", "register", "session", "watch_lag"]


def __getattr__(name: str) -> Any:
    # Only for those who use them: Spark imports this room in each of its processes, and what flows and
    # publishers of values need is more than all that reads topics.
    if name == "flow":
        from moorline.spark.jobs.flows import flow

        return flow
    if name == "ValuePublisher":
        from moorline.spark.value_publisher import ValuePublisher

        return ValuePublisher
    raise AttributeError(f"module 'moorline.spark' has no name {name!r}")


# Before a session of the user's own is made: later it would be too late.
use_this_python()
