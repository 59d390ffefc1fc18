"""Room: core/mqtt. The filters of one session, and what a topic is granted by those that overlap."""

import msgspec

from moorline.core.mqtt.packets import Subscription


class Granted(msgspec.Struct, frozen=True, gc=False):
    """What one copy of a message is, by all subscriptions that match it (MQTT 5, 3.3.4)."""

    qos: int
    """The highest that was granted; the message's own may be lower."""
    identifiers: tuple[int, ...]
    retain_as_published: bool
    is_local_too: bool
    """At least one of them takes what this client published itself."""


class Subscriptions:
    """Private ones; shared subscriptions are groups, and each has its own copy."""

    def put(self, subscription: Subscription, identifier: int | None) -> bool:
        """True if there was none of that filter: one that was there is replaced."""
        raise NotImplementedError

    def remove(self, filter_text: str) -> bool:
        raise NotImplementedError

    def granted(self, topic: str) -> Granted | None:
        """None if nothing matches. Cached for as many topics as a bound has."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError
