"""Room: mqtt. The plain filters of one client, which are one subscription: what it lets through, and as what.

A filter begins where the streams ended at its SUBSCRIBE. The place of the client may be behind that, with
messages that only this filter matches: they were there before it.
"""

from collections.abc import Mapping

from moorline.core.mqtt.packets import Subscription
from moorline.core.mqtt.subscriptions import Granted, Subscriptions
from moorline.core.stream import Shard
from moorline.mqtt.stored import KeptFilter
from moorline.topics.filtered_news import Sleeper

Starts = Mapping[Shard, int]

_FROM_THE_FIRST: Starts = {}


class Filters:
    """A `FilterMatcher` of delivery (core/delivery/open_feed.py)."""

    __slots__ = ("_granted", "_kept", "_sleeper", "_starts", "_withheld", "bytes")

    def __init__(self, sleeper: Sleeper) -> None:
        self._sleeper = sleeper
        """What lets through here wakes its reader, and nothing else does."""
        self._granted = Subscriptions()
        self._kept: dict[str, KeptFilter] = {}
        self._starts: dict[str, Starts] = {}
        """Of those that were added to a place that was there before."""
        self._withheld: dict[str, None] = {}
        """Those that are not granted any more: they stay the client's, and let nothing through."""
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, text: str) -> bool:
        return text in self._kept

    @property
    def kept(self) -> list[KeptFilter]:
        return list(self._kept.values())

    @property
    def names_system_topics(self) -> bool:
        return any(text.startswith("$SYS") for text in self._kept)

    @property
    def filter(self) -> str:
        return next(iter(self._kept), "")

    @property
    def takes_all(self) -> bool:
        # Of several, what a block has is asked for each topic: there is no one filter to pick by.
        return len(self._kept) != 1 or self.filter == "#"

    def __call__(self, topic: str, /) -> bool:
        return self._granted.granted(topic) is not None

    def put(
        self, subscription: Subscription, identifier: int | None, starts: Starts | None
    ) -> bool:
        """Whether it is new."""
        text = subscription.filter
        is_new = text not in self._kept
        self._kept[text] = KeptFilter.of(subscription, identifier)
        self._withheld.pop(text, None)
        if is_new:
            self.bytes += len(text.encode())
            if starts:
                self._starts[text] = starts
        self._granted.put(subscription, identifier)
        self._sleeper.add(text)
        return is_new

    def remove(self, text: str) -> bool:
        if self._kept.pop(text, None) is None:
            return False
        self.bytes -= len(text.encode())
        self._starts.pop(text, None)
        self._withheld.pop(text, None)
        self._granted.remove(text)
        self._sleeper.remove(text)
        return True

    def withhold(self, text: str) -> bool:
        """It lets nothing through from now on; whether it did until now."""
        if text not in self._kept or text in self._withheld:
            return False
        self._withheld[text] = None
        self._granted.remove(text)
        self._sleeper.remove(text)
        return True

    def restore(self, text: str) -> None:
        """It lets through again what comes from now on."""
        if text in self._withheld:
            del self._withheld[text]
            kept = self._kept[text]
            self._granted.put(kept.subscription, kept.identifier)
            self._sleeper.add(text)

    @property
    def withheld(self) -> list[str]:
        return [text for text in self._kept if text in self._withheld]

    def is_withheld(self, text: str) -> bool:
        return text in self._withheld

    def granted(self, topic: str) -> Granted | None:
        return self._granted.granted(topic)

    def granted_at(self, topic: str, shard: Shard, offset: int) -> Granted | None:
        """The same of a message at a place: by those filters that were there before it."""
        found = self._granted.granted(topic)
        if found is None or not self._starts:
            return found
        # Only while the place is behind the SUBSCRIBE of some.
        return self._granted.granted_without(
            topic, lambda text: offset < self._starts.get(text, _FROM_THE_FIRST).get(shard, 0)
        )

    @property
    def has_late(self) -> bool:
        """Whether any began later than the client's place."""
        return bool(self._starts)

    def passed(self, places: Starts) -> None:
        """The client's place has come so far: filters that began before it are as old as the others."""
        # Those of one SUBSCRIBE began together, and are judged together.
        judged: dict[int, bool] = {}
        for text, starts in list(self._starts.items()):
            is_old = judged.get(id(starts))
            if is_old is None:
                is_old = judged[id(starts)] = all(
                    places.get(shard, 0) >= start for shard, start in starts.items()
                )
            if is_old:
                del self._starts[text]
