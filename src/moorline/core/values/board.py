"""Room: core/values. What one publisher has: paths, their values now, and who follows which.

    board.publish("/oslo/temperature", 4.5)     a value with an id, the same for all who follow it
    board.update(id, 4.6)                       waits for the commit
    batch = board.commit()                      visible from here on
    for followers, part in board.parts(batch):  who gets which part of it

Who follows is a tuple, shared by all ids that the same ones follow: so a batch for which that is one tuple,
as it mostly is, goes to all of them as it is, and costs nothing for each update.

Invariants:

    B1  a path has one id, and an id one path; an id is never given twice
    B2  what is followed is published, and each follower knows it
    B3  what waits for the commit is an id and a value each
"""

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from moorline.core.values.batch import Batch

Follower = TypeVar("Follower")
Followers = tuple[Follower, ...]


class Board(Generic[Follower]):
    """The values of a publisher. Plain calls, no states."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._values: dict[int, Any] = {}
        self._followers: dict[int, Followers[Follower]] = {}
        self._followed: dict[Follower, set[int]] = {}
        self._next_id = 1
        self._changed_ids: list[int] = []
        self._changed_values: list[Any] = []

    def __len__(self) -> int:
        return len(self._ids)

    # --- what is published ------------------------------------------------------------------------

    def publish(self, path: str, value: Any) -> int:
        """A new value, seen at once by whoever subscribes; of one that is there, `update` is to be used."""
        assert path not in self._ids, f"{path} is published"
        one = self._next_id
        self._next_id += 1
        self._ids[path], self._paths[one], self._values[one] = one, path, value
        return one

    def unpublish(self, one: int) -> Followers[Follower]:
        """Takes it away; returns who followed it, and does no longer."""
        del self._ids[self._paths.pop(one)]
        del self._values[one]
        left = self._followers.pop(one, ())
        for follower in left:
            self._forget(follower, one)
        return left

    def id_of(self, path: str) -> int | None:
        return self._ids.get(path)

    def path_of(self, one: int) -> str:
        return self._paths[one]

    def value_of(self, one: int) -> Any:
        """As it was committed."""
        return self._values[one]

    def paths(self) -> Iterable[str]:
        return self._ids

    # --- changes ----------------------------------------------------------------------------------

    def update(self, one: int, value: Any) -> None:
        self._changed_ids.append(one)
        self._changed_values.append(value)

    def update_all(self, ids: Sequence[int], values: Sequence[Any]) -> None:
        assert len(ids) == len(values), "a value for each id"
        self._changed_ids.extend(ids)
        self._changed_values.extend(values)

    @property
    def changed(self) -> tuple[list[int], list[Any]]:
        """What waits for the commit."""
        return self._changed_ids, self._changed_values

    def take_back(self, place: int) -> None:
        """An update that waits is not wanted any more."""
        del self._changed_ids[place], self._changed_values[place]

    def commit(self) -> Batch | None:
        """What was updated since the last one is visible now; None if nothing was."""
        ids, values = self._changed_ids, self._changed_values
        if not ids:
            return None
        self._changed_ids, self._changed_values = [], []
        if not self._values.keys() >= set(ids):
            # Some were unpublished meanwhile: nobody follows them any more.
            kept = [place for place, one in enumerate(ids) if one in self._values]
            ids, values = [ids[place] for place in kept], [values[place] for place in kept]
            if not ids:
                return None
        # The last one of an id counts: a dict takes them in their order.
        self._values.update(zip(ids, values, strict=True))
        return Batch(ids, values)

    def parts(self, batch: Batch) -> list[tuple[Followers[Follower], Batch]]:
        """The batch cut by who follows; the batch itself where the same ones follow all of it.

        One follower may be in several: what it gets of them together is its batch.
        """
        found = [self._followers.get(one, ()) for one in batch.ids]
        first = found[0]
        # By identity first, which is all that it mostly takes.
        if found.count(first) == len(found):
            return [(first, batch)] if first else []
        places: dict[Followers[Follower], list[int]] = {}
        for place, followers in enumerate(found):
            if followers:
                places.setdefault(followers, []).append(place)
        return [
            (followers, Batch([batch.ids[at] for at in some], [batch.values[at] for at in some]))
            for followers, some in places.items()
        ]

    # --- who follows ------------------------------------------------------------------------------

    def follow(self, follower: Follower, ids: Iterable[int]) -> None:
        """From now on. Twice is once."""
        known = self._followed.setdefault(follower, set())
        # Ids that the same ones followed before have the same tuple afterwards.
        made: dict[int, Followers[Follower]] = {}
        for one in ids:
            if one in known:
                continue
            assert one in self._values, f"nothing is published as {one}"
            known.add(one)
            before = self._followers.get(one, ())
            after = made.get(id(before))
            if after is None:
                after = made[id(before)] = (*before, follower)
            self._followers[one] = after

    def unfollow(self, follower: Follower, ids: Iterable[int] | None = None) -> None:
        """These, or all. What it does not follow is passed over."""
        known = self._followed.get(follower)
        if known is None:
            return
        made: dict[int, Followers[Follower]] = {}
        for one in list(known if ids is None else ids):
            if one not in known:
                continue
            before = self._followers.pop(one)
            after = made.get(id(before))
            if after is None:
                after = made[id(before)] = tuple(other for other in before if other is not follower)
            if after:
                self._followers[one] = after
            self._forget(follower, one)

    def followers_of(self, one: int) -> Followers[Follower]:
        return self._followers.get(one, ())

    def _forget(self, follower: Follower, one: int) -> None:
        known = self._followed[follower]
        known.discard(one)
        if not known:
            del self._followed[follower]

    def check(self) -> None:
        """Asserts the invariants."""
        assert len(self._ids) == len(self._paths) == len(self._values), "B1: of one size"
        assert all(self._paths[one] == path for path, one in self._ids.items()), "B1: one path"
        assert all(one < self._next_id for one in self._paths), "B1: never given"
        assert self._followers.keys() <= self._values.keys(), "B2: not published"
        for one, followers in self._followers.items():
            assert followers, "B2: nobody follows it"
            assert len(set(map(id, followers))) == len(followers), "B2: twice"
            assert all(one in self._followed[follower] for follower in followers), "B2: not known"
        total = sum(map(len, self._followed.values()))
        assert total == sum(map(len, self._followers.values())), "B2: more than is followed"
        assert len(self._changed_ids) == len(self._changed_values), "B3: of one length"
