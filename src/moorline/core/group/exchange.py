"""Room: core/group. Which streams members exchange, so that none carries far more than the others.

How many streams each has is decided in core/group/assign.py. Here it is only which ones: the member that
carries most gives one to the member that carries least and gets a lighter one for it, or none where it has
one more. So the numbers stay within one of each other, whatever the loads are.

What holds at rest, when no exchange is found (X1), for the member that carries most:

    it carries no more than 4/3 of the mean,
    or it carries more than the least one by 9/8 of its own heaviest stream at most

The second is what streams allow that are not divided: who has the one hot stream has it. Why it holds: put
the streams of both side by side, the heaviest first, a missing one being nothing. Of a pair that differs by
d, of a difference of D in all, an exchange takes min(d, D - d) off the one that carries more. Where that is
too little because each d is, their sum, which is D at least, is no more than 2/7 of the mean; where D - d is
too little, D is hardly more than that one stream.

X2: each exchange makes what the two carry more alike, by more than it costs. So with loads that stay there is
an end of it.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")

BEGINS_AT = 4 / 3
"""Of the mean: nobody is helped who carries less."""
COST = 1 / 16
"""Of what a stream carries: while it goes from one to the other nobody reads it, and what the one had read
ahead the other reads again."""
LEAST = 1 / 8
"""Of what a stream carries on average: less is not worth a move."""


class Exchange(NamedTuple, Generic[Item]):
    """`giver` carries more: it gives a stream, and gets a lighter one, or none."""

    giver: str
    gives: Item
    taker: str
    gets: Item | None


def exchanges(
    held: Mapping[str, Sequence[Item]],
    loads: Mapping[Item, float],
    resting: Collection[Item] = (),
) -> list[Exchange[Item]]:
    """One at most of each member: those that carry most with those that carry least. What has no load known
    carries nothing, and what is resting stays where it is."""
    if len(held) < 2:
        return []
    carried = {member: sum(loads.get(item, 0) for item in items) for member, items in held.items()}
    mean = sum(carried.values()) / len(held)
    # By name where they are equal: two Leaders in turn come to the same.
    ranks = sorted(carried, key=lambda member: (-carried[member], member))
    most_streams = max(len(items) for items in held.values())
    found: list[Exchange[Item]] = []
    for giver, taker in zip(ranks, reversed(ranks[(len(ranks) + 1) // 2 :]), strict=False):
        if carried[giver] <= BEGINS_AT * mean:
            break
        difference = carried[giver] - carried[taker]
        gives = [item for item in held[giver] if item not in resting]
        gets: list[Item | None] = [item for item in held[taker] if item not in resting]
        if len(held[giver]) > len(held[taker]):
            gets.append(None)
        best = _best(gives, gets, loads, difference, LEAST * mean / most_streams)
        if best is not None:
            found.append(Exchange(giver, best[0], taker, best[1]))
    return found


def _best(
    gives: Sequence[Item],
    gets: Sequence[Item | None],
    loads: Mapping[Item, float],
    difference: float,
    gain_min: float,
) -> tuple[Item, Item | None] | None:
    """The exchange that gains most above its cost."""

    def load(item: Item | None) -> float:
        return 0 if item is None else loads.get(item, 0)

    light = sorted(gets, key=load)
    weights = [load(item) for item in light]
    best: tuple[Item, Item | None] | None = None
    most = 0.0
    for item in gives:
        # The best partner makes the two alike. One on either side of it is looked at: any other gains less
        # by as much as it is further off, and costs less by a sixteenth of that.
        at = bisect_left(weights, load(item) - difference / 2)
        for place in range(max(0, at - 1), min(at + 1, len(light))):
            moved = load(item) - weights[place]
            gain = min(moved, difference - moved)
            net = gain - COST * (load(item) + weights[place])
            if gain >= gain_min and net > most:
                best, most = (item, light[place]), net
    return best
