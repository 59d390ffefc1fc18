"""Room: client. What a subscriber holds: handles by their paths, and where each path is subscribed.

There is one subscription for a path, however many handles share it, and whoever wanted it first (S5 of the
design). Plain calls; what is said to publishers is the subscriber's.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from moorline.client.values.link import PublisherLink
from moorline.client.values.subscription import ValueSubscription

Heard = Callable[[str, Any, bytes, bool], None]
"""Hears (path, value, instance of the publisher, whether it is the first one there) as they come."""


class Handles:
    """All of one subscriber."""

    def __init__(self, heard: Heard | None = None) -> None:
        self._heard = heard
        self._at: dict[str, tuple[PublisherLink, int]] = {}
        """Where a path is subscribed, and by which id."""
        self._ids: dict[PublisherLink, dict[int, str]] = {}
        """The same the other way round."""
        self._handles: dict[str, list[ValueSubscription]] = {}
        self._awaited: Counter[str] = Counter()
        """Paths of calls that will make a handle when they have their answer."""
        self._read: set[str] = set()
        """Paths of which somebody reads the events: for all others an update costs nothing here."""

    def __contains__(self, path: str) -> bool:
        """Whether it is subscribed."""
        return path in self._at

    def place_of(self, path: str) -> tuple[PublisherLink, int]:
        return self._at[path]

    def of(self, path: str) -> list[ValueSubscription]:
        """A copy: who hears something may drop its handle at that."""
        return list(self._handles.get(path, ()))

    def everybody(self) -> list[ValueSubscription]:
        return [handle for handles in self._handles.values() for handle in handles]

    def is_kept(self, path: str) -> bool:
        """Whether a durable subscription wants it."""
        return any(handle.is_durable for handle in self._handles.get(path, ()))

    def is_wanted(self, path: str) -> bool:
        """Whether somebody has it, or waits for it."""
        return path in self._handles or path in self._awaited

    def has(self, link: PublisherLink, one: int) -> bool:
        return one in self._ids.get(link, ())

    def is_idle(self, link: PublisherLink) -> bool:
        """Whether nothing is subscribed there."""
        return not self._ids.get(link)

    # --- handles ----------------------------------------------------------------------------------

    def add(self, handle: ValueSubscription) -> None:
        self._handles.setdefault(handle.path, []).append(handle)
        if handle.path in self._at:
            handle.came_alive(*self._at[handle.path])

    def remove(self, handle: ValueSubscription) -> None:
        handles = self._handles.get(handle.path, [])
        if handle in handles:
            handles.remove(handle)
        if not any(one.is_read for one in handles):
            self._read.discard(handle.path)
        if not handles:
            self._handles.pop(handle.path, None)

    def reading(self, handle: ValueSubscription) -> None:
        self._read.add(handle.path)

    @contextmanager
    def awaited(self, paths: Sequence[str]) -> Iterator[None]:
        """Meanwhile they are wanted, though nobody has a handle yet: the last other one does not end them."""
        self._awaited.update(paths)
        try:
            yield
        finally:
            self._awaited.subtract(paths)
            for path in paths:
                if not self._awaited[path]:
                    del self._awaited[path]

    # --- subscriptions ----------------------------------------------------------------------------

    def arrived(self, path: str, link: PublisherLink, one: int) -> bool:
        """It is subscribed there. False: it is already, and elsewhere: one of two is enough."""
        if path in self._at:
            return self._at[path] == (link, one)
        self._at[path] = (link, one)
        self._ids.setdefault(link, {})[one] = path
        for handle in self.of(path):
            if not handle.is_alive:
                handle.came_alive(link, one)
        if self._heard is not None:
            self._heard(path, link.latest.get(one), link.instance, True)
        return True

    def leave(self, path: str) -> tuple[PublisherLink, int] | None:
        """It is not to be subscribed any more; where it was."""
        found = self._at.pop(path, None)
        if found is not None:
            link, one = found
            self._forget(link, [one])
        return found

    def ended(self, link: PublisherLink, ids: Sequence[int]) -> list[str]:
        """The publisher ended these; their paths."""
        gone = self._forget(link, ids)
        for path in gone:
            del self._at[path]
        return gone

    def lost(self, link: PublisherLink) -> list[str]:
        """It is over; which paths were there."""
        return self.ended(link, list(self._ids.get(link, ())))

    def _forget(self, link: PublisherLink, ids: Sequence[int]) -> list[str]:
        known = self._ids.get(link, {})
        paths = [known.pop(one) for one in ids if one in known]
        if not known:
            self._ids.pop(link, None)
        return paths

    # --- updates ----------------------------------------------------------------------------------

    def paths_of(self, link: PublisherLink, ids: Sequence[int]) -> list[str]:
        known = self._ids.get(link, {})
        return [known.get(one, "") for one in ids]

    def updated(self, link: PublisherLink, ids: Sequence[int], values: Sequence[Any]) -> None:
        if not self._read and self._heard is None:
            return
        known = self._ids.get(link, {})
        if self._heard is not None:
            for one, value in zip(ids, values, strict=True):
                if (path := known.get(one)) is not None:
                    self._heard(path, value, link.instance, False)
        if not self._read:
            return
        for one, value in zip(ids, values, strict=True):
            path = known.get(one)
            if path in self._read:
                for handle in self.of(path):
                    if handle.is_read:
                        handle.updated(value)
