"""Room: net. The only clock. Machines get the time as a number; shells read it here."""

import time
from pathlib import Path

# macOS counts the time of a suspended machine in its plain monotonic clock.
_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def monotonic_ms() -> int:
    """For timers and ages within one process; never goes back."""
    return time.monotonic_ns() // 1_000_000


def monotonic_us() -> int:
    """As `monotonic_ms`, finer."""
    return time.monotonic_ns() // 1_000


def wall_ms() -> int:
    """Milliseconds since 1970, for what is stored and shown to people; may jump."""
    return time.time_ns() // 1_000_000


def wall_us() -> int:
    """The same in microseconds."""
    return time.time_ns() // 1_000


def boot_ms() -> int:
    """Since the machine began, the time included in which it slept: to compare the wall clock with, and for
    leases that others count too."""
    return time.clock_gettime_ns(_BOOT) // 1_000_000


def boot_id() -> str:
    """The same while the machine is up, another after each restart of it; empty where nobody knows."""
    try:
        return BOOT_ID.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
