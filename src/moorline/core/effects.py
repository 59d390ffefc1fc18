"""Room: core. The effects that every machine may return, and the events that answer them.

A machine never does anything: it says what is to be done. The driver (`net.driver`) does it with
real sockets, timers and files; the simulator (`testing.simulator`) does it with fakes. Both perform
the effects of one step in list order, so a machine that puts `Append` before `Send` is obeyed.

Effects and events are values: frozen, so that whoever keeps one (a story, a transcript, a queue of what
waits) has what was meant then. What an effect brings back names what it was for (a timer its name, a sync
its count), because a machine may have asked for more meanwhile.
"""

from typing import Any

import msgspec


class Effect(msgspec.Struct, frozen=True):
    """Something to be done by whoever runs the machine."""


class Event(msgspec.Struct, frozen=True):
    """Something that happened, told to a machine."""


class Send(Effect, frozen=True):
    """Hand a message to the peer of that name; the net may lose it."""

    peer: str
    message: Any


class Say(Effect, frozen=True):
    """Tell the peer of a link, in the words of the protocol that is spoken over it."""


class SetTimer(Effect, frozen=True):
    """Post `TimerFired(name)` after that time; a timer of the same name is replaced."""

    name: str
    after_ms: int


class CancelTimer(Effect, frozen=True):
    """One that is not set is no mistake; one that has fired already may still be in the inbox."""

    name: str


class Append(Effect, frozen=True):
    """Add bytes at the end of a file; they survive a crash of the machine only after a `Sync`."""

    file: str
    data: bytes


class Sync(Effect, frozen=True):
    """Make all appended so far durable, then post `Synced(file, upto)`."""

    file: str
    upto: int


class Close(Effect, frozen=True):
    """End the link to that peer and say why."""

    peer: str
    reason: str
    text: str


class Received(Event, frozen=True):
    """A message came from the peer of that name."""

    peer: str
    message: Any


class TimerFired(Event, frozen=True):
    name: str


class Synced(Event, frozen=True):
    """Everything up to `upto` (the machine's own count) is durable."""

    file: str
    upto: int


class PeerLost(Event, frozen=True):
    """The link to that peer is gone, and with it what was on its way in either direction."""

    peer: str
