"""Room: net. The only clock. Machines get the time as a number; shells read it here."""

import time


def monotonic_ms() -> int:
    """For timers and ages within one process; never goes back."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970, for what is stored and shown to people; may jump."""
    return time.time_ns() // 1_000_000


def wall_us() -> int:
    """The same in microseconds."""
    return time.time_ns() // 1_000
