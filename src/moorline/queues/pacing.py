"""Room: queues. How fast senders may fill the log while a checkpoint empties it.

The log has room for so many bytes, and a checkpoint knows how far it is. So the room that is left is shared
out over the time that it will still take:

    bytes a second = room left / time left, and never less than LOG_PACE_BYTES_PER_S_MIN

Whoever has sent more than that waits, first come first served, until time has made up for it. Where the disk
is fast enough nobody ever waits; where it is not, senders go at the pace of the disk, and none is stopped.
"""

from moorline.limits import LOG_PACE_AHEAD_MS, LOG_PACE_BYTES_PER_S_MIN, LOG_PACE_OWED_MS


class Pace:
    """Bytes that senders may still add; a machine without a clock."""

    def __init__(self, log_bytes_max: int) -> None:
        self._log_bytes_max = log_bytes_max
        self._credit = 0.0
        self._log_bytes = 0
        self._at_ms = 0

    def begin(self, log_bytes: int, now_ms: int) -> None:
        """A checkpoint begins: so much is in the log."""
        self._credit = 0.0
        self._log_bytes = log_bytes
        self._at_ms = now_ms

    def look(self, log_bytes: int, done: float, began_ms: int, now_ms: int) -> bool:
        """Whether senders must wait. `done` is the part of the checkpoint that is behind us, 0 to 1."""
        elapsed_ms = now_ms - began_ms
        left_ms = elapsed_ms * (1 - done) / done if done > 0 else 0.0
        left_ms = max(left_ms, float(LOG_PACE_AHEAD_MS))
        room = max(0, self._log_bytes_max - log_bytes)
        per_ms = max(room / left_ms, LOG_PACE_BYTES_PER_S_MIN / 1_000)
        self._credit += per_ms * (now_ms - self._at_ms) - (log_bytes - self._log_bytes)
        # Neither hoarded in quiet times, nor owed for long where a crowd has sent at once.
        self._credit = min(self._credit, per_ms * LOG_PACE_AHEAD_MS)
        self._credit = max(self._credit, -per_ms * LOG_PACE_OWED_MS)
        self._log_bytes, self._at_ms = log_bytes, now_ms
        return self._credit < 0
