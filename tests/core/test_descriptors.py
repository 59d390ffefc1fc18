"""The account of descriptors: shares within every limit, and nothing that is given out twice or kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core import descriptors
from moorline.core.descriptors import Descriptors, Shares, TooFew, Use, shared_out
from moorline.limits import CONNECTIONS_MIN, OPEN_FILES_MAX


@given(
    limit=st.integers(0, 1 << 21), wanted=st.integers(1, 1_000_000), shards=st.integers(0, 1_024)
)
def test_shares_are_within_the_limit_or_it_is_said_how_many_are_needed(
    limit: int, wanted: int, shards: int
) -> None:
    too_few: TooFew | None = None
    try:
        shares = shared_out(limit, wanted, shards)
    except TooFew as error:
        too_few = error
    if too_few is not None:
        assert too_few.needed > limit
        assert shared_out(too_few.needed, wanted, shards).most[Use.CONNECTIONS] >= 1
        with pytest.raises(TooFew):
            shared_out(too_few.needed - 1, wanted, shards)
        return
    assert shares.own + sum(shares.most.values()) <= shares.limit == limit
    assert set(shares.most) == set(Use)
    assert min(shares.most.values()) > 0
    assert min(wanted, CONNECTIONS_MIN) <= shares.most[Use.CONNECTIONS] <= wanted
    assert 0 < shares.passing < shares.own


def test_a_usual_limit_leaves_what_was_asked_for() -> None:
    shares = shared_out(1 << 16, 15_000, 8)
    assert shares.most[Use.CONNECTIONS] == 15_000
    assert shares.most[Use.QUEUE_FILES] == OPEN_FILES_MAX
    assert shared_out(4_096, 15_000, 8).most[Use.CONNECTIONS] > 3_000


@given(st.lists(st.tuples(st.sampled_from(Use), st.booleans()), max_size=300))
def test_no_use_takes_more_than_its_share(steps: list[tuple[Use, bool]]) -> None:
    account = Descriptors(Shares(100, 70, 10, dict.fromkeys(Use, 3)))
    held = dict.fromkeys(Use, 0)
    for use, is_take in steps:
        if is_take and account.has_room(use):
            account.take(use)
            held[use] += 1
        elif not is_take and held[use]:
            account.give_back(use)
            held[use] -= 1
        account.check()
        assert account.held(use) == held[use] <= 3
    for use, count in held.items():
        for _ in range(count):
            account.give_back(use)
        assert account.held(use) == 0


def test_what_is_not_there_cannot_be_taken_or_given_back() -> None:
    account = Descriptors(Shares(100, 70, 10, dict.fromkeys(Use, 1)))
    with pytest.raises(AssertionError):
        account.give_back(Use.HTTP)
    account.take(Use.HTTP)
    with pytest.raises(AssertionError):
        account.take(Use.HTTP)


def test_a_high_number_shows_that_somebody_took_more_than_was_planned() -> None:
    account = Descriptors(Shares(100, 70, 10, dict.fromkeys(Use, 1)))
    assert not account.is_nearly_full(94)
    assert account.is_nearly_full(95)


@pytest.mark.parametrize("broken", ["N1", "N2"])
def test_a_broken_state_is_found(broken: str) -> None:
    account = Descriptors(Shares(100, 70, 10, dict.fromkeys(Use, 3)))
    account.check()
    if broken == "N1":
        account._held[Use.HTTP] = 4
    else:
        account.shares = Shares(80, 70, 10, dict.fromkeys(Use, 3))
    with pytest.raises(AssertionError, match=broken):
        account.check()


def test_what_would_be_enough_is_found_by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try that fails must not search by itself: they would be thousands."""
    tries: list[int] = []
    shares = descriptors._shares

    def counted(limit: int, connections_wanted: int, shards: int) -> Shares | None:
        tries.append(limit)
        return shares(limit, connections_wanted, shards)

    monkeypatch.setattr(descriptors, "_shares", counted)
    with pytest.raises(TooFew) as caught:
        shared_out(64, 1_000, 4_000)
    assert len(tries) <= 26
    assert shared_out(caught.value.needed, 1_000, 4_000)
    with pytest.raises(TooFew):
        shared_out(caught.value.needed - 1, 1_000, 4_000)
