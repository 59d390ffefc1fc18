"""What the machine of durable subscriptions hears and wants done: plain values, compared by what they say."""

from moorline.core.effects import Effect, Event
from moorline.core.values.durable_events import (
    Drop,
    Ended,
    PublisherLost,
    Resolve,
    SubscribeAt,
    Unsubscribe,
    Want,
)


def test_events_and_effects_are_compared_by_what_they_say() -> None:
    assert Want(["/a"]) == Want(["/a"]) != Want(["/b"])
    assert PublisherLost(b"a", "gone") == PublisherLost(b"a", "gone")
    assert Resolve(1, ["/a"]) != Resolve(2, ["/a"])
    assert Unsubscribe(b"a", ["/a"]) != Unsubscribe(b"b", ["/a"])


def test_what_is_heard_is_an_event_and_what_is_wanted_an_effect() -> None:
    assert all(issubclass(kind, Event) for kind in (Want, Drop, PublisherLost, Ended))
    assert all(issubclass(kind, Effect) for kind in (Resolve, SubscribeAt, Unsubscribe))
