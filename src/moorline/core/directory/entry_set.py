"""Room: core/directory. The entries of one publisher at one resolver, as a set that two sides agree on.

    entries.change([("/a", DEFAULT)], [])    what comes and what goes, in one step
    entries.digest()                         at once, however many there are
    yield from entries.summing()             makes the sketch and the estimate, step by step

A path is kept once, in the tree; here is one more place for it in a dict, with its flags. What a
reconciliation needs beyond the digest is made when it is first asked for: a sketch is linear, so that what
changes while it is made is added to it, and what was there before is added step by step.
"""

from collections.abc import Generator, Iterable, Iterator

import numpy as np

from moorline.core.directory.path import entry_id
from moorline.core.sets.digest import HASH_BYTES, Digest
from moorline.core.sets.estimate import Estimate
from moorline.core.sets.hashing import hash_ids
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.prefix import Prefix
from moorline.core.sets.sketch import CELLS_FULL, Salt, Sketch, Words
from moorline.limits import ENTRIES_HASHED_AT_ONCE

Entry = tuple[str, int]


class EntrySet:
    """Paths with their flags."""

    def __init__(self, salt: bytes) -> None:
        self.salt = Salt(salt)
        self.salt_bytes = salt
        self._flags: dict[str, int] = {}
        self._mixed = 0
        self._sketch: Sketch | None = None
        self._estimate: Estimate | None = None
        self._is_summed = False
        self._frozen: IdSet | None = None
        self._names: list[str] = []
        """The paths in the order in which the frozen set was given them."""

    def __len__(self) -> int:
        return len(self._flags)

    def __iter__(self) -> Iterator[str]:
        return iter(self._flags)

    def __contains__(self, path: str) -> bool:
        return path in self._flags

    def flags_of(self, path: str) -> int | None:
        return self._flags.get(path)

    def items(self) -> Iterable[Entry]:
        return self._flags.items()

    # --- changes ----------------------------------------------------------------------------------

    def change(self, put: Iterable[Entry], gone: Iterable[str]) -> tuple[list[Entry], list[str]]:
        """Which of them are new or have other flags; and which of those that go were there."""
        toggled: list[bytes] = []
        changed: list[Entry] = []
        for path, flags in put:
            before = self._flags.get(path)
            if before == flags:
                continue
            if before is not None:
                toggled.append(entry_id(path, before))
            self._flags[path] = flags
            toggled.append(entry_id(path, flags))
            changed.append((path, flags))
        removed: list[str] = []
        for path in gone:
            before = self._flags.pop(path, None)
            if before is not None:
                toggled.append(entry_id(path, before))
                removed.append(path)
        self._toggle(toggled)
        return changed, removed

    def take(self, count: int) -> list[str]:
        """Removes so many, whichever: for a publisher that is gone, whose digest nobody asks for."""
        taken: list[str] = []
        while self._flags and len(taken) < count:
            taken.append(self._flags.popitem()[0])
        return taken

    def _toggle(self, ids: list[bytes]) -> None:
        if not ids:
            return
        hashes = hash_ids(ids)
        mixed = np.bitwise_xor.reduce(hashes, axis=0)
        self._mixed ^= int(mixed[0]) << 64 | int(mixed[1])
        if self._sketch is not None and self._estimate is not None:
            self._sketch.toggle(hashes[:, 0])
            self._estimate.toggle(hashes[:, 0])
        self._frozen = None

    # --- what a reconciliation asks ---------------------------------------------------------------

    def digest(self) -> Digest:
        return Digest(len(self._flags), self._mixed.to_bytes(HASH_BYTES, "big"))

    def summing(self) -> Generator[None]:
        """Makes the sketch and the estimate; may be interrupted at each yield, and changed meanwhile.

        One at a time, and nobody forgets them meanwhile.
        """
        if self._is_summed:
            return
        # From here on changes go into these; what is there now is added step by step, in any order.
        sketch, estimate = Sketch(self.salt, CELLS_FULL), Estimate(self.salt)
        self._sketch, self._estimate = sketch, estimate
        for ids in self._portions(list(self._flags.items())):
            high = hash_ids(ids)[:, 0]
            sketch.toggle(high)
            estimate.toggle(high)
            yield
        self._is_summed = True

    def forget_sums(self) -> None:
        """Both sides agree: the next difference makes them anew."""
        self._sketch = self._estimate = self._frozen = None
        self._names = []
        self._is_summed = False

    def sketch(self, cells: int) -> Sketch:
        """Behind `summing`. No larger than the full one."""
        assert self._is_summed
        assert self._sketch is not None
        return self._sketch.folded(cells)

    def estimate(self) -> Estimate:
        assert self._is_summed
        assert self._estimate is not None
        return Estimate(self.salt, self._estimate.bits.copy())

    def hashing(self) -> Generator[None, None, tuple[list[str], Words]]:
        """The paths, and the hashes of their entries, as they were when it began."""
        entries = list(self._flags.items())
        parts = []
        for ids in self._portions(entries):
            parts.append(hash_ids(ids))
            yield
        names = [path for path, _ in entries]
        return names, np.concatenate(parts) if parts else np.empty((0, 2), np.uint64)

    def freeze(self, names: list[str], frozen: IdSet) -> None:
        """Keeps what walks need until the next change."""
        self._names, self._frozen = names, frozen

    @property
    def frozen(self) -> IdSet | None:
        return self._frozen

    def named(self, prefixes: Iterable[Prefix]) -> list[str]:
        """The paths of the entries below prefixes of hashes, as they are frozen; a prefix that names several
        where one was meant is passed over, since nobody knows which is."""
        frozen = self._frozen
        assert frozen is not None
        found: list[str] = []
        for prefix in prefixes:
            if prefix.bits == 0:
                return list(self._names)
            part = frozen.slice_of(prefix)
            if part.stop - part.start == 1:
                found.append(self._names[int(frozen.order[part.start])])
        return found

    @staticmethod
    def _portions(entries: list[Entry]) -> Iterator[list[bytes]]:
        for start in range(0, len(entries), ENTRIES_HASHED_AT_ONCE):
            some = entries[start : start + ENTRIES_HASHED_AT_ONCE]
            yield [entry_id(path, flags) for path, flags in some]
