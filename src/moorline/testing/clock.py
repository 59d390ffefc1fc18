"""Room: testing. A clock that moves only by hand."""


class HandClock:
    """Two readings, as every machine has: one that only goes forward, and the one on the wall."""

    def __init__(self, now_ms: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._wall_ms = wall_ms

    def now_ms(self) -> int:
        """Monotonic: for timers and leases."""
        return self._now_ms

    def wall_ms(self) -> int:
        """Since 1970, as the operator set it: for what people read. It may jump."""
        return self._wall_ms

    def advance(self, ms: int) -> None:
        """Time passes, on both readings."""
        assert ms >= 0, "time never goes back by itself; jump moves the wall clock"
        self._now_ms += ms
        self._wall_ms += ms

    def jump(self, ms: int) -> None:
        """Somebody sets the wall clock, forward or back; the monotonic one does not notice."""
        self._wall_ms += ms
