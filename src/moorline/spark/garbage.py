"""Room: spark. Python's garbage collector in the processes of Spark that run this source.

Spark collects garbage behind every task and every question to a source, which looks at all that was ever
imported: 30 ms and more, as long as it takes to decode 200,000 messages. Modules stay anyway, so they are set
apart; again when there are more of them, and never for what a task has made.
"""

import gc
import sys

OF_WORKERS = "pyspark.worker_util"
"""What Spark imports in its workers alone: in a user's own process the collector is left as it is."""

_modules = 0
"""How many there were when they were set apart."""


def spare_the_collector() -> None:
    global _modules
    if OF_WORKERS in sys.modules and len(sys.modules) > _modules:
        gc.freeze()
        _modules = len(sys.modules)
