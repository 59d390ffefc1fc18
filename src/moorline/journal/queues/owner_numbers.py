"""Room: journal/queues. The owners of queues: a number for each, which a queue keeps, and what it has."""

from collections.abc import Iterable

from moorline.core.queue.owned import Owned


class OwnerNumbers(list[bytes]):
    """The owner with a number is in that place; the same after every start."""

    def __init__(self, owners: Iterable[bytes] = ()) -> None:
        super().__init__(owners)
        self._numbers = {owner: number for number, owner in enumerate(self)}
        by_owner: dict[bytes, Owned] = {}
        self.owned = [by_owner.setdefault(owner, Owned()) for owner in self]
        """What the owner of each number has; two numbers of one owner have the same."""

    def number_of(self, owner: bytes) -> int:
        number = self._numbers.get(owner)
        if number is None:
            number = self._numbers[owner] = len(self)
            self.append(owner)
            self.owned.append(Owned())
        return number

    def owned_by(self, owner: bytes) -> Owned:
        """What an owner has here; one that has nothing gets no number by this."""
        number = self._numbers.get(owner)
        return Owned() if number is None else self.owned[number]

    def counted(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """At the start, all rows of the index at once: from here on every change is added to it."""
        for number, queues, size in rows:
            self.owned[number].queues += queues
            self.owned[number].bytes += size

    def rename(self, before: bytes, now: bytes) -> bool:
        """False if nothing was that one's."""
        number = self._numbers.pop(before, None)
        if number is None:
            return False
        # Two numbers may be one owner's from now on: queues name theirs by number, and are not touched.
        self[number] = now
        first = self._numbers.setdefault(now, number)
        if first != number:
            gone, kept = self.owned[number], self.owned[first]
            kept.take_in(gone)
            self.owned = [kept if one is gone else one for one in self.owned]
        return True
