"""A subscription stands somewhere, and moves only as the diagram says."""

import pytest
from tests.core.records.tables import TABLE

from moorline.core.records.audience import Audiences
from moorline.core.records.feed_events import Wanted
from moorline.core.records.filter import parse_filter
from moorline.core.records.permit import make_permit
from moorline.core.records.subscription import STANDINGS, Standing, Subscription


def subscription() -> Subscription:
    wanted = Wanted(parse_filter(TABLE, {}), make_permit(None, is_all=True), 1)
    return Subscription(1, 1, wanted, Audiences(TABLE).join(wanted.filter, wanted.permit))


@pytest.mark.parametrize("standing", list(Standing))
def test_only_moves_of_the_diagram(standing: Standing) -> None:
    for other in Standing:
        one = subscription()
        one.standing = standing
        if other is standing or other in STANDINGS[standing]:
            one.move(other)
        else:
            with pytest.raises(AssertionError, match="no move"):
                one.move(other)


def test_su1_whoever_is_behind_can_be_brought_on() -> None:
    one = subscription()
    one.check()
    one.standing = Standing.BEHIND
    with pytest.raises(AssertionError, match="SU1"):
        one.check()
    one.is_torn = True
    one.check()
