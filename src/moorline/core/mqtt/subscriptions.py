"""Room: core/mqtt. The filters of one session, and what a topic is granted by those that overlap.

A message comes once, however many filters match it (MQTT 5, 3.3.4): at the highest qos of them, with the
identifiers of all of them.

Invariants, looked at by `check`:

    B1  the tree has the filters of the list, and no others
    B2  what is remembered of a topic is what its filters grant
"""

from collections.abc import Callable

import msgspec

from moorline.core.filter_tree import FilterTree
from moorline.core.mqtt.packets import Subscription
from moorline.core.topic import matches
from moorline.limits import MQTT_GRANTS_KNOWN_MAX


class Granted(msgspec.Struct, frozen=True, gc=False):
    """What one copy of a message is, by all subscriptions that match it."""

    qos: int
    """The highest that was granted; the message's own may be lower."""
    identifiers: tuple[int, ...]
    retain_as_published: bool
    is_local_too: bool
    """At least one of them takes what this client published itself."""


class _One(msgspec.Struct, frozen=True):
    subscription: Subscription
    identifier: int | None


class Subscriptions:
    """Private ones; shared subscriptions are groups, and each has its own copy."""

    __slots__ = ("_by_filter", "_known", "_local", "_tree")

    def __init__(self) -> None:
        self._by_filter: dict[str, _One] = {}
        self._tree: FilterTree[_One] = FilterTree()
        self._known: dict[str, Granted | None] = {}
        self._local: dict[str, Granted | None] = {}

    def __len__(self) -> int:
        return len(self._by_filter)

    def __contains__(self, filter_text: str) -> bool:
        return filter_text in self._by_filter

    def all(self) -> list[tuple[Subscription, int | None]]:
        """In the order in which their filters came first."""
        return [(one.subscription, one.identifier) for one in self._by_filter.values()]

    def put(self, subscription: Subscription, identifier: int | None) -> bool:
        """True if there was none of that filter: one that was there is replaced."""
        text = subscription.filter
        is_new = text not in self._by_filter
        one = self._by_filter[text] = _One(subscription, identifier)
        self._tree.put(text, one)
        self._forget()
        return is_new

    def remove(self, filter_text: str) -> bool:
        if self._by_filter.pop(filter_text, None) is None:
            return False
        self._tree.remove(filter_text)
        self._forget()
        return True

    def granted(self, topic: str, is_own: bool = False) -> Granted | None:
        """None if nothing matches. `is_own`: this client published it, and filters with no local do not
        count. It is known for as many topics as a bound has."""
        known = self._local if is_own else self._known
        try:
            return known[topic]
        except KeyError:
            pass
        if len(known) == MQTT_GRANTS_KNOWN_MAX:
            known.clear()
        found = known[topic] = self._granted(topic, is_own)
        return found

    def _granted(self, topic: str, is_own: bool) -> Granted | None:
        found = self._tree.matching(topic)
        if is_own:
            found = [one for one in found if not one.subscription.no_local]
        return _granted_by(found)

    def granted_without(self, topic: str, is_left_out: Callable[[str], bool]) -> Granted | None:
        """By those alone whose filter is not left out; nothing of it is remembered."""
        return _granted_by(
            [one for one in self._tree.matching(topic) if not is_left_out(one.subscription.filter)]
        )

    def _forget(self) -> None:
        self._known.clear()
        self._local.clear()

    def check(self) -> None:
        """Asserts the invariants."""
        self._tree.check()
        found = dict(self._tree.items())
        assert found == self._by_filter, f"B1: {found.keys()} are not {self._by_filter.keys()}"
        for topic, granted in self._known.items():
            count = sum(matches(text, topic) for text in self._by_filter)
            assert (granted is not None) == bool(count), f"B2: {topic} has {count} filters"
            if granted is not None:
                assert granted == self._granted(topic, False), f"B2: {topic} has {granted}"


def _granted_by(found: list[_One]) -> Granted | None:
    if not found:
        return None
    return Granted(
        max(one.subscription.qos for one in found),
        tuple(one.identifier for one in found if one.identifier is not None),
        any(one.subscription.retain_as_published for one in found),
        any(not one.subscription.no_local for one in found),
    )
