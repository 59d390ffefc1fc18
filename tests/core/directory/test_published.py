"""What a publisher has published, and what each resolver is to have of it."""

import random

import pytest

from moorline.core.directory.path import DEFAULT, entry_id
from moorline.core.directory.published import EntrySet, MemberView, PublishedPaths
from moorline.core.sets.digest import Digest


def digest_of(entries: dict[str, int]) -> Digest:
    return Digest.of(entry_id(path, flags) for path, flags in entries.items())


def test_what_is_published_twice_is_there_once() -> None:
    published = PublishedPaths()
    assert published.change({"/a": 0}) == {"/a": 0}
    assert published.change({"/a": 0}) == {}
    assert published.digest() == digest_of({"/a": 0})
    assert published.change({"/a": DEFAULT}) == {"/a": DEFAULT}
    assert published.digest() == digest_of({"/a": DEFAULT})
    assert published.change({"/a": None, "/b": None}) == {"/a": None}
    assert published.digest() == Digest.empty()


@pytest.mark.parametrize("seed", range(10))
def test_the_digest_is_that_of_the_entries(seed: int) -> None:
    chance = random.Random(seed)
    published, model = PublishedPaths(), dict[str, int]()
    view = MemberView(published)
    for _ in range(200):
        path = f"/{chance.randrange(20)}"
        flags = chance.choice([None, 0, 1, 2])
        published.change({path: flags})
        model.pop(path, None)
        if flags is not None:
            model[path] = flags
        if chance.random() < 0.1:
            view.refused = {f"/{chance.randrange(20)}": "DENIED" for _ in range(3)}
        assert published.digest() == digest_of(model)
        left = {path: flags for path, flags in model.items() if path not in view.refused}
        assert view.digest() == digest_of(left)
        assert EntrySet(view.copied()).set.digest() == view.digest()


def test_entries_are_found_by_their_hashes() -> None:
    published = PublishedPaths()
    published.change({f"/{place}": place % 3 for place in range(100)})
    entries = EntrySet(MemberView(published).copied())
    wanted = {f"/{place}": place % 3 for place in (3, 50, 99)}
    highs = EntrySet(_view_of(wanted).copied()).set.high
    assert dict(entries.having(highs)) == wanted


def test_a_copy_is_of_its_moment_whatever_is_published_meanwhile() -> None:
    published = PublishedPaths()
    published.change({f"/{place}": 0 for place in range(1_000)})
    view = MemberView(published)
    digest, copied = view.digest(), view.copied()
    view.refused["/7"] = "DENIED"
    published.change({"/new": 0, "/8": None})
    assert EntrySet(copied).set.digest() == digest
    assert EntrySet(view.copied()).set.digest() == view.digest() != digest


def test_entries_come_in_the_order_in_which_they_were_published() -> None:
    published = PublishedPaths()
    published.change({f"/{place:04}": 0 for place in range(1_000)})
    entries = EntrySet(MemberView(published).copied())
    assert [path for path, _ in entries.having(entries.set.high)] == [
        f"/{place:04}" for place in range(1_000)
    ]


def _view_of(entries: dict[str, int]) -> MemberView:
    published = PublishedPaths()
    published.change(dict(entries))
    return MemberView(published)
