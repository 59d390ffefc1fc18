"""Room: core/records. The feed of a table on a node: steps, subscriptions, scans, rights and fan-out.

    effects = feed.handle(ChangesRead(changes), now_ms)

A *step* leads from one snapshot to the next, and its changes are net. A subscription is always at one
step exactly: WAITING until it is admitted, SCANNING at the step that it was admitted at, BEHIND until
what the steps since then brought is sent, then LIVE. Nothing is kept for one alone: who is behind is
served from the ring of recent steps, which is one for the table, and from the log where that does not
reach.

What is sent of a step that is being read may be seen before the step ends. So whoever leaves it in the
middle, and everybody if it fails, is told the deletion of each row that it may have seen since, even if
it was never there at any step (`Folded.between`).

Who subscribes, and where each stands, is in feed_members.py, with the invariants about that (RF2, RF3, RF5,
RF7). RF1 and RF4, which are about rows, are looked at by the simulation, and by `check` here:

    RF6  the ring is within its bytes, and it is all that is kept
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import ClassVar

from moorline.core.chance import Chance
from moorline.core.effects import Effect, Event
from moorline.core.machine import Machine
from moorline.core.records.feed_events import (
    Boot,
    BufferFull,
    CancelScan,
    ChangesRead,
    ConnectionGone,
    Drained,
    EndSync,
    How,
    LookAtPermits,
    PermitsLooked,
    Refuse,
    Resync,
    RightsHeard,
    ScanEnded,
    ScanFailed,
    ScanRead,
    SendRows,
    StartSync,
    StepBegun,
    StepEnded,
    StepFailed,
    Subscribed,
    SyncDone,
    TakeStep,
    Tick,
    Unsubscribed,
)
from moorline.core.records.feed_members import FeedMembers
from moorline.core.records.recent_steps import RecentSteps
from moorline.core.records.row_hash import RowDigest
from moorline.core.records.scan_room import ScanRoom
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.subscription import Scan, Standing, Subscription
from moorline.core.records.table import After, Key, Table
from moorline.core.sets.digest import Digest
from moorline.limits import (
    RECORD_ADMITTED_PER_S,
    RECORD_CURSOR_FRESH_MS,
    RECORD_RECENT_BYTES_MAX,
    RECORD_SLOW_MS,
    RECORD_STEP_MS,
)


class Feeding(Enum):
    RESTING = "resting"
    ASKING = "asking"
    STEPPING = "stepping"


class TableFeed(Machine[Feeding]):
    """Of one table. Its shell performs the effects in order; scans begin while the snapshot is shared."""

    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        Feeding.RESTING: frozenset({Feeding.ASKING}),
        Feeding.ASKING: frozenset({Feeding.STEPPING, Feeding.RESTING}),
        Feeding.STEPPING: frozenset({Feeding.RESTING}),
    }

    def __init__(
        self,
        table: Table,
        chance: Chance,
        *,
        rights_version: int = 0,
        boots_all: bool = False,
        recent_bytes_max: int = RECORD_RECENT_BYTES_MAX,
        step_ms: int = RECORD_STEP_MS,
        admitted_per_s: int = RECORD_ADMITTED_PER_S,
    ) -> None:
        super().__init__(f"feed of {table.name}", Feeding.RESTING)
        self.table = table
        self.recent = RecentSteps(recent_bytes_max)
        self.step_number = 0
        self.snapshot: Snapshot | None = None
        self.rights_version = rights_version
        self._members = FeedMembers(table, chance, admitted_per_s)
        self.audiences = self._members.audiences
        self.subscriptions = self._members.by_number
        self._boots_all = boots_all
        self._step_ms = step_ms
        self._due_ms = 0
        self._until: Snapshot | None = None
        self._must_resync = False
        self._refresh_ms = 0

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case Subscribed():
                return self._subscribe(event)
            case Unsubscribed(number):
                return self._members.remove(number)
            case ConnectionGone(connection):
                return self._members.remove_connection(connection)
            case Tick():
                return self._tick(now_ms)
            case StepBegun() | ChangesRead() | Resync() | StepEnded() | StepFailed():
                return self._stepping(event, now_ms)
            case ScanRead() | ScanEnded() | SyncDone() | ScanFailed():
                return self._scanning(event, now_ms)
            case RightsHeard(version):
                return self._hear(version)
            case PermitsLooked():
                return self._look(event, now_ms)
            case BufferFull(number):
                return self._fill(number, now_ms)
            case Drained(number):
                return self._drain(number, now_ms)
            case _:
                raise AssertionError(f"{event} is none of a feed")

    # --- subscribing ------------------------------------------------------------------------------

    def _subscribe(self, event: Subscribed) -> list[Effect]:
        if event.wanted.rights_version < self.rights_version:
            # Rights changed between reading them and this: as a change behind it would be.
            return [Boot(event.subscription, "rights have changed", self._members.return_ms())]
        if self._members.admission.is_full:
            why = "too many wait for a sync"
            return [Refuse(event.subscription, why, self._members.return_ms())]
        self._members.add(event)
        return []

    # --- steps ------------------------------------------------------------------------------------

    def _tick(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for number in list(self._members.full):
            found = self.subscriptions[number]
            assert found.full_ms is not None
            if now_ms - found.full_ms >= RECORD_SLOW_MS:
                effects += self._members.boot(found, "it does not read")
        if not self.subscriptions and self.state is Feeding.RESTING:
            # Nobody is there to be told what changed; the next one begins with a scan.
            self.snapshot = None
        if self.state is Feeding.RESTING and self.subscriptions and now_ms >= self._due_ms:
            self.move(Feeding.ASKING)
            effects.append(TakeStep(self.snapshot))
        return effects

    def _stepping(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case StepBegun(until, table):
                assert self.state is Feeding.ASKING, "nobody asked for a step"
                self.move(Feeding.STEPPING)
                self._must_resync = self.snapshot is None
                self._until, self.table = until, table
                self.recent.begin(self.step_number + 1)
                return []
            case ChangesRead(changes):
                assert self.state is Feeding.STEPPING, "out of a step"
                if self._must_resync:
                    return []
                self.recent.add(changes)
                return self._members.fan_out.fan(changes)
            case Resync():
                assert self.state is Feeding.STEPPING, "out of a step"
                self._must_resync = True
                return []
            case StepEnded(room):
                return self._end_step(room, now_ms)
            case _:
                assert self.state is not Feeding.RESTING, "no step that could fail"
                self.move(Feeding.RESTING)
                self._due_ms = now_ms + self._step_ms
                return self._fail_step()

    def _fail_step(self) -> list[Effect]:
        self.recent.drop()
        for number in self._members.behind:
            # It left this step in the middle, and what it was sent of it will be in no other.
            found = self.subscriptions[number]
            found.is_torn = found.is_torn or found.is_partial
        if self._members.fan_out.fail():
            return []
        live = [one for one in self.subscriptions.values() if one.standing is Standing.LIVE]
        return [effect for one in live for effect in self._members.wait(one, How.DIGEST)]

    def _end_step(self, room: ScanRoom, now_ms: int) -> list[Effect]:
        assert self.state is Feeding.STEPPING, "out of a step"
        assert self._until is not None
        effects = [] if self._must_resync else self._members.fan_out.settle()
        self.move(Feeding.RESTING)
        self._due_ms = now_ms + self._step_ms
        self.step_number += 1
        self.snapshot = self._until
        if self._must_resync:
            self.recent.drop()
            self.recent.clear(self.step_number)
            return [*self._resync_all(), *self._admit(room, now_ms)]
        self.recent.end()
        effects += self._end_live(now_ms)
        effects += self._catch_up(
            [self.subscriptions[number] for number in sorted(self._members.behind)]
        )
        return [*effects, *self._admit(room, now_ms)]

    def _end_live(self, now_ms: int) -> list[Effect]:
        """Those who were sent something hear that it was all; now and then the others get a new cursor."""
        assert self.snapshot is not None
        told = {number for number in self._members.fan_out.end() if number in self.audiences}
        if now_ms >= self._refresh_ms:
            # Looked at rarely, since it looks at all audiences.
            self._refresh_ms = now_ms + RECORD_CURSOR_FRESH_MS // 10
            before_ms = now_ms - RECORD_CURSOR_FRESH_MS
            told |= {
                audience.number
                for audience in self.audiences
                if self._members.told_ms.get(audience.number, now_ms) <= before_ms
            }
        effects: list[Effect] = []
        for number in sorted(told):
            audience = self.audiences[number]
            to = self._members.live_of(audience)
            digest = audience.digest()
            self._members.told_ms[number] = now_ms
            if digest is not None and to:
                effects.append(EndSync(to, number, self.snapshot, digest))
            elif to:
                # Nobody can say what they should have: they find out by a scan.
                members = [self.subscriptions[one] for one in to]
                effects += [
                    effect for one in members for effect in self._members.wait(one, How.DIGEST)
                ]
        return effects

    def _resync_all(self) -> list[Effect]:
        effects: list[Effect] = []
        self._members.fan_out.drop()
        for audience in self.audiences:
            audience.forget_digest()
        for found in list(self.subscriptions.values()):
            if found.standing is not Standing.WAITING:
                effects += self._members.wait(found, How.DIGEST)
            elif found.snapshot is not None:
                self._members.forget_cursor(found, How.DIGEST)
        return effects

    # --- admission and scans ----------------------------------------------------------------------

    def _admit(self, room: ScanRoom, now_ms: int) -> list[Effect]:
        assert self.snapshot is not None
        return self._members.admission.admit(
            self.table, self.rights_version, self.step_number, self.snapshot, room, now_ms
        )

    def _scanning(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case ScanRead(number, rows):
                scan = self._members.admission.scans.get(number)
                if scan is None:
                    return []
                return [SendRows(tuple(sorted(scan.members)), scan.audience.number, (), rows)]
            case ScanEnded(number, digest):
                scan = self._members.admission.scans.get(number)
                if scan is None:
                    return []
                scan.digest = digest
                if scan.how is not How.FULL:
                    return []
                members = [self.subscriptions[one] for one in sorted(scan.members)]
                return self._synced(scan, members, digest, now_ms)
            case SyncDone(number, subscription, digest):
                scan = self._members.admission.scans.get(number)
                if scan is None or subscription not in scan.members:
                    return []
                found = self.subscriptions[subscription]
                return self._synced(scan, [found], scan.digest or digest, now_ms)
            case ScanFailed(number):
                scan = self._members.admission.scans.get(number)
                effects: list[Effect] = []
                for one in sorted(scan.members) if scan is not None else ():
                    found = self.subscriptions[one]
                    # What was sent of it may be a part: by digest, whatever it was.
                    effects += [
                        e
                        for e in self._members.wait(found, How.DIGEST)
                        if not isinstance(e, CancelScan)
                    ]
                return effects
            case _:
                raise AssertionError(f"{event} is none of a scan")

    def _synced(
        self, scan: Scan, members: Iterable[Subscription], digest: Digest, now_ms: int
    ) -> list[Effect]:
        """They have the table at the scan's step. They are told so, and go on from there."""
        members = list(members)
        for found in members:
            self._members.synced(found, scan, digest)
        to = tuple(one.number for one in members)
        self._members.told_ms[scan.audience.number] = now_ms
        effects: list[Effect] = [EndSync(to, scan.audience.number, scan.snapshot, digest)]
        if self.state is not Feeding.STEPPING:
            effects += self._catch_up(members)
        # In a step they would miss what was sent of it already: at its end they are caught up.
        return effects

    # --- those behind -----------------------------------------------------------------------------

    def _catch_up(self, behind: Iterable[Subscription]) -> list[Effect]:
        """From the ring, those of one audience and one step together; by the log, where it does not reach."""
        assert self.state is not Feeding.STEPPING, "in the middle of a step"
        effects: list[Effect] = []
        groups: dict[tuple[int, int], list[Subscription]] = {}
        for found in behind:
            is_current = found.rights_version >= self.rights_version
            if found.full_ms is not None or not is_current:
                continue
            if found.is_torn:
                effects += self._members.wait(found, How.DIGEST)
            elif self.recent.reaches(found.at):
                groups.setdefault((found.audience.number, found.at), []).append(found)
            else:
                effects += self._members.wait(found, How.DIGEST if found.is_partial else None)
        for (_, at), members in groups.items():
            effects += self._bring(members, at)
        return effects

    def _bring(self, members: list[Subscription], at: int) -> list[Effect]:
        assert self.snapshot is not None
        audience = members[0].audience
        deletions: list[Key] = []
        records: list[tuple[Key, After]] = []
        proven = next((one for one in members if one.is_proven), members[0])
        rolled = None if proven.digest is None else RowDigest(self.table.salt, proven.digest)
        for folded in self.recent.folded(at):
            was, is_in = audience.was_and_is(folded.net)
            if rolled is not None:
                rolled.roll(folded.net, was_in=was, is_in=is_in)
            if is_in:
                assert folded.net.after is not None
                records.append((folded.net.key, folded.net.after))
            elif was or any(audience.was_and_is(one)[1] for one in folded.between):
                deletions.append(folded.net.key)
        if rolled is not None:
            audience.prove(rolled.digest(), self.table.salt, is_proven=proven.is_proven)
        digest = audience.digest()
        effects: list[Effect] = []
        if digest is None:
            return [effect for one in members for effect in self._members.wait(one, How.DIGEST)]
        to = tuple(sorted(one.number for one in members))
        for one in members:
            self._members.go_live(one)
        is_other = rolled is not None and rolled.digest() != digest
        if deletions or records or is_other:
            # With another digest than a cursor led to, where a scan has told it: they find out.
            effects.append(StartSync(to, How.LIVE))
            effects.append(SendRows(to, audience.number, tuple(deletions), tuple(records)))
            effects.append(EndSync(to, audience.number, self.snapshot, digest))
        return effects

    def _fill(self, number: int, now_ms: int) -> list[Effect]:
        found = self.subscriptions.get(number)
        if found is None or found.full_ms is not None:
            return []
        found.full_ms = now_ms
        self._members.full.add(number)
        if found.standing is Standing.SCANNING:
            # Others would wait for it: it leaves, and scans by itself when it reads again.
            found.is_alone = True
            return self._members.wait(found, How.DIGEST)
        self._members.hold(found, self.step_number, self.snapshot)
        return []

    def _drain(self, number: int, now_ms: int) -> list[Effect]:  # noqa: ARG002
        found = self.subscriptions.get(number)
        if found is None:
            return []
        found.full_ms = None
        self._members.full.discard(number)
        if found.standing is Standing.BEHIND and self.state is not Feeding.STEPPING:
            return self._catch_up([found])
        return []

    # --- rights -----------------------------------------------------------------------------------

    def _hear(self, version: int) -> list[Effect]:
        if version <= self.rights_version:
            return []
        self.rights_version = version
        effects: list[Effect] = []
        if self._boots_all:
            for found in list(self.subscriptions.values()):
                effects += self._members.boot(found, "rights have changed")
            return effects
        for found in list(self.subscriptions.values()):
            # Held until its permit is looked at: what a scan reads meanwhile would be lost for it.
            if found.standing is Standing.SCANNING:
                effects += self._members.wait(found, How.DIGEST)
            self._members.hold(found, self.step_number, self.snapshot)
        return [*effects, LookAtPermits(version, tuple(sorted(self.subscriptions)))]

    def _look(self, event: PermitsLooked, now_ms: int) -> list[Effect]:  # noqa: ARG002
        if event.version < self.rights_version:
            return []
        effects: list[Effect] = []
        kept: list[Subscription] = []
        for number, permit in event.permits.items():
            found = self.subscriptions.get(number)
            if found is None:
                continue
            if permit.hash != found.audience.permit.hash:
                effects += self._members.boot(found, "rights have changed")
                continue
            found.rights_version = event.version
            kept.append(found)
        if self.state is not Feeding.STEPPING:
            effects += self._catch_up([one for one in kept if one.standing is Standing.BEHIND])
        return effects

    # --- what always holds ------------------------------------------------------------------------

    def invariants(self) -> None:
        self._members.check(self.step_number, self.rights_version)
        self.recent.check()
        assert self.recent.bytes <= RECORD_RECENT_BYTES_MAX, f"RF6: {self.recent.bytes} bytes"
