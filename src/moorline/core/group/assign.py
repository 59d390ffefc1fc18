"""Room: core/group. Who gets which stream: balanced to within one, and with as few moves as can be.

    plan = assignment({"a": ["s1", "s2", "s3"], "b": []}, free=["s4"], moving=0)

A stream is never handed over in one step: what is taken from one is granted to another when it has come
back. Run on its own result the plan is empty.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")


class Plan(NamedTuple, Generic[Item]):
    grants: list[tuple[Item, str]]
    revokes: list[tuple[Item, str]]


def shares(counts: Mapping[str, int], total: int) -> dict[str, int]:
    """How many each member should have: the one too many stays with those that have most already."""
    if not counts:
        return {}
    base, extra = divmod(total, len(counts))
    # By name where the counts are equal: which of them it is does not matter, that it stays the same does.
    by_count = sorted(counts, key=lambda member: (-counts[member], member))
    return {member: base + (rank < extra) for rank, member in enumerate(by_count)}


def assignment(
    held: Mapping[str, Sequence[Item]],
    free: Sequence[Item],
    moving: int = 0,
    before: Mapping[Item, str] | None = None,
) -> Plan[Item]:
    """`moving` streams are on their way back and count in the shares; `before` are earlier owners."""
    counts = {member: len(items) for member, items in held.items()}
    total = sum(counts.values()) + len(free) + moving
    # One whose stream has ended, and whose next one begins, has as many as it had: else the one too many
    # would go to another, and the stream with it.
    had = Counter((before or {}).get(item, "") for item in free)
    target = shares({member: count + had[member] for member, count in counts.items()}, total)
    plan: Plan[Item] = Plan([], [])
    # Sorted, everywhere below: whoever leads next must come to the same plan, or it would move streams for
    # nothing.
    for member in sorted(held):
        # Those at the end of its list go. The list is in the order of shards, so a member that gives up
        # some keeps the same ones each time.
        for item in held[member][target[member] :]:
            plan.revokes.append((item, member))
    room = {member: target[member] - counts[member] for member in sorted(held)}
    rest: list[Item] = []
    # Earlier owners first, before the emptiest can take it from them: it was there, and what it had read
    # ahead is there still.
    for item in free:
        owner = (before or {}).get(item)
        if owner is not None and room.get(owner, 0) > 0:
            room[owner] -= 1
            plan.grants.append((item, owner))
        else:
            rest.append(item)
    # The emptiest first, one each in turn: a member that joins gets something at once.
    for item in rest:
        if not room:
            break
        emptiest = max(room, key=lambda name: room[name])
        if room[emptiest] <= 0:
            # All have their share: the rest is meant for those whose streams are on their way back.
            break
        room[emptiest] -= 1
        plan.grants.append((item, emptiest))
    return plan
