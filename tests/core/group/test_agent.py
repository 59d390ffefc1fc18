"""The Agent: Borrowers of one session, each for its own subscription."""

from collections.abc import Callable
from itertools import count

import pytest

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import CancelTimer, Effect, SetTimer
from moorline.core.group.agent import Agent, SubscriptionOver, ToLeader
from moorline.core.group.borrower import BorrowerState
from moorline.core.group.events import BorrowerTimes, StreamProgress
from moorline.core.group.message import (
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
)
from moorline.core.stream import Stream

STREAM = Stream("n1", 0, 0)


def numbered() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"b{next(numbers)}"


def agent() -> Agent:
    return Agent("ann", numbered(), BorrowerTimes())


def wanted(effects: list[Effect]) -> list[str]:
    return [
        effect.message.borrower
        for effect in effects
        if isinstance(effect, ToLeader) and isinstance(effect.message, LeaderWanted)
    ]


def connect(one: Agent, borrower: str, epoch: int = 1) -> None:
    one.received(LeaderConnectResponse(borrower, epoch, "n1"), 0)


def test_a_subscription_gets_a_borrower_with_timers_of_its_own() -> None:
    assert agent().subscribe(7, 16, 0) == [
        ToLeader(7, "", LeaderWanted("b1", "ann", 16)),
        SetTimer("b1 find leader", 500),
    ]


def test_f13_m6_subscribing_again_changes_nothing() -> None:
    one = agent()
    one.subscribe(7, 16, 0)
    assert one.subscribe(7, 16, 0) == []
    assert list(one.members) == ["b1"]


def test_quick_unsubscribe_and_subscribe_has_two_borrowers_for_a_while() -> None:
    one = agent()
    one.subscribe(7, 16, 0)
    connect(one, "b1")
    one.received(Grant("b1", 1, 1, STREAM, Cursor(0), 0), 0)
    one.unsubscribe(7, 0)
    assert wanted(one.subscribe(7, 16, 0)) == ["b2"]
    assert one.members["b1"].borrower.state is BorrowerState.UNSUBSCRIBING
    effects = one.progress("b1", StreamProgress(1, Cursor(3), 3, True), 0)
    assert effects[0] == ToLeader(7, "n1", Disconnect("b1", 1, ((1, Cursor(3)),)))
    assert list(one.members) == ["b2"]


def test_i11_a_borrower_that_is_over_is_replaced_by_one_with_a_new_id() -> None:
    one = agent()
    one.subscribe(7, 16, 0)
    connect(one, "b1")
    effects = one.received(Invalidate("b1", 1, "DISAGREED"), 0)
    assert wanted(effects) == ["b2"]
    assert one.received(Invalidate("b1", 1, "DISAGREED"), 0) == [], "nobody has that id"
    assert one.timer("b1 ping", 0) == []


def test_x23_f4_a_member_that_was_kicked_or_whose_group_is_gone_does_not_come_back() -> None:
    for reason in ("KICKED", "DELETED", "FULL"):
        one = agent()
        one.subscribe(7, 16, 0)
        connect(one, "b1")
        effects = one.received(Invalidate("b1", 1, reason), 0)
        assert effects[-1] == SubscriptionOver(7, reason)
        assert one.members == {}
        assert wanted(one.subscribe(7, 16, 0)) == ["b2"], "it may ask again"


def test_i14_what_happens_to_one_subscription_does_not_touch_another() -> None:
    one = agent()
    one.subscribe(1, 16, 0)
    one.subscribe(2, 16, 0)
    connect(one, "b1", epoch=5)
    connect(one, "b2", epoch=9)
    one.received(Grant("b2", 9, 1, STREAM, Cursor(0), 0), 0)
    before = one.members["b2"].borrower
    one.received(Invalidate("b1", 5, "UNKNOWN"), 0)
    one.unsubscribe(1, 0)
    assert one.members["b2"].borrower is before
    assert list(before.leases) == [1]
    assert one.is_connected(2)
    assert not one.is_connected(1)


def test_one_that_leaves_is_not_waited_for_and_not_made_anew() -> None:
    one = agent()
    one.subscribe(1, 16, 0)
    one.subscribe(2, 16, 0)
    connect(one, "b1", epoch=5)
    effects = one.leave(1, 0)
    said = [effect.message for effect in effects if isinstance(effect, ToLeader)]
    assert [type(message) for message in said] == [Disconnect]
    assert list(one.members) == ["b2"]
    one.check()


def test_a_node_that_is_lost_ends_the_borrowers_of_its_leaders() -> None:
    one = agent()
    one.subscribe(1, 16, 0)
    one.subscribe(2, 16, 0)
    connect(one, "b1")
    one.received(LeaderConnectResponse("b2", 1, "n2"), 0)
    assert wanted(one.node_lost("n2", 0)) == ["b3"]
    assert list(one.members) == ["b1", "b3"]


def test_a_session_that_goes_says_a_last_word_for_each() -> None:
    one = agent()
    one.subscribe(1, 16, 0)
    one.subscribe(2, 16, 0)
    connect(one, "b1")
    effects = one.disconnect(0)
    last = [effect.message for effect in effects if isinstance(effect, ToLeader)]
    assert last == [Disconnect("b1", 1, ()), Disconnect("b2", 0, ())]
    assert CancelTimer("b1 ping") in effects
    assert one.members == {}


@pytest.mark.parametrize("broken", ["A1", "A2", "A3", "B1"])
def test_a_broken_state_is_found(broken: str) -> None:
    one = agent()
    one.subscribe(7, 16, 0)
    one.check()
    match broken:
        case "A1":
            one.members["strange"] = one.members.pop("b1")
        case "A2":
            one._windows[8] = 16
        case "A3":
            one._windows.clear()
        case _:
            one.members["b1"].borrower.leader = "n1"
    with pytest.raises(AssertionError, match=broken):
        one.check()
