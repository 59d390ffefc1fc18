"""Room: net. The time as a node uses it: one for what expires, one for what is stored; core/wall_clock.py."""

from moorline.core.effects import Effect
from moorline.core.wall_clock import Bounds, Confirmed, Looked, Remembered, WallClock
from moorline.limits import CLOCK_CONFIRM_MS, CLOCK_JUMP_MS_MAX, CLOCK_STOP_MS_MAX
from moorline.net.clock import boot_ms, wall_ms, wall_us


class TrustedClock:
    """The machine, read with the real clocks. Cheap to ask, from the loop and from threads."""

    def __init__(self, remembered: Remembered | None = None, stopped_ms: int | None = None) -> None:
        bounds = Bounds(CLOCK_JUMP_MS_MAX, CLOCK_CONFIRM_MS, CLOCK_STOP_MS_MAX)
        self.machine = WallClock(bounds, wall_ms(), boot_ms(), remembered, stopped_ms)

    def look(self) -> list[Effect]:
        return self.machine.handle(Looked(wall_ms()), boot_ms())

    def confirm(self) -> list[Effect]:
        return self.machine.handle(Confirmed(wall_ms()), boot_ms())

    @property
    def is_held(self) -> bool:
        return self.machine.is_held

    def remembered(self) -> Remembered:
        return self.machine.remembered(wall_ms(), boot_ms())

    def expiry_ms(self) -> int:
        """What is older than its time by this clock may go."""
        return self.machine.expiry_ms(wall_ms(), boot_ms())

    def expiry_us(self) -> int:
        return self.machine.expiry_ms(wall_us() // 1_000, boot_ms()) * 1_000

    def expiry_s(self) -> int:
        return self.expiry_ms() // 1_000

    def stamp_ms(self) -> int:
        """The time of what is stored now."""
        return self.machine.stamp_ms(wall_ms(), boot_ms())

    def stamp_us(self) -> int:
        """The same in microseconds, which only the wall clock has."""
        now_us = wall_us()
        time_ms = self.machine.stamp_ms(now_us // 1_000, boot_ms())
        return now_us if time_ms == now_us // 1_000 else time_ms * 1_000

    def start_us(self) -> int:
        """The time from which on somebody wants messages."""
        now_us = wall_us()
        time_ms = self.machine.start_ms(now_us // 1_000, boot_ms())
        return now_us if time_ms == now_us // 1_000 else time_ms * 1_000

    def stamp_s(self) -> int:
        return self.stamp_ms() // 1_000
