"""One message for an audience and a part of a step; what failed steps sent is settled."""

import pytest
from tests.core.records.feed_parts import change, subscription
from tests.core.records.tables import TABLE

from moorline.core.records.audience import Audiences
from moorline.core.records.fan_out import FanOut
from moorline.core.records.feed_events import How, SendRows, StartSync
from moorline.core.records.subscription import Standing, Subscription
from moorline.limits import RECORD_UNSETTLED_MAX


def scene(*wheres: dict[str, object]) -> tuple[FanOut, dict[int, Subscription], Audiences]:
    audiences = Audiences(TABLE)
    found = {
        number: subscription(audiences, number, dict(where))
        for number, where in enumerate(wheres, 1)
    }
    return FanOut(audiences, found), found, audiences


def test_one_effect_for_all_of_an_audience() -> None:
    fan_out, _, _ = scene({"workspace": 1}, {"workspace": 1}, {"workspace": 2})
    moved = change("a", 1, 2)
    assert moved.after is not None
    effects = fan_out.fan([moved, change("b", None, 3)])
    assert effects == [
        StartSync((1, 2), How.LIVE),
        SendRows((1, 2), 1, (("a",),), ()),
        StartSync((3,), How.LIVE),
        SendRows((3,), 2, (), ((("a",), moved.after),)),
    ]
    assert fan_out.end() == {1, 2}
    assert fan_out.end() == set()


def test_nobody_who_is_not_live_is_sent_to() -> None:
    fan_out, found, audiences = scene({}, {})
    fan_out.fan([change("a", None, 1)])
    found[1].move(Standing.BEHIND)
    fan_out.moved(found[1].audience)
    (sent,) = fan_out.fan([change("b", None, 1)])
    assert isinstance(sent, SendRows)
    assert sent.to == (2,)
    for one in found.values():
        one.audience.members.discard(one.number)
    audiences.leave(found[1].audience)
    fan_out.forget(found[1].audience)
    assert fan_out.fan([change("c", None, 1)]) == []
    fan_out.check()


def test_what_came_and_went_around_a_failed_step_is_deleted() -> None:
    """Appeared and gone; and fallen in and out, which the next step does not show either."""
    fan_out, _, _ = scene({"workspace": 1})
    fan_out.fan([change("gone", None, 1), change("out", 2, 1), change("stays", None, 1)])
    assert fan_out.fail()
    assert fan_out.is_unsettled
    effects = fan_out.fan([change("out", 2, 3), change("stays", None, 1)])
    (_, sent) = effects
    assert isinstance(sent, SendRows)
    assert sent.deletions == (("out",),)
    (settled,) = fan_out.settle()
    assert isinstance(settled, SendRows)
    assert settled.deletions == (("gone",),)
    fan_out.end()
    assert not fan_out.is_unsettled


@pytest.mark.slow
def test_more_than_is_remembered_is_said() -> None:
    fan_out, _, _ = scene({"workspace": 1})
    fan_out.fan([change(str(n), None, 1) for n in range(RECORD_UNSETTLED_MAX + 5)])
    assert not fan_out.fail()
    assert not fan_out.is_unsettled


def test_who_is_synced_anew_needs_no_settling() -> None:
    fan_out, _, _ = scene({})
    fan_out.fan([change("a", None, 1)])
    fan_out.drop()
    assert not fan_out.is_unsettled


def test_fo1_a_list_that_is_not_of_those_who_are_live() -> None:
    fan_out, found, _ = scene({})
    assert fan_out.live_of(found[1].audience) == (1,)
    found[1].standing = Standing.BEHIND
    with pytest.raises(AssertionError, match="FO1"):
        fan_out.check()
