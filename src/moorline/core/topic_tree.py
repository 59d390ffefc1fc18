"""Room: core. Topics by their levels: what matches a filter is found without looking at the others.

    tree.put("orders/eu/1", entry)
    for found in tree.walk("orders/+/1"): …      None where a step found nothing

A walk gives one value, or None, for each branch of the tree that it looks at, so that it can be interrupted
anywhere. What is put in meanwhile may be found or not; what is there all the time is found once.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

Value = TypeVar("Value")


class _Branch(Generic[Value]):
    __slots__ = ("below", "value")

    def __init__(self) -> None:
        self.value: Value | None = None
        self.below: dict[str, _Branch[Value]] | None = None


class TopicTree(Generic[Value]):
    def __init__(self) -> None:
        self._root: _Branch[Value] = _Branch()
        self._hidden: _Branch[Value] = _Branch()
        """Topics that begin with `$`: no wildcard at the beginning of a filter takes them (MQTT 5, 4.7.2)."""

    def put(self, topic: str, value: Value) -> None:
        branch = self._root_of(topic)
        for level in topic.split("/"):
            if branch.below is None:
                branch.below = {}
            found = branch.below.get(level)
            if found is None:
                found = branch.below[level] = _Branch()
            branch = found
        branch.value = value

    def walk(self, text: str) -> Iterator[Value | None]:
        """What a checked filter takes: the same topics as `core.topic.matches`."""
        levels = text.split("/")
        # A stack of our own, and not recursion: a walk that is interrupted is kept, and a topic may have as
        # many levels as it has characters.
        stack = [(0, iter([self._root_of(text)]))]
        while stack:
            depth, siblings = stack[-1]
            branch = next(siblings, None)
            if branch is None:
                stack.pop()
                continue
            if depth == len(levels):
                yield branch.value
                continue
            level = levels[depth]
            # `a/#` takes `a` too (MQTT 5, 4.7.1.2).
            yield branch.value if level == "#" else None
            if branch.below is None:
                continue
            if level not in ("+", "#"):
                found = branch.below.get(level)
                below = [found] if found is not None else []
            else:
                # A copy: what is put in while the walk stands still must not disturb it.
                below = list(branch.below.values())
            # `#` is never used up: it takes all that is below.
            stack.append((depth if level == "#" else depth + 1, iter(below)))

    def _root_of(self, text: str) -> _Branch[Value]:
        return self._hidden if text.startswith("$") else self._root
