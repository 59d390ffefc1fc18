"""Room: core/group. The Agent: all shared subscriptions of one session, each with its Borrower.

A Borrower belongs to a subscription of the session, never to a group and a filter: after a quick
unsubscribe and subscribe one Borrower of the group may be leaving while the next is joining. What the
Leader of a group says is passed to the Borrower that it names; a Borrower that is over is replaced by
one with a new id.

Invariants, looked at by `check`:

    A1  a Borrower is known by its own id, and none that is over is kept
    A2  a subscription that is wanted has exactly one Borrower that is not leaving: with none it would get
        nothing, with two it would be two members
    A3  one that is not wanted has only Borrowers that are leaving
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from moorline.core.effects import (
    CancelTimer,
    Effect,
    Event,
    PeerLost,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from moorline.core.group.borrower import LEADER, Borrower, BorrowerState
from moorline.core.group.events import (
    BorrowerTimes,
    Destroyed,
    Disconnected,
    Recreate,
    StreamProgress,
    Subscribed,
    Unsubscribed,
)
from moorline.core.group.message import BorrowerMessage, FromLeader

FINAL_REASONS = frozenset({"KICKED", "DELETED", "FULL"})
"""Reasons of an invalidation after which a Borrower is not made anew: it would end as this one."""


class ToLeader(Effect, frozen=True):
    """Pass this to the Leader of a subscription's group, at that node, or to our registry if it is empty."""

    subscription: int
    node: str
    message: BorrowerMessage


class SubscriptionOver(Effect, frozen=True):
    """The group or its operator ended this subscription."""

    subscription: int
    reason: str


class Member(msgspec.Struct):
    """A Borrower and whose it is."""

    subscription: int
    borrower: Borrower


class Agent:
    """A collection of Borrowers. Its effects are theirs, with timers named apart."""

    def __init__(self, member: str, new_id: Callable[[], str], times: BorrowerTimes) -> None:
        self.members: dict[str, Member] = {}
        self._member = member
        self._new_id = new_id
        self._times = times
        # Subscriptions that are wanted, with the window of each. What is not here is not made anew.
        self._windows: dict[int, int] = {}

    def subscribe(self, subscription: int, window: int, now_ms: int) -> list[Effect]:
        if subscription in self._windows:
            return []  # it is a member already
        self._windows[subscription] = window
        return self._create(subscription, now_ms)

    def unsubscribe(self, subscription: int, now_ms: int) -> list[Effect]:
        # First: if its Borrower ends by what it hears now, or finds its Leader gone, no other one follows it.
        self._windows.pop(subscription, None)
        return self._tell(subscription, Unsubscribed(), now_ms)

    def leave(self, subscription: int, now_ms: int) -> list[Effect]:
        """At once, without draining anything: its Borrower says its last word."""
        self._windows.pop(subscription, None)
        return self._tell(subscription, Disconnected(), now_ms)

    def disconnect(self, now_ms: int) -> list[Effect]:
        """The session goes: every Borrower says its last word."""
        self._windows.clear()
        effects: list[Effect] = []
        for borrower in list(self.members):
            effects += self._step(borrower, Disconnected(), now_ms)
        return effects

    def progress(self, borrower: str, progress: StreamProgress, now_ms: int) -> list[Effect]:
        return self._step(borrower, progress, now_ms)

    def received(self, message: FromLeader, now_ms: int) -> list[Effect]:
        """From a Leader; one that names a Borrower that is over is for nobody."""
        return self._step(message.borrower, Received(LEADER, message), now_ms)

    def node_lost(self, node: str, now_ms: int) -> list[Effect]:
        """The link to a node is gone, and with it the Leaders that were there."""
        effects: list[Effect] = []
        for name, member in list(self.members.items()):
            # Those that have not found a Leader yet wait for nobody: their timer asks again.
            if member.borrower.leader == node:
                effects += self._step(name, PeerLost(node), now_ms)
        return effects

    def timer(self, name: str, now_ms: int) -> list[Effect]:
        # Ids have no space, so the name of a timer says whose it is. One that fires for a Borrower that is
        # over finds nobody.
        borrower, _, timer = name.partition(" ")
        return self._step(borrower, TimerFired(timer), now_ms)

    def has_members(self, subscription: int) -> bool:
        return any(one.subscription == subscription for one in self.members.values())

    def is_connected(self, subscription: int) -> bool:
        return any(
            member.subscription == subscription and member.borrower.state is BorrowerState.CONNECTED
            for member in self.members.values()
        )

    # --- inside -----------------------------------------------------------------------------------

    def _create(self, subscription: int, now_ms: int) -> list[Effect]:
        # Never an id of before: what a Leader still says to the old one would be taken for this one's (I11).
        name = self._new_id()
        borrower = Borrower(name, self._member, self._windows[subscription], self._times)
        # Known before its first step: its own effects are looked up by name.
        self.members[name] = Member(subscription, borrower)
        return self._step(name, Subscribed(), now_ms)

    def _tell(self, subscription: int, event: Event, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for name, member in list(self.members.items()):
            if member.subscription == subscription:
                effects += self._step(name, event, now_ms)
        return effects

    def _step(self, name: str, event: Event, now_ms: int) -> list[Effect]:
        member = self.members.get(name)
        if member is None:
            return []
        effects: list[Effect] = []
        # All effects of the one that ends come before those of the one that follows it: `Recreate` is its
        # last.
        for effect in member.borrower.handle(event, now_ms):
            match effect:
                case Send(_, message):
                    # The Leader as it is known behind this step; empty is the registry, which finds it.
                    effects.append(ToLeader(member.subscription, member.borrower.leader, message))
                case SetTimer(timer, after_ms):
                    effects.append(SetTimer(f"{name} {timer}", after_ms))
                case CancelTimer(timer):
                    effects.append(CancelTimer(f"{name} {timer}"))
                case Recreate(reason=reason):
                    del self.members[name]
                    effects += self._again(member.subscription, reason, now_ms)
                case Destroyed():
                    del self.members[name]
                case _:
                    effects.append(effect)
        return effects

    def _again(self, subscription: int, reason: str, now_ms: int) -> list[Effect]:
        code = reason.removeprefix("invalidated: ")
        # It was unsubscribed while its Borrower was ending.
        if subscription not in self._windows:
            return []
        # Forgotten before it is told: whoever subscribes again because of it gets a new Borrower.
        if code in FINAL_REASONS:
            del self._windows[subscription]
            return [SubscriptionOver(subscription, code)]
        return self._create(subscription, now_ms)

    # --- what always holds ------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts the invariants, and those of each Borrower."""
        staying: Counter[int] = Counter()
        for name, member in self.members.items():
            borrower = member.borrower
            assert name == borrower.id, f"A1: {borrower.id} is known as {name}"
            assert borrower.state is not BorrowerState.DESTROYED, f"A1: {name} is over"
            staying[member.subscription] += borrower.state is not BorrowerState.UNSUBSCRIBING
            borrower.check()
        for subscription in self._windows:
            count = staying.pop(subscription, 0)
            assert count == 1, f"A2: subscription {subscription} has {count} Borrowers"
        assert not staying.total(), f"A3: nobody wants {+staying}"
