"""Room: core/access. Paths that stand for all that a filter takes; why they are enough is in
core/access/grants.py.

    filled(levels)         the shortest that it takes, with a level that nobody named for each wildcard
    unified(levels, at)    the shortest that it takes at or below a row's path, if it takes any

A filter here is the levels of a path: `/topics/orders/+/#` is ("topics", "orders", "+", "#").
"""

from moorline.core.access.row import TOPICS, UNNAMED, Levels


def is_filter(levels: Levels) -> bool:
    # `#` only at the end, where a checked filter has it; a path may have a level of that name elsewhere.
    return "+" in levels or levels[-1:] == ("#",)


def named_part(levels: Levels) -> Levels:
    """What all that the filter takes have in common: a row at or above it decides for every one of them."""
    known = 0
    while known < len(levels) and levels[known] not in ("+", "#"):
        known += 1
    return levels[:known]


def filled(levels: Levels) -> Levels:
    """The shortest path that a filter takes, whose wildcards nobody named."""
    # `#` takes its parent too (MQTT 5, 4.7.1.2), so that nothing stands for it in the shortest.
    known = levels[:-1] if levels[-1] == "#" else levels
    return tuple(UNNAMED if level == "+" else level for level in known)


def unified(levels: Levels, at: Levels) -> Levels | None:
    """The shortest path at or below `at` that the filter takes; None if there is none."""
    has_rest = levels[-1] == "#"
    known = levels[:-1] if has_rest else levels
    if len(at) > len(known) and not has_rest:
        return None
    for place, level in enumerate(at):
        wanted = known[place] if place < len(known) else "#"
        if wanted in ("+", "#"):
            # MQTT 5, 4.7.2: at its beginning a wildcard takes no `$…`.
            if place == 1 and level.startswith("$") and at[0] == TOPICS:
                return None
        elif wanted != level:
            return None
    # What is left of the filter below `at` is filled as ever.
    return at + filled((*known[len(at) :], "#")) if len(at) < len(known) else at
