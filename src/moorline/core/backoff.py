"""Room: core. How long whoever was cut waits before it comes back: by chance, longer with each try.

All of the pause is chance: who were cut together must not return together.
"""


def pause_ms(tries: int, chance: float, *, first_ms: int, most_ms: int) -> int:
    """Before the try behind so many in a row that led to nothing; `chance` is 0 to 1."""
    bound = min(first_ms << min(tries, 20), most_ms)
    return int(max(bound, first_ms) * chance)
