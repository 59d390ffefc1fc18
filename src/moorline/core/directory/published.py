"""Room: core/directory. What a publisher has published, and what each resolver is to have of it.

    published = PublishedPaths()
    published.change({"/oslo/temperature": 0, "/oslo/old": None})
    view = MemberView(published)         what one resolver is to have: all but what it has refused
    view.digest()

One path that a resolver refuses must not make it differ for ever from what it should have: the refused ones
are left out of that member's set, and only of that one's.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from moorline.core.directory.path import entry_id, entry_of
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.core.sets.id_set import IdSet, digest_of
from moorline.core.sets.sketch import Words


class PublishedPaths:
    """Paths with their flags, and the digest of all. Membership decides before XOR does."""

    def __init__(self) -> None:
        self._flags: dict[str, int] = {}
        self._digest = Digest.empty()
        self._changes = 0
        """Counts them: whoever made something of the set knows whether it is still that."""

    def __len__(self) -> int:
        return len(self._flags)

    @property
    def changes(self) -> int:
        return self._changes

    def digest(self) -> Digest:
        return self._digest

    def flags_of(self, path: str) -> int | None:
        return self._flags.get(path)

    def copied(self) -> tuple[list[str], list[int]]:
        """Paths, and the flags of each: at once, so that a thread may work on them while more comes."""
        return list(self._flags), list(self._flags.values())

    def change(self, wanted: Mapping[str, int | None]) -> dict[str, int | None]:
        """Flags of paths that are published from now on, None for those that are not; returns what is new."""
        new: dict[str, int | None] = {}
        gone_ids: list[bytes] = []
        come_ids: list[bytes] = []
        for path, flags in wanted.items():
            before = self._flags.get(path)
            if before == flags:
                continue
            new[path] = flags
            if before is not None:
                gone_ids.append(entry_id(path, before))
                del self._flags[path]
            if flags is not None:
                come_ids.append(entry_id(path, flags))
                self._flags[path] = flags
        self._digest = toggled(self._digest, gone_ids, -1)
        self._digest = toggled(self._digest, come_ids, 1)
        self._changes += bool(new)
        return new


class MemberView:
    """What one resolver is to have."""

    def __init__(self, published: PublishedPaths) -> None:
        self._published = published
        self.refused: dict[str, str] = {}
        """Paths that it does not take, with the code why."""

    def digest(self) -> Digest:
        left_out = [
            entry_id(path, flags)
            for path in self.refused
            if (flags := self._published.flags_of(path)) is not None
        ]
        return toggled(self._published.digest(), left_out, -1)

    def copied(self) -> "Copied":
        return Copied(*self._published.copied(), frozenset(self.refused))


class Copied(NamedTuple):
    """A view as it was at one moment, whatever is published since."""

    paths: list[str]
    flags: list[int]
    refused: frozenset[str]


class EntrySet:
    """What a comparison works on, and finds entries by their hashes in. It is made of a copy, since a million
    entries are hashed in a thread."""

    def __init__(self, copied: Copied) -> None:
        paths, flags, refused = copied
        self._ids = [
            entry_id(path, own)
            for path, own in zip(paths, flags, strict=True)
            if path not in refused
        ]
        hashes = hash_ids(self._ids)
        self.set = IdSet(hashes[:, 0], hashes[:, 1])

    def having(self, highs: Words) -> list[tuple[str, int]]:
        """The entries with these high halves of their hashes, in the order in which they were published.

        That is mostly the order of their paths, or near it, in which a resolver puts them away at a third of
        the cost of any other.
        """
        places = np.flatnonzero(np.isin(self.set.high, highs))
        return [entry_of(self._ids[place]) for place in np.sort(self.set.order[places]).tolist()]


def toggled(digest: Digest, ids: list[bytes], sign: int) -> Digest:
    """With these more or less; whoever calls knows that they were not there, or were."""
    if not ids:
        return digest
    hashes = hash_ids(ids)
    mixed = digest.merge(digest_of(hashes[:, 0], hashes[:, 1])).hash
    return Digest(digest.count + sign * len(ids), mixed)
