"""Room: core/records. Who waits for a sync, which scans are under way, and at what rate they begin.

Equal subscriptions that are admitted at one step share a scan, and those that come from one place share a
replay: whoever was cut with others comes back with the same cursor. One that was too slow for others scans
alone.

Invariant, looked at by `check`:

    AD1  whoever is SCANNING is in one scan, of its own audience; nobody else is, and none is for nobody
"""

from collections import deque
from collections.abc import Mapping

from moorline.core.effects import Effect
from moorline.core.records.audience import Audience
from moorline.core.records.cursor import misfit
from moorline.core.records.feed_events import BeginScan, CancelScan, How, StartSync
from moorline.core.records.scan_room import RoomLeft, ScanRoom
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.subscription import Scan, Standing, Subscription
from moorline.core.records.table import Table
from moorline.core.sets.digest import Digest
from moorline.limits import RECORD_LOOKED_AT_MAX, RECORD_SCANS_AT_ONCE_MAX, RECORD_WAITING_MAX

Beginning = tuple[How, Snapshot | None, Digest | None]
"""How, and for a replay from where, with the digest there."""


class Admission:
    def __init__(self, subscriptions: Mapping[int, Subscription], per_s: int) -> None:
        self.scans: dict[int, Scan] = {}
        self._subscriptions = subscriptions
        self._per_s = per_s
        self._waiting: deque[int] = deque()
        self._allowance = 1.0
        self._allowed_ms = 0
        self._last_scan = 0

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= RECORD_WAITING_MAX

    def add(self, found: Subscription) -> None:
        self._waiting.append(found.number)

    def leave(self, found: Subscription) -> list[Effect]:
        """It is in no scan any more."""
        scan = self.scans.get(found.scan)
        found.scan = 0
        if scan is None:
            return []
        scan.members.discard(found.number)
        if scan.members:
            return []
        # Nobody waits for it any more.
        del self.scans[scan.number]
        return [CancelScan(scan.number)]

    def admit(
        self,
        table: Table,
        rights_version: int,
        step: int,
        snapshot: Snapshot,
        room: ScanRoom,
        now_ms: int,
    ) -> list[Effect]:
        """At the step that has just ended, as many as the rate and the room allow."""
        gained = (now_ms - self._allowed_ms) * self._per_s / 1_000
        self._allowance = min(max(1.0, self._per_s / 10), self._allowance + gained)
        self._allowed_ms = now_ms
        shared: dict[tuple[int, Beginning], Scan] = {}
        begun: list[tuple[Scan, Snapshot | None, Digest | None]] = []
        left: deque[int] = deque()
        free = RoomLeft(room)
        # The whole queue only where equal ones may join: else thousands would be looked at in every step.
        while self._waiting and (shared or (free.scans > 0 and self._may_begin())):
            if len(left) >= RECORD_LOOKED_AT_MAX and not shared:
                break
            number = self._waiting.popleft()
            found = self._subscriptions.get(number)
            if found is None or found.standing is not Standing.WAITING:
                continue
            how, since, digest = beginning = self._beginning(found, table, snapshot)
            same = found.audience.number, beginning
            scan = None if found.is_alone else shared.get(same)
            is_ready = found.full_ms is None and found.rights_version >= rights_version
            is_offer = how is How.DIGEST
            may_begin = self._may_begin() and free.has(found.principal, is_offer=is_offer)
            if not is_ready or (scan is None and not may_begin):
                left.append(number)
                continue
            if scan is None:
                free.take(found.principal, is_offer=is_offer)
                scan = self._begin(found.audience, how, step, snapshot)
                scan.principal = found.principal
                begun.append((scan, since, digest))
                if not found.is_alone:
                    shared[same] = scan
            scan.members.add(number)
            found.scan = scan.number
            found.move(Standing.SCANNING)
        if len(left) >= RECORD_LOOKED_AT_MAX:
            # One principal's may stand before all others: those behind them come first at the next step.
            self._waiting.extend(left)
        else:
            self._waiting.extendleft(reversed(left))
        return [effect for one in begun for effect in _begin_effects(*one)]

    def _may_begin(self) -> bool:
        return self._allowance >= 1 and len(self.scans) < RECORD_SCANS_AT_ONCE_MAX

    def _begin(self, audience: Audience, how: How, step: int, snapshot: Snapshot) -> Scan:
        self._allowance -= 1
        self._last_scan += 1
        scan = Scan(self._last_scan, how, audience, step, snapshot, set())
        self.scans[scan.number] = scan
        return scan

    def _beginning(self, found: Subscription, table: Table, until: Snapshot) -> Beginning:
        if found.snapshot is not None and found.digest is not None:
            # It was synced here, and the ring does not reach back to it: the log may.
            if table.reach.reaches(found.snapshot, until):
                return How.REPLAY, found.snapshot, found.digest
            return How.DIGEST, None, None
        wanted = found.wanted
        cursor, of = wanted.cursor, (wanted.filter.hash, wanted.permit.hash)
        if cursor is not None and misfit(cursor, table, *of, until) is None:
            return How.REPLAY, cursor.snapshot, cursor.digest
        return wanted.otherwise, None, None

    def check(self) -> None:
        scanning: dict[int, int] = {}
        for scan in self.scans.values():
            assert scan.members, "AD1: a scan for nobody"
            for number in scan.members:
                assert number not in scanning, f"AD1: {number} is in two scans"
                scanning[number] = scan.number
                is_own = self._subscriptions[number].audience is scan.audience
                assert is_own, f"AD1: {number} is in a scan of others"
        for found in self._subscriptions.values():
            is_scanning = found.standing is Standing.SCANNING
            is_in = scanning.get(found.number, 0) == found.scan != 0
            assert is_in == is_scanning, f"AD1: {found.number} is {found.standing.name}"


def _begin_effects(scan: Scan, since: Snapshot | None, digest: Digest | None) -> list[Effect]:
    to = tuple(sorted(scan.members))
    number = scan.audience.number
    return [
        StartSync(to, scan.how),
        BeginScan(
            scan.number,
            scan.how,
            number,
            scan.step,
            scan.snapshot,
            to,
            since,
            digest,
            scan.principal,
        ),
    ]
