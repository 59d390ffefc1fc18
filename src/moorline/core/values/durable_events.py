"""Room: core/values. What the machine of durable subscriptions hears, and what it asks for.

Events name the ask or the attempt that they answer: what answers one that was given up is told apart by that,
and not taken (S6 of the design).
"""

from collections.abc import Mapping, Sequence

from moorline.core.effects import Effect, Event
from moorline.core.values.choice import Candidate


class Want(Event, frozen=True):
    """From now on these paths are to be subscribed, whatever happens."""

    paths: Sequence[str]


class Drop(Event, frozen=True):
    paths: Sequence[str]


class Resolved(Event, frozen=True):
    """The answer to `Resolve`: for each path its publishers, or why there are none."""

    ask: int
    found: Mapping[str, Sequence[Candidate] | str]


class ResolveFailed(Event, frozen=True):
    ask: int
    why: str


class Subscribed(Event, frozen=True):
    """The answer to `SubscribeAt`: for each path nothing if it is alive now, or why not."""

    attempt: int
    refused: Mapping[str, str]


class AttemptFailed(Event, frozen=True):
    """The publisher could not be reached, or was lost before it answered."""

    attempt: int
    why: str


class PublisherLost(Event, frozen=True):
    instance: bytes
    why: str


class Ended(Event, frozen=True):
    """The publisher ended these, and stays."""

    instance: bytes
    paths: Sequence[str]
    why: str


class Stop(Event, frozen=True):
    pass


class Resolve(Effect, frozen=True):
    ask: int
    paths: list[str]


class SubscribeAt(Effect, frozen=True):
    """By the claims that the last answer had for these paths and that publisher."""

    attempt: int
    instance: bytes
    paths: list[str]


class Unsubscribe(Effect, frozen=True):
    """Nobody wants these any more."""

    instance: bytes
    paths: list[str]


class TellAlive(Effect, frozen=True):
    instance: bytes
    paths: list[str]


class TellDead(Effect, frozen=True):
    """These were alive, or have failed once more; they are tried again."""

    paths: list[str]
    why: str
