"""What the machines of a group hear and ask for: values, each either an event or an effect."""

import inspect

import pytest

from moorline.core.effects import Effect, Event
from moorline.core.group import events
from moorline.core.group.borrower import Borrower, BorrowerState
from moorline.core.group.events import BorrowerTimes, LeaderOptions
from moorline.core.group.leader import Leader, LeaderState
from moorline.errors import MachineError

OPTIONS = (LeaderOptions, BorrowerTimes)
KINDS = [
    kind
    for _, kind in inspect.getmembers(events, inspect.isclass)
    if kind.__module__ == events.__name__ and kind not in OPTIONS
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_all_are_one_or_the_other_and_frozen(kind: type[Effect | Event]) -> None:
    assert issubclass(kind, Effect) != issubclass(kind, Event)
    assert kind.__struct_config__.frozen


def test_a_borrower_gives_up_before_its_leader_does() -> None:
    """Otherwise a stream is granted to another while the first still reads it."""
    times, options = BorrowerTimes(), LeaderOptions()
    assert times.ping_ms + times.ping_timeout_ms < options.borrower_ms
    assert options.resend_ms * 2 < options.borrower_ms


class Strange(Event, frozen=True):
    pass


def test_an_event_that_nobody_knows_is_a_mistake_of_ours() -> None:
    leader = Leader("g", "n1", 1, (), 1_000, LeaderOptions())
    with pytest.raises(MachineError, match="a Leader knows no Strange"):
        leader.handle(Strange(), 0)
    borrower = Borrower("b1", "ann", 16, BorrowerTimes())
    with pytest.raises(MachineError, match="a Borrower knows no Strange"):
        borrower.handle(Strange(), 0)
    assert (leader.state, borrower.state) == (LeaderState.LEADING, BorrowerState.CONNECTING)
