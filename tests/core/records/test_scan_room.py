"""Places of scans: what is full is full for all, and no principal has them all."""

import random

import pytest

from moorline.core.records.scan_room import RoomLeft, ScanRoom


def test_offers_have_places_of_their_own_and_take_none_of_the_last_scans() -> None:
    left = RoomLeft(ScanRoom(scans=3, offers=1))
    left.take("a", is_offer=True)
    assert not left.has("b", is_offer=True), "the one place of an offer is taken"
    assert left.has("b", is_offer=False)
    left.take("b", is_offer=False)
    left.take("b", is_offer=False)
    assert not left.has("c", is_offer=False)


def test_what_a_principal_has_already_counts() -> None:
    room = ScanRoom(scans_each=2, offers_each=1, scans_of={"a": 1, "b": 2}, offers_of={"a": 1})
    left = RoomLeft(room)
    assert not left.has("a", is_offer=True)
    assert left.has("a", is_offer=False)
    assert not left.has("b", is_offer=False)
    left.take("a", is_offer=False)
    assert not left.has("a", is_offer=False)
    assert left.has("c", is_offer=True)
    assert (room.scans_of, room.offers_of) == ({"a": 1, "b": 2}, {"a": 1}), "the room is as it was"


@pytest.mark.parametrize("seed", range(20))
def test_no_bound_is_passed_whatever_is_asked(seed: int) -> None:
    chance = random.Random(seed)
    room = ScanRoom(
        scans=chance.randrange(8),
        offers=chance.randrange(8),
        scans_each=chance.randrange(8),
        offers_each=chance.randrange(8),
    )
    left = RoomLeft(room)
    taken: list[tuple[str, bool]] = []
    for _ in range(60):
        who, is_offer = chance.choice("abc"), chance.random() < 0.5
        if left.has(who, is_offer=is_offer):
            left.take(who, is_offer=is_offer)
            taken.append((who, is_offer))
    offers = [who for who, is_offer in taken if is_offer]
    assert len(taken) <= room.scans
    assert len(offers) <= room.offers
    for who in "abc":
        assert sum(one == who for one, _ in taken) <= room.scans_each
        assert offers.count(who) <= room.offers_each
