"""The checker finds each kind of broken promise in histories made by hand, and nothing in good ones."""

import pytest
from chaos.checker import KINDS, check
from chaos.history import (
    Acked,
    Damaged,
    Delivered,
    Done,
    Event,
    Got,
    GroupSeen,
    History,
    LostQueueMessages,
    LostRange,
    Mishap,
    Operated,
    Outcome,
    Proof,
    Published,
    Reader,
    Sent,
    Stored,
    body_of,
    name_of,
)

YES, NO, UNKNOWN = Outcome.ANSWERED, Outcome.REFUSED, Outcome.UNKNOWN


def history_of(*events: Event) -> History:
    history = History()
    history.add_reader(Reader("team", is_ordered=True))
    history.add_reader(Reader("pool", is_ordered=False))
    for event in events:
        history.note(event)
    return history


def kinds_in(*events: Event) -> list[str]:
    return [one.kind for one in check(history_of(*events)).violations]


def sent(number: int, outcome: Outcome = YES) -> Sent:
    return Sent("a", "q", f"m{number}", outcome, number if outcome is YES else 0)


def delivered(number: int, session: int = 1) -> Delivered:
    return Delivered("q", session, number, f"m{number}")


def published(number: int, outcome: Outcome = YES, *, key: str = "k") -> Published:
    if outcome is YES:
        return Published("a", key, f"p{number}", outcome, 0, number)
    return Published("a", key, f"p{number}", outcome)


def got(number: int, reader: str = "team", *, offset: int | None = None) -> Got:
    return Got(reader, "a", 0, number if offset is None else offset, "k", f"p{number}")


def by_all(*numbers: int) -> list[Event]:
    return [got(number, reader) for number in numbers for reader in ("team", "pool")]


# --- queues ---------------------------------------------------------------------------------------


def test_a_good_history_of_a_queue_breaks_nothing() -> None:
    """Unanswered sends may come or not, and what was not acknowledged comes again."""
    history = history_of(
        *(sent(1), sent(2), sent(3, UNKNOWN), sent(4, UNKNOWN), sent(5, NO)),
        *(delivered(1), Acked("q", 1, YES), delivered(2), Acked("q", 2, UNKNOWN)),
        *(delivered(2, 2), Acked("q", 2, YES), delivered(3, 2), Acked("q", 3, YES)),
    )
    verdict = check(history)
    assert verdict.violations == []
    assert verdict.counts.again == 1
    assert not any(history.unread_messages(queue) for queue in history.unread)


def test_a_send_that_was_answered_and_never_came_is_lost() -> None:
    assert kinds_in(sent(1), sent(2), delivered(2), Acked("q", 2, YES)) == ["lost"]


def test_what_a_node_reports_as_lost_is_counted_and_no_more_than_that() -> None:
    told = LostQueueMessages("q", 1)
    history = history_of(sent(1), sent(2), told, delivered(2))
    verdict = check(history)
    assert verdict.violations == []
    assert verdict.counts.reported == 1
    assert kinds_in(sent(1), sent(2), told) == ["lost"]
    assert kinds_in(sent(1), LostQueueMessages("other", 5)) == ["lost"]


def test_a_delivery_behind_its_answered_acknowledgement_is_doubled() -> None:
    again = (sent(1), delivered(1), Acked("q", 1, YES), delivered(1, 2))
    assert kinds_in(*again) == ["doubled"]


def test_after_damage_what_was_acknowledged_before_may_come_again() -> None:
    before = (sent(1), delivered(1), Acked("q", 1, YES))
    assert kinds_in(*before, Damaged("a"), delivered(1, 2)) == []
    assert kinds_in(*before, Damaged("b"), delivered(1, 2)) == ["doubled"]


def test_a_send_that_is_stored_under_two_numbers_is_doubled() -> None:
    twice = (sent(1), delivered(1), Delivered("q", 1, 2, "m1"))
    assert kinds_in(*twice) == ["doubled"]


def test_a_queue_that_goes_back_in_one_reading_is_out_of_order() -> None:
    events = (sent(1), sent(2), delivered(1), delivered(2), delivered(1))
    assert kinds_in(*events) == ["out of order"]


def test_a_message_that_was_passed_over_and_comes_later_is_out_of_order() -> None:
    events = (sent(1), sent(2), delivered(2, 1), delivered(1, 2))
    assert kinds_in(*events) == ["out of order"]


def test_a_refused_send_that_comes_is_a_ghost_and_so_is_one_that_nobody_sent() -> None:
    assert kinds_in(sent(1, NO), delivered(1)) == ["ghost"]
    assert kinds_in(delivered(7)) == ["ghost"]


def test_a_body_that_changed_is_altered() -> None:
    body = body_of("m1")
    assert name_of(body) == "m1"
    assert name_of(body[:-1] + b"?") == "!m1"
    assert name_of(body + b"?") == "!m1"
    assert kinds_in(sent(1), delivered(1), Delivered("q", 2, 1, "!m1")) == ["altered"]


# --- topics ---------------------------------------------------------------------------------------


def test_a_good_history_of_topics_breaks_nothing() -> None:
    history = history_of(
        *(published(0), published(1, UNKNOWN), published(1), published(2, NO)),
        *by_all(0, 1),
        *(got(1), Done("team", "a", 0, 0), Done("team", "a", 0, 1), Stored()),
        *(published(3), *by_all(3)),
    )
    verdict = check(history)
    assert verdict.violations == []
    assert verdict.counts.again == 1


