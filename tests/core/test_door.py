"""The door of a port: nobody who says what it wants is kept out by those who say nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.descriptors import Descriptors, Shares, Use
from moorline.core.door import Admit, Cut, Door, Drop, Refuse, Verdict
from moorline.limits import PATIENCE_MS


def door(places: int, turned_away: int) -> tuple[Door, Descriptors]:
    most = dict.fromkeys(Use, 0) | {Use.CONNECTIONS: places, Use.TURNED_AWAY: turned_away}
    account = Descriptors(Shares(1_000, 100, 100, most))
    return Door(account, Use.CONNECTIONS), account


def test_a_newcomer_takes_the_place_of_whoever_has_been_silent_for_longest() -> None:
    port, _ = door(2, 2)
    assert port.knock(1, 0, 1_000) == [Admit(1)]
    assert port.knock(2, 0, 2_000) == [Admit(2)]
    port.heard(1)
    assert port.knock(3, 0, 3_000) == [Cut(2), Admit(3)]
    port.heard(3)
    assert port.knock(4, 0, 4_000) == [Refuse(4)], "all that are inside have said what they want"
    port.left(1)
    assert port.knock(5, 0, 5_000) == [Admit(5)]


def test_those_that_do_not_listen_make_room_for_the_next_to_be_told() -> None:
    port, _ = door(1, 1)
    port.knock(1, 0, 0)
    port.heard(1)
    assert port.knock(2, 0, 0) == [Refuse(2)]
    assert not port.is_ready(1)
    assert port.make_room(1) == [], "it came just now"
    assert port.make_room(PATIENCE_MS) == [Cut(2)]
    assert not port.is_ready(PATIENCE_MS), "the one that was cut holds its descriptor yet"
    assert port.make_room(PATIENCE_MS) == []
    port.left(2)
    assert port.knock(3, 0, PATIENCE_MS) == [Refuse(3)]


def test_whoever_just_came_is_not_cut_for_the_next() -> None:
    port, _ = door(1, 1)
    assert port.knock(1, 0, 0) == [Admit(1)]
    assert not port.is_ready(PATIENCE_MS - 1)
    assert port.is_ready(PATIENCE_MS)
    assert port.knock(2, 0, PATIENCE_MS) == [Cut(1), Admit(2)]


def test_when_the_table_is_nearly_full_nobody_comes_in() -> None:
    port, _ = door(5, 5)
    assert port.knock(1, 949, 1_000) == [Admit(1)]
    assert port.knock(2, 950, 2_000) == [Drop(2)]
    assert (port.refused, len(port)) == (1, 1)


Step = tuple[str, int]
steps = st.lists(
    st.tuples(st.sampled_from(["knock", "knock", "heard", "left"]), st.integers(0, 30)),
    max_size=200,
)


@given(steps, st.integers(1, 5), st.integers(0, 3))
def test_whatever_comes_the_door_holds_no_more_than_it_may(
    said: list[Step], places: int, turned_away: int
) -> None:
    port, account = door(places, turned_away)
    present: set[int] = set()
    heard: set[int] = set()
    cut: set[int] = set()
    refused: set[int] = set()
    for number, (what, which) in enumerate(said):
        one = sorted(present)[which % len(present)] if present else -1
        now_ms = number * PATIENCE_MS // 2
        if what == "knock" and not port.is_ready(now_ms):
            cut |= {verdict.visitor for verdict in port.make_room(now_ms)}
        elif what == "knock":
            verdicts: list[Verdict] = port.knock(number, 0, now_ms)
            for verdict in verdicts:
                match verdict:
                    case Cut(visitor):
                        assert visitor in present - cut - heard - refused, "who has spoken stays"
                        cut.add(visitor)
                    case Admit(visitor) | Refuse(visitor):
                        assert visitor == number
                        present.add(number)
                        if isinstance(verdict, Refuse):
                            refused.add(number)
                            inside = present - cut - refused
                            assert inside <= heard, "a silent one would have been cut for it"
            assert isinstance(verdicts[-1], Admit | Refuse | Drop)
        elif what == "heard" and one >= 0 and one not in cut | refused:
            port.heard(one)
            heard.add(one)
        elif what == "left" and one >= 0:
            port.left(one)
            present.discard(one)
        port.check()
        assert len(port) == len(present) <= places + turned_away
        assert account.held(Use.CONNECTIONS) == len(present - cut - refused) <= places
        assert account.held(Use.TURNED_AWAY) == len(present & (cut | refused)) <= turned_away
    for one in present:
        port.left(one)
    assert (account.held(Use.CONNECTIONS), account.held(Use.TURNED_AWAY), len(port)) == (0, 0, 0)


@pytest.mark.parametrize("broken", ["T1", "T2", "T3", "T4", "N1"])
def test_a_broken_state_is_found(broken: str) -> None:
    port, account = door(2, 2)
    port.knock(1, 0, 0)
    port.knock(2, 0, PATIENCE_MS)
    port.check()
    match broken:
        case "T1":
            port._inside.add(1)
        case "T2":
            account.give_back(Use.CONNECTIONS)
        case "T3":
            port._leaving.add(9)
        case "T4":
            port._waiting = {2: PATIENCE_MS, 1: 0}
        case _:
            account._held[Use.HTTP] = 1
    with pytest.raises(AssertionError, match=broken):
        port.check()


def two_doors() -> tuple[Door, Door, Descriptors]:
    most = dict.fromkeys(Use, 0) | {Use.HTTP: 2, Use.CONNECTIONS: 1, Use.TURNED_AWAY: 2}
    account = Descriptors(Shares(1_000, 100, 100, most))
    return Door(account, Use.HTTP), Door(account, Use.CONNECTIONS), account


def test_one_that_has_its_answer_gives_its_place_to_a_newcomer() -> None:
    port, _, _ = two_doors()
    for visitor in (1, 2):
        port.knock(visitor, 0, 0)
        port.heard(visitor)
    assert port.knock(3, 0, PATIENCE_MS) == [Refuse(3)]
    port.left(3)
    port.quiet(2, PATIENCE_MS)
    port.quiet(1, PATIENCE_MS + 1)
    assert not port.is_ready(PATIENCE_MS + 1), "it may ask again at once"
    assert port.knock(4, 0, 3 * PATIENCE_MS) == [Cut(2), Admit(4)]
    port.heard(1)
    port.check()
    port.quiet(99, 0)
    assert len(port) == 3, "of one that is not inside nothing is known"


def test_one_that_stays_for_long_does_so_at_the_expense_of_another_door() -> None:
    port, other, account = two_doors()
    for visitor in (1, 2):
        port.knock(visitor, 0, 0)
    assert not port.settle(1, other), "it has said nothing yet"
    port.heard(1)
    port.heard(2)
    assert port.settle(1, other)
    assert not port.settle(2, other), "its places are taken"
    assert (account.held(Use.HTTP), account.held(Use.CONNECTIONS), other.guests) == (1, 1, 1)
    assert port.knock(3, 0, 0) == [Admit(3)]
    port.quiet(1, 0)
    for one in (port, other):
        one.check()
    port.left(1)
    assert (account.held(Use.CONNECTIONS), other.guests) == (0, 0)
    assert port.settle(2, other)
    other.guests = 0
    with pytest.raises(AssertionError, match="T2"):
        other.check()
