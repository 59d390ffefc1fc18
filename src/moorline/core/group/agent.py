"""Room: core/group. The Agent: all shared subscriptions of one session, each with its Borrower.

A Borrower belongs to a subscription of the session, never to a group and a filter: after a quick
unsubscribe and subscribe one Borrower of the group may be leaving while the next is joining. What the
Leader of a group says is passed to the Borrower that it names; a Borrower that is over is replaced by
one with a new id.
"""

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
from moorline.core.group.borrower import (
    LEADER,
    Borrower,
    BorrowerState,
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
        self._windows: dict[int, int] = {}

    def subscribe(self, subscription: int, window: int, now_ms: int) -> list[Effect]:
        if subscription in self._windows:
            return []  # it is a member already
        self._windows[subscription] = window
        return self._create(subscription, now_ms)

    def unsubscribe(self, subscription: int, now_ms: int) -> list[Effect]:
        self._windows.pop(subscription, None)
        return self._tell(subscription, Unsubscribed(), now_ms)

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
            if member.borrower.leader == node:
                effects += self._step(name, PeerLost(node), now_ms)
        return effects

    def timer(self, name: str, now_ms: int) -> list[Effect]:
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
        name = self._new_id()
        borrower = Borrower(name, self._member, self._windows[subscription], self._times)
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
        for effect in member.borrower.handle(event, now_ms):
            match effect:
                case Send(_, message):
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
        if subscription not in self._windows:
            return []
        if code in FINAL_REASONS:
            del self._windows[subscription]
            return [SubscriptionOver(subscription, code)]
        return self._create(subscription, now_ms)
