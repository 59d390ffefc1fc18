"""Room: core. Filters by their levels: those that take a topic are found without looking at the others.

    tree.put("orders/+/#", value)
    tree.matching("orders/eu/1")        the values of all filters that take it
    index.put("orders/+/#", reader)     a filter may be many readers'

`core.topic_tree` is the other way round: topics are kept there, and found by a filter.

Invariants, looked at by `check`:

    T1  every branch leads to a value
    T2  what is remembered of a topic is what its filters say
"""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from moorline.limits import FILTER_INDEX_KNOWN_MAX, FILTER_INDEX_READERS_KNOWN_MAX

Value = TypeVar("Value")
Reader = TypeVar("Reader")


class _Branch(Generic[Value]):
    """One level; `+` and `#` are levels like others."""

    __slots__ = ("below", "value")

    def __init__(self) -> None:
        self.below: dict[str, _Branch[Value]] = {}
        self.value: Value | None = None


class FilterTree(Generic[Value]):
    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Branch[Value] = _Branch()

    def get(self, text: str) -> Value | None:
        branch: _Branch[Value] | None = self._root
        for level in text.split("/"):
            branch = branch.below.get(level) if branch is not None else None
        return branch.value if branch is not None else None

    def put(self, text: str, value: Value) -> None:
        branch = self._root
        for level in text.split("/"):
            found = branch.below.get(level)
            if found is None:
                found = branch.below[level] = _Branch()
            branch = found
        branch.value = value

    def remove(self, text: str) -> None:
        """One that is there."""
        path = [self._root]
        levels = text.split("/")
        for level in levels:
            path.append(path[-1].below[level])
        path[-1].value = None
        # From the leaf up: what leads nowhere goes.
        for parent, level, branch in zip(path[-2::-1], levels[::-1], path[:0:-1], strict=True):
            if branch.value is not None or branch.below:
                break
            del parent.below[level]

    def matching(self, topic: str) -> list[Value]:
        levels = topic.split("/")
        found: list[Value] = []
        # No recursion: a topic may have hundreds of levels.
        stack = [(0, self._root)]
        while stack:
            depth, branch = stack.pop()
            # 4.7.2: a wildcard at the beginning does not take `$…`.
            is_hidden = not depth and topic.startswith("$")
            rest = branch.below.get("#")
            if rest is not None and rest.value is not None and not is_hidden:
                found.append(rest.value)
            if depth == len(levels):
                if branch.value is not None:
                    found.append(branch.value)
                continue
            for level in (levels[depth],) if is_hidden else (levels[depth], "+"):
                below = branch.below.get(level)
                if below is not None:
                    stack.append((depth + 1, below))
        return found

    def items(self) -> Iterator[tuple[str, Value]]:
        stack = [("", self._root)]
        while stack:
            text, branch = stack.pop()
            if branch.value is not None:
                yield text[1:], branch.value
            stack += [(f"{text}/{level}", below) for level, below in branch.below.items()]

    def check(self) -> None:
        """Asserts the invariant."""
        stack = list(self._root.below.items())
        while stack:
            level, branch = stack.pop()
            assert branch.value is not None or branch.below, f"T1: {level!r} leads nowhere"
            stack += branch.below.items()


class FilterIndex(Generic[Reader]):
    """Who reads which filters: thousands of readers, and mostly few for a topic."""

    __slots__ = ("_known", "_tree")

    def __init__(self) -> None:
        # A dict for its order: whoever came first is found first.
        self._tree: FilterTree[dict[Reader, None]] = FilterTree()
        self._known: dict[str, tuple[Reader, ...]] = {}

    def put(self, text: str, reader: Reader) -> None:
        readers = self._tree.get(text)
        if readers is None:
            self._tree.put(text, {reader: None})
        else:
            readers[reader] = None
        self._known.clear()

    def remove(self, text: str, reader: Reader) -> None:
        readers = self._tree.get(text)
        if readers is None or reader not in readers:
            return
        del readers[reader]
        if not readers:
            self._tree.remove(text)
        self._known.clear()

    def matching(self, topic: str) -> tuple[Reader, ...]:
        """Each once, however many of its filters take the topic."""
        known = self._known.get(topic)
        if known is None:
            if len(self._known) == FILTER_INDEX_KNOWN_MAX:
                self._known.clear()
            found: dict[Reader, None] = {}
            for readers in self._tree.matching(topic):
                found |= readers
            known = tuple(found)
            # Of many readers to look them up is little beside what each of them costs.
            if len(known) <= FILTER_INDEX_READERS_KNOWN_MAX:
                self._known[topic] = known
        return known

    def check(self, matches: Callable[[str, str], bool]) -> None:
        """Asserts the invariants; `matches` is `core.topic.matches`."""
        self._tree.check()
        for topic, known in self._known.items():
            wanted = {
                reader
                for text, readers in self._tree.items()
                if matches(text, topic)
                for reader in readers
            }
            assert set(known) == wanted, f"T2: {topic} has {known}"
