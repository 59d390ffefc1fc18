"""Room: core. Topics by their levels: what matches a filter is found without looking at the others.

    tree.put("orders/eu/1", entry)
    for found in tree.walk("orders/+/1"): …      None where a step found nothing

A walk gives one value, or None, for each place of the tree that it looks at, so that it can be interrupted
anywhere. What is put in meanwhile may be found or not; what is there all the time is found once.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

Value = TypeVar("Value")


class _Place(Generic[Value]):
    __slots__ = ("below", "value")

    def __init__(self) -> None:
        self.value: Value | None = None
        self.below: dict[str, _Place[Value]] | None = None


class TopicTree(Generic[Value]):
    def __init__(self) -> None:
        self._root: _Place[Value] = _Place()
        self._hidden: _Place[Value] = _Place()
        """Topics that begin with `$`: no wildcard at the beginning of a filter takes them (MQTT 5, 4.7.2)."""

    def put(self, topic: str, value: Value) -> None:
        place = self._root_of(topic)
        for level in topic.split("/"):
            if place.below is None:
                place.below = {}
            found = place.below.get(level)
            if found is None:
                found = place.below[level] = _Place()
            place = found
        place.value = value

    def walk(self, text: str) -> Iterator[Value | None]:
        """What a checked filter takes: the same topics as `core.topic.matches`."""
        levels = text.split("/")
        stack = [(0, iter([self._root_of(text)]))]
        while stack:
            depth, places = stack[-1]
            place = next(places, None)
            if place is None:
                stack.pop()
                continue
            if depth == len(levels):
                yield place.value
                continue
            level = levels[depth]
            # `a/#` takes `a` too (MQTT 5, 4.7.1.2).
            yield place.value if level == "#" else None
            if place.below is None:
                continue
            if level not in ("+", "#"):
                found = place.below.get(level)
                below = [found] if found is not None else []
            else:
                below = list(place.below.values())
            stack.append((depth if level == "#" else depth + 1, iter(below)))

    def _root_of(self, text: str) -> _Place[Value]:
        return self._hidden if text.startswith("$") else self._root
