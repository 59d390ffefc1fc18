"""Room: records. The slots of one database: scans that read, and offers that wait for questions.

    slots = ScanSlots(connections_max)
    room = slots.room(table)                 what may begin at the step that ends now
    slot = slots.take(principal, is_offer=True)
    slot.read(); slot.end()                 it reads no more; it is over

A slot is taken when a scan begins, and not waited for: whoever waited with the snapshot of its
step held would hold a connection that the scan before it needs.
"""

from collections import Counter
from collections.abc import Callable

from moorline.core.records.scan_room import ScanRoom


class ScanSlot:
    def __init__(self, slots: "ScanSlots", principal: str, *, is_offer: bool) -> None:
        self._slots = slots
        self._principal = principal
        self._is_offer = is_offer
        self._is_reading = True

    def read(self) -> None:
        """It has read what it scans; an offer stays one."""
        if self._is_reading:
            self._is_reading = False
            self._slots.give_back(self._slots.scans_of, self._principal)

    def end(self) -> None:
        self.read()
        if self._is_offer:
            self._is_offer = False
            self._slots.give_back(self._slots.offers_of, self._principal)


class ScanSlots:
    def __init__(self, connections_max: int) -> None:
        # A scan has a connection, and for a moment another that holds its snapshot; an offer holds one and
        # fetches by another; steps need some as well.
        self.scans_max = max(1, connections_max // 2 - 1)
        self.offers_max = max(1, connections_max // 4)
        self.scans_of: Counter[str] = Counter()
        self.offers_of: Counter[str] = Counter()
        self._waiting: dict[str, Callable[[], None]] = {}

    @property
    def is_wanted(self) -> bool:
        """Somebody waits for a slot: those who have one are not waited for as long."""
        return bool(self._waiting)

    def room(self, table: str, wake: Callable[[], None]) -> ScanRoom:
        """For a table in which somebody may wait: `leave` says that nobody does."""
        self._waiting.setdefault(table, wake)
        return ScanRoom(
            self.scans_max - self.scans_of.total(),
            self.offers_max - self.offers_of.total(),
            max(1, self.scans_max - 1),
            max(1, self.offers_max - 1),
            self.scans_of,
            self.offers_of,
        )

    def leave(self, table: str) -> None:
        """Nobody waits there any more."""
        self._waiting.pop(table, None)

    def take(self, principal: str, *, is_offer: bool) -> ScanSlot:
        self.scans_of[principal] += 1
        if is_offer:
            self.offers_of[principal] += 1
        return ScanSlot(self, principal, is_offer=is_offer)

    def give_back(self, counts: "Counter[str]", principal: str) -> None:
        counts[principal] -= 1
        if not counts[principal]:
            del counts[principal]
        for wake in self._waiting.values():
            wake()
