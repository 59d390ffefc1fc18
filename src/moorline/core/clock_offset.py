"""Room: core. How far our wall clock is ahead of another one that was asked what it shows.

       before_us ──────── asked ────────► told_us
                                             │
        after_us ◄─────── heard ─────────────┘

The other clock was read somewhere between the two looks at ours, and the middle is the best guess: it is
wrong by half of the time between them at most. So a question that took long says nothing, and neither does
one during which our own clock was set.
"""

from moorline.limits import CLOCK_QUESTION_MS_MAX

_US_PER_MS = 1_000


def ahead_ms(before_us: int, told_us: int, after_us: int) -> int | None:
    """Milliseconds that ours is ahead, below 0 behind; None where the question cannot tell."""
    took_us = after_us - before_us
    if not 0 <= took_us <= CLOCK_QUESTION_MS_MAX * _US_PER_MS:
        return None
    return round(((before_us + after_us) / 2 - told_us) / _US_PER_MS)
