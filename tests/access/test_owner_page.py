"""Pages of owners: everybody once and by name, wherever what it has is kept."""

import random

import pytest

from moorline.access.owner_page import OldOwner, owner_page
from moorline.catalog.access import OwnerEntry


def test_an_old_certificate_is_listed_by_the_queues_that_it_has_here() -> None:
    """A09: an operator must know what to map."""
    found = [OwnerEntry("alice", "", 1, 2), OwnerEntry("cafe", "bob", 0, 0)]
    old = {"beef": OldOwner("", 3), "cafe": OldOwner("bob", 4), "dead": OldOwner("eve", 5)}
    page = [
        (one.name, one.principal, one.sessions, one.groups, one.queues)
        for one in owner_page(found, old, "", 9)
    ]
    assert page == [
        ("alice", "", 1, 2, 0),
        ("beef", "", 0, 0, 3),
        ("cafe", "bob", 0, 0, 4),
        ("dead", "eve", 0, 0, 5),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_pages_together_have_everybody_once(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"{number:04x}" for number in range(60)]
    stored = sorted(chance.sample(names, 30))
    old = {name: OldOwner("", 1) for name in chance.sample(names, 30)}
    listed, after, count = list[str](), "", chance.randrange(1, 9)
    while True:
        found = [OwnerEntry(name, "", 0, 0) for name in stored if name > after][:count]
        page = owner_page(found, old, after, count)
        if not page:
            break
        listed += [one.name for one in page]
        after = listed[-1]
    assert listed == sorted({*stored, *old})
