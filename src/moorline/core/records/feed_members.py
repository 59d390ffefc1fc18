"""Room: core/records. Who subscribes to a table's feed, and how each comes from one standing to the next.

    members.add(event)                       WAITING, among those who wait for a scan
    members.synced(found, scan, digest)      BEHIND, at the step of its scan
    members.go_live(found)                   LIVE, with all others of its audience
    members.hold(found, step, snapshot)      BEHIND again: nothing is sent to it for now
    members.wait(found, how)                 back to the beginning
    members.boot(found, why)                 it is cut, and comes back

Invariants, looked at by `check`:

    RF2  all who are LIVE are sent to, all who are behind are brought on, and nobody is ahead of the feed
    RF3  nobody is LIVE by a permit that is older than the version of rights that was heard of
    RF5  equal subscriptions are one audience, and those admitted together share a scan
    RF7  nobody who is LIVE or behind waits for a scan (and whoever scans is in its own: AD1)
"""

from moorline.core.chance import Chance
from moorline.core.effects import Effect
from moorline.core.records.admission import Admission
from moorline.core.records.audience import Audience, Audiences
from moorline.core.records.fan_out import FanOut
from moorline.core.records.feed_events import Boot, How, Subscribed, Wanted
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.subscription import Scan, Standing, Subscription
from moorline.core.records.table import Table
from moorline.core.sets.digest import Digest
from moorline.limits import RECORD_RETURN_MS_MAX


class FeedMembers:
    def __init__(self, table: Table, chance: Chance, admitted_per_s: int) -> None:
        self.by_number: dict[int, Subscription] = {}
        self.audiences = Audiences(table)
        self.fan_out = FanOut(self.audiences, self.by_number)
        self.admission = Admission(self.by_number, admitted_per_s)
        self.behind: set[int] = set()
        self.full: set[int] = set()
        """Those whose buffer is full."""
        self.told_ms: dict[int, int] = {}
        """When each audience was told its digest last."""
        self._chance = chance
        self._by_connection: dict[int, set[int]] = {}

    # --- to come and to go ------------------------------------------------------------------------

    def add(self, event: Subscribed) -> None:
        assert event.subscription not in self.by_number, "a number of its own"
        audience = self.audiences.join(event.wanted.filter, event.wanted.permit)
        audience.members.add(event.subscription)
        found = Subscription(
            event.subscription, event.connection, event.wanted, audience, event.principal
        )
        self.by_number[found.number] = found
        self._by_connection.setdefault(found.connection, set()).add(found.number)
        # Registered before its scan: what happens from now on is heard of.
        self.admission.add(found)

    def remove(self, number: int) -> list[Effect]:
        found = self.by_number.pop(number, None)
        if found is None:
            return []
        numbers = self._by_connection[found.connection]
        numbers.discard(number)
        if not numbers:
            del self._by_connection[found.connection]
        audience = found.audience
        effects = self.admission.leave(found)
        audience.members.discard(number)
        self.fan_out.moved(audience)
        self.behind.discard(number)
        self.full.discard(number)
        if not audience.members:
            self.audiences.leave(audience)
            self.fan_out.forget(audience)
            self.told_ms.pop(audience.number, None)
        return effects

    def remove_connection(self, connection: int) -> list[Effect]:
        gone = sorted(self._by_connection.get(connection, ()))
        return [effect for number in gone for effect in self.remove(number)]

    def boot(self, found: Subscription, why: str) -> list[Effect]:
        effects = self.remove(found.number)
        return [*effects, Boot(found.number, why, self.return_ms())]

    def return_ms(self) -> int:
        return self._chance.randint(0, RECORD_RETURN_MS_MAX)

    # --- from one standing to the next ------------------------------------------------------------

    def wait(self, found: Subscription, how: How | None) -> list[Effect]:
        """Back to the beginning: by the log from its step, or, with a `how`, without it."""
        effects = self.admission.leave(found)
        if how is not None:
            self.forget_cursor(found, how)
        self.fan_out.moved(found.audience)
        self.behind.discard(found.number)
        found.is_partial = found.is_torn = False
        found.move(Standing.WAITING)
        self.admission.add(found)
        return effects

    def forget_cursor(self, found: Subscription, how: How) -> None:
        wanted = found.wanted
        found.snapshot = found.digest = None
        found.wanted = Wanted(wanted.filter, wanted.permit, wanted.rights_version, None, how)

    def synced(self, found: Subscription, scan: Scan, digest: Digest) -> None:
        """It has the table at the scan's step."""
        found.at, found.snapshot, found.digest = scan.step, scan.snapshot, digest
        found.is_proven = scan.how is not How.REPLAY
        self.admission.leave(found)
        found.move(Standing.BEHIND)
        self.behind.add(found.number)

    def hold(self, found: Subscription, step: int, snapshot: Snapshot | None) -> None:
        """Nothing more is sent to it for now; what it misses is in the ring, and in the log."""
        if found.standing is Standing.LIVE:
            found.move(Standing.BEHIND)
            self.behind.add(found.number)
            found.at, found.snapshot = step, snapshot
            found.digest = found.audience.digest()
            found.is_proven = found.audience.is_proven
            found.is_partial = self.fan_out.has_begun(found.audience)
            found.is_torn = self.fan_out.is_unsettled or found.digest is None
            self.fan_out.moved(found.audience)

    def go_live(self, found: Subscription) -> None:
        found.snapshot = found.digest = None
        found.is_proven = found.is_partial = False
        found.move(Standing.LIVE)
        self.behind.discard(found.number)
        self.fan_out.moved(found.audience)

    def live_of(self, audience: Audience) -> tuple[int, ...]:
        return self.fan_out.live_of(audience)

    # --- what always holds ------------------------------------------------------------------------

    def check(self, step: int, rights_version: int) -> None:
        scans = self.admission.scans.values()
        shared = [
            (scan.audience.number, scan.how, scan.step)
            for scan in scans
            if scan.how is not How.REPLAY
            and not any(self.by_number[one].is_alone for one in scan.members)
        ]
        assert len(set(shared)) == len(shared), "RF5: two scans for one audience and step"
        identities = {one.identity for one in self.audiences}
        assert len(identities) == len(self.audiences), "RF5: two of one"
        for found in self.by_number.values():
            self._check_one(found, step, rights_version)
        for part in (self.audiences, self.fan_out, self.admission):
            part.check()

    def _check_one(self, found: Subscription, step: int, rights_version: int) -> None:
        number = found.number
        assert number in found.audience.members, "RF5: not in its audience"
        assert found.at <= step, f"RF2: {number} is ahead"
        found.check()
        is_behind = found.standing is Standing.BEHIND
        assert (number in self.behind) == is_behind, f"RF2: {number} is left behind"
        others = [scan for scan in self.admission.scans.values() if number in scan.members]
        is_apart = found.standing is Standing.SCANNING or not others
        assert is_apart, f"RF7: {number} waits for a scan, and is {found.standing.name}"
        if found.standing is Standing.LIVE:
            assert found.rights_version >= rights_version, f"RF3: {number} is live"
            assert number in self.live_of(found.audience), f"RF2: {number}"
