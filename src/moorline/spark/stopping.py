"""Room: spark. The end of the process in which a query plans its batches."""

import signal
import sys
import threading


def stop_on_sigterm() -> None:
    """Spark ends the process of a query with SIGTERM and without `stop`: an exit makes it come.

    On a restarted query `initialOffset` is not called, so whatever may be called first does this.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