def test_what_one_reader_misses_is_lost_for_that_reader() -> None:
    verdict = check(history_of(published(0), published(1), *by_all(0), got(1, "pool")))
    assert [one.kind for one in verdict.violations] == ["lost"]
    assert "1 by team: p1 (a/0 at 1)" in verdict.violations[0].text


def test_a_range_that_is_reported_as_lost_covers_itself_alone() -> None:
    events = [published(0), published(1), published(2), *by_all(0)]
    assert kinds_in(*events, LostRange("a", 0, 1, 3)) == []
    assert kinds_in(*events, LostRange("a", 0, 1, 2)) == ["lost", "lost"]
    assert kinds_in(*events, LostRange("b", 0, 1, 3)) == ["lost", "lost"]
    assert kinds_in(*events, LostRange("a", 1, 1, 3)) == ["lost", "lost"]
    assert check(history_of(*events, LostRange("a", 0, 1, 3))).counts.reported == 2


def test_a_message_of_a_batch_is_looked_for_where_others_found_it() -> None:
    """The answer tells the place of the last of a batch only."""
    batch = Published("a", "k", "p5", YES, 0, 9, batch=4)
    assert kinds_in(batch, *by_all(5)) == []
    assert kinds_in(batch, got(5), LostRange("a", 0, 5, 6)) == []
    assert kinds_in(batch, got(5), LostRange("a", 0, 6, 7)) == ["lost"]


def test_a_message_that_is_stored_twice_is_doubled() -> None:
    assert kinds_in(published(0), *by_all(0), got(0, offset=4)) == ["doubled"]


def test_a_place_that_is_given_twice_is_doubled() -> None:
    events = (published(0), published(1), *by_all(0), got(1, offset=0), got(1, "pool", offset=0))
    assert "doubled" in kinds_in(*events)


def test_what_was_stored_as_done_and_comes_again_is_doubled() -> None:
    done = (published(0), *by_all(0), Done("team", "a", 0, 0))
    assert kinds_in(*done, got(0)) == []
    assert kinds_in(*done, Stored(), got(0)) == ["doubled"]
    assert kinds_in(*done, Stored(), got(0, "pool")) == []


def test_an_archive_has_each_message_once() -> None:
    history = history_of(published(0), *by_all(0))
    history.add_reader(Reader("archive", is_ordered=False, is_exact=True))
    history.note(got(0, "archive"))
    assert check(history).violations == []
    history.note(got(0, "archive"))
    assert [one.kind for one in check(history).violations] == ["doubled"]


def test_first_deliveries_of_an_ordered_reader_follow_the_shard() -> None:
    """`$queue` groups promise no order; a repeat is no first delivery."""
    events = (published(0), published(1))
    assert kinds_in(*events, *by_all(1, 0)) == ["out of order"]
    assert kinds_in(*events, got(0), got(1), got(0), got(1, "pool"), got(0, "pool")) == []


def test_messages_of_a_key_lie_in_the_order_of_their_answers() -> None:
    """Whatever the shard says: here a later one lies before an earlier one."""
    events: list[Event] = [
        Published("a", "k", "p0", YES),
        Published("a", "k", "p1", YES),
        *(got(1, reader, offset=0) for reader in ("team", "pool")),
        *(got(0, reader, offset=1) for reader in ("team", "pool")),
    ]
    assert kinds_in(*events) == ["out of order"]


def test_a_refused_publish_that_comes_is_a_ghost() -> None:
    assert kinds_in(published(0, NO), got(0)) == ["ghost"]
    assert kinds_in(published(0, NO), published(0), *by_all(0)) == []


def test_a_failed_deletion_that_takes_effect_behind_a_later_answer_is_a_ghost() -> None:
    made, failed = Operated("g", "create", YES), Operated("g", "delete", NO)
    ended = Operated("g", "delete", YES)
    assert kinds_in(made, failed, GroupSeen("g", exists=True)) == []
    assert kinds_in(made, failed, GroupSeen("g", exists=False)) == ["ghost"]
    assert kinds_in(made, failed, ended, made, GroupSeen("g", exists=True)) == []
    assert kinds_in(made, failed, ended, made, GroupSeen("g", exists=False)) == ["ghost"]
    assert kinds_in(made, ended, GroupSeen("g", exists=True)) == ["ghost"]
    assert kinds_in(made, Operated("g", "delete", UNKNOWN), GroupSeen("g", exists=False)) == []
    assert kinds_in(GroupSeen("g", exists=True)) == ["ghost"]


# --- proofs and nodes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said_equal", "is_equal", "found"),
    [
        (True, True, []),
        (True, False, ["false proof"]),
        (False, False, []),
        (False, True, []),
    ],
)
def test_a_proof_that_says_equal_where_nothing_is_equal_is_false(
    said_equal: bool, is_equal: bool, found: list[str]
) -> None:
    assert kinds_in(Proof("verify", said_equal=said_equal, is_equal=is_equal)) == found


def test_a_node_that_ends_by_itself_is_a_mishap() -> None:
    assert kinds_in(Mishap("node a ended by itself with 1")) == ["mishap"]


def test_every_kind_is_counted_under_its_name() -> None:
    verdict = check(history_of(sent(1), Proof("verify", said_equal=True, is_equal=False)))
    assert {kind: verdict.of_kind(kind) for kind in KINDS if verdict.of_kind(kind)} == {
        "lost": 1,
        "false proof": 1,
    }
