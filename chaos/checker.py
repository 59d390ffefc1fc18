"""The checker: from a history of answered calls to broken promises. It is pure, and knows no cluster.

kind          what it means
lost          answered, never delivered, and no node said that it is lost
doubled       it came again although its acknowledgement was answered, or stored; or it is stored twice
out of order  a first delivery came behind a later one
ghost         it was refused, or never sent, and came all the same; or a failed call took effect later
altered       the body is not what was sent
false proof   two sides were said to be equal and were not
mishap        a node ended by itself, or logged a mistake of its own

docs/reliability.md says what is promised, and what may come again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

import msgspec

from chaos.history import (
    Acked,
    Damaged,
    Delivered,
    Done,
    Got,
    GroupSeen,
    History,
    LostRange,
    Mishap,
    Operated,
    Outcome,
    Proof,
    Published,
    Sent,
    Stored,
)

KINDS = ("lost", "doubled", "out of order", "ghost", "altered", "false proof", "mishap")


class Violation(msgspec.Struct, frozen=True):
    kind: str
    text: str


class Counts(msgspec.Struct):
    """What else a summary tells."""

    again: int = 0
    """Deliveries that came again as promised: a reader went away before its acknowledgement."""
    reported: int = 0
    """Answered messages that are gone after damage, and of which a node said so."""


class Verdict(msgspec.Struct):
    violations: list[Violation] = []
    counts: Counts = msgspec.field(default_factory=Counts)

    def of_kind(self, kind: str) -> int:
        return sum(one.kind == kind for one in self.violations)


def check(history: History) -> Verdict:
    """All of it. A reader that is not at its end yet is missing messages: settle first."""
    verdict = Verdict()
    for rule in RULES:
        verdict.violations += rule(history, verdict.counts)
    return verdict


# --- queues ---------------------------------------------------------------------------------------


def _queues_lose_nothing(history: History, counts: Counts) -> Iterator[Violation]:
    for queue, waiting in history.unread.items():
        told = history.lost_of_queues[queue]
        counts.reported += min(told, len(waiting))
        if len(waiting) > told:
            names = ", ".join(sorted(waiting)[:3])
            yield Violation(
                "lost", f"{len(waiting)} of queue {queue}, {told} are reported: {names}"
            )


def _queues_keep_their_order(history: History, _: Counts) -> Iterator[Violation]:
    first_of: dict[str, int] = defaultdict(int)
    last_in: dict[tuple[str, int], int] = defaultdict(int)
    seen: set[tuple[str, int]] = set()
    for event in history.events:
        if not isinstance(event, Delivered):
            continue
        queue, number = event.queue, event.message
        if number <= last_in[queue, event.session]:
            yield Violation(
                "out of order",
                f"queue {queue}: {event.name} ({number}) behind {last_in[queue, event.session]}",
            )
        last_in[queue, event.session] = number
        if (queue, number) not in seen:
            seen.add((queue, number))
            if number < first_of[queue]:
                yield Violation(
                    "out of order", f"queue {queue}: {event.name} came first behind a later one"
                )
            first_of[queue] = max(number, first_of[queue])


def _queues_double_nothing(history: History, counts: Counts) -> Iterator[Violation]:
    node_of = {event.queue: event.node for event in history.events if isinstance(event, Sent)}
    acked: dict[str, set[tuple[str, int]]] = defaultdict(set)
    seen: set[tuple[str, int]] = set()
    number_of: dict[str, int] = {}
    for event in history.events:
        match event:
            case Acked(queue, message, Outcome.ANSWERED):
                acked[node_of.get(queue, "")].add((queue, message))
            case Damaged(node):
                acked[node].clear()
            case Delivered(queue, _, message, name):
                if (queue, message) in acked[node_of.get(queue, "")]:
                    yield Violation("doubled", f"queue {queue}: {name} came after its answered ack")
                elif (queue, message) in seen:
                    counts.again += 1
                seen.add((queue, message))
                if number_of.setdefault(name, message) != message:
                    yield Violation("doubled", f"queue {queue}: {name} is stored twice")
            case _:
                pass


def _only_what_was_sent_comes(history: History, _: Counts) -> Iterator[Violation]:
    outcomes: dict[str, set[Outcome]] = defaultdict(set)
    for event in history.events:
        if isinstance(event, Sent | Published):
            outcomes[event.name].add(event.outcome)
    told: set[str] = set()
    for event in history.events:
        if not isinstance(event, Delivered | Got) or event.name in told:
            continue
        if event.name.startswith("!"):
            told.add(event.name)
            yield Violation("altered", f"{event.name[1:]} has another body")
        elif not outcomes[event.name] - {Outcome.REFUSED}:
            told.add(event.name)
            what = "was refused" if outcomes[event.name] else "was never sent"
            yield Violation("ghost", f"{event.name} {what} and came")


# --- topics ---------------------------------------------------------------------------------------


def _readers_miss_nothing(history: History, counts: Counts) -> Iterator[Violation]:
    published = {
        event.name: event
        for event in history.events
        if isinstance(event, Published) and event.outcome is Outcome.ANSWERED
    }
    counts.reported += sum(history.is_reported(event) for event in published.values())
    for reader in history.readers.values():
        missing = history.missing(reader.name)
        if missing:
            where = [f"{n} ({_place(published[n])})" for n in sorted(missing)[:3]]
            yield Violation("lost", f"{len(missing)} by {reader.name}: {', '.join(where)}")


def _place(published: Published) -> str:
    return f"{published.node}/{published.shard} at {published.offset}"


def _streams_store_once(history: History, _: Counts) -> Iterator[Violation]:
    place_of: dict[str, tuple[str, int, int]] = {}
    name_at: dict[tuple[str, int, int], str] = {}
    told: set[str] = set()
    for event in history.events:
        if not isinstance(event, Got | Published) or event.name in told:
            continue
        if isinstance(event, Published) and not event.is_exact:
            continue
        place = (event.node, event.shard, event.offset)
        if place_of.setdefault(event.name, place) != place:
            told.add(event.name)
            text = f"{event.name} is at {place_of[event.name]} and at {place}"
            yield Violation("doubled", text)
        elif name_at.setdefault(place, event.name) != event.name:
            told.add(event.name)
            yield Violation("doubled", f"{place} is of {name_at[place]} and of {event.name}")


def _keys_keep_their_order(history: History, _: Counts) -> Iterator[Violation]:
    """What one publisher published to one key, in its order, lies in that order."""
    offset_of = {event.name: event.offset for event in history.events if isinstance(event, Got)}
    last: dict[tuple[str, str], tuple[int, str]] = {}
    seen: set[str] = set()
    for event in history.events:
        if not isinstance(event, Published) or event.outcome is not Outcome.ANSWERED:
            continue
        if event.name not in offset_of or event.name in seen:
            continue
        seen.add(event.name)
        offset = offset_of[event.name]
        before = last.get((event.node, event.key), (-1, ""))
        if offset <= before[0]:
            yield Violation("out of order", f"{event.name} is stored before {before[1]}")
        last[event.node, event.key] = (offset, event.name)


def _readers_keep_their_order(history: History, _: Counts) -> Iterator[Violation]:
    last: dict[tuple[str, str, int], int] = defaultdict(lambda: -1)
    seen: set[tuple[str, str, int, int]] = set()
    for event in history.events:
        if not isinstance(event, Got) or not history.readers[event.reader].is_ordered:
            continue
        line = (event.reader, event.node, event.shard)
        place = (*line, event.offset)
        if place in seen:
            continue
        seen.add(place)
        if event.offset < last[line]:
            text = f"{event.reader}: {event.node}/{event.shard} at {event.offset} ({event.name}) "
            yield Violation("out of order", f"{text}came first behind {last[line]}")
        last[line] = max(last[line], event.offset)


def _readers_get_nothing_again(history: History, counts: Counts) -> Iterator[Violation]:
    seen: set[tuple[str, str, int, int]] = set()
    done: set[tuple[str, str, int, int]] = set()
    stored: set[tuple[str, str, int, int]] = set()
    for event in history.events:
        match event:
            case Done(reader, node, shard, offset):
                done.add((reader, node, shard, offset))
            case Stored():
                stored |= done
                done.clear()
            case Got(reader, node, shard, offset, _, name):
                place = (reader, node, shard, offset)
                if place in stored:
                    yield Violation("doubled", f"{reader} got {name} again, which was stored")
                elif place in seen and history.readers[reader].is_exact:
                    yield Violation("doubled", f"{reader} has {name} twice")
                elif place in seen:
                    counts.again += 1
                seen.add(place)
            case _:
                pass


def _operators_get_what_they_were_answered(history: History, _: Counts) -> Iterator[Violation]:
    """A call that failed is never done, neither before its answer nor later."""
    possible: dict[str, set[bool]] = defaultdict(lambda: {False})
    for event in history.events:
        match event:
            case Operated(group, act, Outcome.ANSWERED):
                possible[group] = {act == "create"}
            case Operated(group, act, Outcome.UNKNOWN):
                possible[group] = possible[group] | {act == "create"}
            case GroupSeen(group, exists):
                if exists not in possible[group]:
                    state = "is there again" if exists else "is gone"
                    yield Violation("ghost", f"{group} {state}, against the last answer")
                possible[group] = {exists}
            case _:
                pass


# --- proofs, and mistakes of a node's own ---------------------------------------------------------


def _proofs_are_true(history: History, _: Counts) -> Iterator[Violation]:
    for event in history.events:
        if isinstance(event, Proof) and event.said_equal and not event.is_equal:
            yield Violation("false proof", f"{event.what}: said to be equal, and is not")


def _nodes_behave(history: History, _: Counts) -> Iterator[Violation]:
    for event in history.events:
        if isinstance(event, Mishap):
            yield Violation("mishap", event.what)


def reported_messages(history: History) -> int:
    """Messages of streams that nodes said are lost."""
    places: set[tuple[str, int, int]] = set()
    for event in history.events:
        if isinstance(event, LostRange):
            places |= {(event.node, event.shard, n) for n in range(event.first, event.upto)}
    return len(places)


Rule = Callable[[History, Counts], Iterator[Violation]]
RULES: tuple[Rule, ...] = (
    _queues_lose_nothing,
    _queues_keep_their_order,
    _queues_double_nothing,
    _only_what_was_sent_comes,
    _readers_miss_nothing,
    _streams_store_once,
    _keys_keep_their_order,
    _readers_keep_their_order,
    _readers_get_nothing_again,
    _operators_get_what_they_were_answered,
    _proofs_are_true,
    _nodes_behave,
)
