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

Invariants, looked at by `check` (RF1 and RF4, which are about rows, by the simulation):

    RF2  all who are LIVE are sent to, all who are behind are brought on, and nobody is ahead of the feed
    RF3  nobody is LIVE by a permit that is older than the version of rights that was heard of
    RF5  equal subscriptions are one audience, and those admitted together share a scan
    RF6  the ring is within its bytes, and it is all that is kept
    RF7  whoever scans is in one scan of its own audience, and nobody else is in any
"""

from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import ClassVar

from moorline.core.chance import Chance
from moorline.core.effects import Effect, Event
from moorline.core.machine import Machine
from moorline.core.records.audience import Audience, Audiences, Outcome
from moorline.core.records.cursor import misfit
from moorline.core.records.feed_events import (
    BeginScan,
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
    Wanted,
)
from moorline.core.records.recent_steps import RecentSteps
from moorline.core.records.row_hash import RowDigest
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.subscription import Scan, Standing, Subscription
from moorline.core.records.table import After, Change, Key, Table
from moorline.core.sets.digest import Digest
from moorline.limits import (
    RECORD_ADMITTED_PER_S,
    RECORD_CURSOR_FRESH_MS,
    RECORD_RECENT_BYTES_MAX,
    RECORD_RETURN_MS_MAX,
    RECORD_SCANS_AT_ONCE_MAX,
    RECORD_SLOW_MS,
    RECORD_STEP_MS,
    RECORD_UNSETTLED_MAX,
    RECORD_WAITING_MAX,
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
        self.audiences = Audiences(table)
        self.recent = RecentSteps(recent_bytes_max)
        self.step_number = 0
        self.snapshot: Snapshot | None = None
        self.rights_version = rights_version
        self.subscriptions: dict[int, Subscription] = {}
        self._chance = chance
        self._boots_all = boots_all
        self._step_ms = step_ms
        self._admitted_per_s = admitted_per_s
        self._due_ms = 0
        self._allowance = 1.0
        self._allowed_ms = 0
        self._waiting: deque[int] = deque()
        self._scans: dict[int, Scan] = {}
        self._last_scan = 0
        self._until: Snapshot | None = None
        self._must_resync = False
        self._live: dict[int, tuple[int, ...]] = {}
        """LIVE subscriptions of each audience: made once, and anew where they change."""
        self._fanned: set[int] = set()
        """Audiences that were sent something of the step that is being read."""
        self._told_ms: dict[int, int] = {}
        self._rolled: dict[int, Audience] = {}
        """Those whose digest the step that is being read has changed."""
        self._behind: set[int] = set()
        self._full: set[int] = set()
        self._refresh_ms = 0
        self._read: list[Change] = []
        """Of the step that is being read, what rows became: if it fails, that may be in no step at all."""
        self._unsettled: dict[Key, list[Change]] = {}
        """The same of steps that have failed, until the next one that ends."""

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case Subscribed():
                return self._subscribe(event)
            case Unsubscribed(number):
                return self._remove(number)
            case ConnectionGone(connection):
                gone = [
                    one.number
                    for one in self.subscriptions.values()
                    if one.connection == connection
                ]
                return [effect for number in gone for effect in self._remove(number)]
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
        assert event.subscription not in self.subscriptions, "a number of its own"
        if event.wanted.rights_version < self.rights_version:
            # Rights changed between reading them and this: as a change behind it would be.
            return [Boot(event.subscription, "rights have changed", self._return_ms())]
        if len(self._waiting) >= RECORD_WAITING_MAX:
            return [Refuse(event.subscription, "too many wait for a sync", self._return_ms())]
        audience = self.audiences.join(event.wanted.filter, event.wanted.permit)
        audience.members.add(event.subscription)
        found = Subscription(event.subscription, event.connection, event.wanted, audience)
        self.subscriptions[found.number] = found
        # Registered before its scan: what happens from now on is heard of.
        self._waiting.append(found.number)
        return []

    def _remove(self, number: int) -> list[Effect]:
        found = self.subscriptions.pop(number, None)
        if found is None:
            return []
        audience = found.audience
        effects = self._leave_scan(found)
        audience.members.discard(number)
        self._live.pop(audience.number, None)
        self._behind.discard(number)
        self._full.discard(number)
        if not audience.members:
            self.audiences.leave(audience)
            self._rolled.pop(audience.number, None)
            self._told_ms.pop(audience.number, None)
            self._fanned.discard(audience.number)
        return effects

    def _leave_scan(self, found: Subscription) -> list[Effect]:
        scan = self._scans.get(found.scan)
        found.scan = 0
        if scan is None:
            return []
        scan.members.discard(found.number)
        if scan.members:
            return []
        # Nobody waits for it any more.
        del self._scans[scan.number]
        return [CancelScan(scan.number)]

    def _boot(self, found: Subscription, why: str) -> list[Effect]:
        effects = self._remove(found.number)
        return [*effects, Boot(found.number, why, self._return_ms())]

    def _return_ms(self) -> int:
        return self._chance.randint(0, RECORD_RETURN_MS_MAX)

    def _wait(self, found: Subscription, how: How | None) -> list[Effect]:
        """Back to the beginning: by the log from its step, or, with a `how`, without it."""
        effects = self._leave_scan(found)
        if how is not None:
            found.snapshot = found.digest = None
            found.wanted = _without_cursor(found.wanted, how)
        self._live.pop(found.audience.number, None)
        self._behind.discard(found.number)
        found.is_partial = found.is_torn = False
        found.move(Standing.WAITING)
        self._waiting.append(found.number)
        return effects

    # --- steps ------------------------------------------------------------------------------------

    def _tick(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for number in list(self._full):
            found = self.subscriptions[number]
            assert found.full_ms is not None
            if now_ms - found.full_ms >= RECORD_SLOW_MS:
                effects += self._boot(found, "it does not read")
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
                return [] if self._must_resync else self._fan(changes)
            case Resync():
                assert self.state is Feeding.STEPPING, "out of a step"
                self._must_resync = True
                return []
            case StepEnded():
                return self._end_step(now_ms)
            case _:
                assert self.state is not Feeding.RESTING, "no step that could fail"
                self.move(Feeding.RESTING)
                self._due_ms = now_ms + self._step_ms
                return self._fail_step()

    def _fail_step(self) -> list[Effect]:
        self.recent.drop()
        self._settle(has_failed=True)
        self._fanned.clear()
        for number in self._behind:
            # It left this step in the middle, and what it was sent of it will be in no other.
            found = self.subscriptions[number]
            found.is_torn = found.is_torn or found.is_partial
        for one in self._read:
            self._unsettled.setdefault(one.key, []).append(one)
        self._read = []
        if len(self._unsettled) <= RECORD_UNSETTLED_MAX:
            return []
        # More than is remembered: only a scan tells what of it is there.
        self._unsettled = {}
        live = [one for one in self.subscriptions.values() if one.standing is Standing.LIVE]
        return [effect for one in live for effect in self._wait(one, How.DIGEST)]

    def _fan(self, changes: tuple[Change, ...]) -> list[Effect]:
        self.recent.add(changes)
        deletions: dict[int, list[Key]] = {}
        records: dict[int, list[tuple[Key, After]]] = {}
        for change in changes:
            for audience in self.audiences.touched(change):
                outcome = audience.roll(change)
                if outcome is not Outcome.NOTHING:
                    self._rolled[audience.number] = audience
                if outcome is Outcome.DELETION:
                    deletions.setdefault(audience.number, []).append(change.key)
                elif outcome is Outcome.RECORD:
                    assert change.after is not None
                    records.setdefault(audience.number, []).append((change.key, change.after))
            for audience in self._saw_unsettled(change.key):
                if audience.outcome(change) is Outcome.NOTHING:
                    deletions.setdefault(audience.number, []).append(change.key)
            if change.after is not None:
                # Without its row: a step may bring a million of them.
                stripped = change.after._replace(row=b"")
                self._read.append(Change(change.key, change.before, stripped))
        effects: list[Effect] = []
        for number in {**deletions, **records}:
            effects += self._send_live(number, deletions.get(number, []), records.get(number, []))
        return effects

    def _send_live(
        self, number: int, deletions: list[Key], records: list[tuple[Key, After]]
    ) -> list[Effect]:
        to = self._live_of(self.audiences[number])
        if not to:
            return []
        effects: list[Effect] = []
        if number not in self._fanned:
            self._fanned.add(number)
            effects.append(StartSync(to, How.LIVE))
        return [*effects, SendRows(to, number, tuple(deletions), tuple(records))]

    def _live_of(self, audience: Audience) -> tuple[int, ...]:
        found = self._live.get(audience.number)
        if found is None:
            found = tuple(
                number
                for number in sorted(audience.members)
                if self.subscriptions[number].standing is Standing.LIVE
            )
            self._live[audience.number] = found
        return found

    def _end_step(self, now_ms: int) -> list[Effect]:
        assert self.state is Feeding.STEPPING, "out of a step"
        assert self._until is not None
        effects: list[Effect] = []
        if not self._must_resync:
            effects += self._send_unsettled()
        self._unsettled, self._read = {}, []
        self.move(Feeding.RESTING)
        self._due_ms = now_ms + self._step_ms
        self.step_number += 1
        self.snapshot = self._until
        if self._must_resync:
            self.recent.drop()
            self.recent.clear(self.step_number)
            return [*effects, *self._resync_all(), *self._admit(now_ms)]
        self.recent.end()
        self._settle(has_failed=False)
        effects += self._end_live(now_ms)
        effects += self._catch_up([self.subscriptions[number] for number in sorted(self._behind)])
        return [*effects, *self._admit(now_ms)]

    def _send_unsettled(self) -> list[Effect]:
        """What was sent of a step that failed, and is in no later one: it came and went in between."""
        deletions: dict[int, list[Key]] = {}
        for key in list(self._unsettled):
            for audience in self._saw_unsettled(key):
                deletions.setdefault(audience.number, []).append(key)
        effects: list[Effect] = []
        for number, keys in deletions.items():
            effects += self._send_live(number, keys, [])
        return effects

    def _saw_unsettled(self, key: Key) -> list[Audience]:
        """Those that were sent a row in a step that failed; asked once, when it is settled."""
        found: dict[int, Audience] = {}
        for change in self._unsettled.pop(key, ()):
            for audience in self.audiences.touched(change):
                if audience.outcome(change) is Outcome.RECORD:
                    found[audience.number] = audience
        return list(found.values())

    def _settle(self, *, has_failed: bool) -> None:
        for audience in self._rolled.values():
            audience.settle(has_failed=has_failed)
        self._rolled.clear()

    def _end_live(self, now_ms: int) -> list[Effect]:
        """Those who were sent something hear that it was all; now and then the others get a new cursor."""
        assert self.snapshot is not None
        told = {number for number in self._fanned if number in self.audiences}
        self._fanned.clear()
        if now_ms >= self._refresh_ms:
            # Looked at rarely, since it looks at all audiences.
            self._refresh_ms = now_ms + RECORD_CURSOR_FRESH_MS // 10
            before_ms = now_ms - RECORD_CURSOR_FRESH_MS
            told |= {
                audience.number
                for audience in self.audiences
                if self._told_ms.get(audience.number, now_ms) <= before_ms
            }
        effects: list[Effect] = []
        for number in sorted(told):
            audience = self.audiences[number]
            to = self._live_of(audience)
            digest = audience.digest()
            self._told_ms[number] = now_ms
            if digest is not None and to:
                effects.append(EndSync(to, number, self.snapshot, digest))
            elif to:
                # Nobody can say what they should have: they find out by a scan.
                members = [self.subscriptions[one] for one in to]
                effects += [effect for one in members for effect in self._wait(one, How.DIGEST)]
        return effects

    def _resync_all(self) -> list[Effect]:
        effects: list[Effect] = []
        self._settle(has_failed=True)
        for audience in self.audiences:
            audience.forget_digest()
        self._fanned.clear()
        for found in list(self.subscriptions.values()):
            if found.standing is not Standing.WAITING:
                effects += self._wait(found, How.DIGEST)
            elif found.snapshot is not None:
                found.snapshot = found.digest = None
                found.wanted = _without_cursor(found.wanted, How.DIGEST)
        return effects

    # --- admission and scans ----------------------------------------------------------------------

    def _admit(self, now_ms: int) -> list[Effect]:
        """At the step that has just ended, as many as the rate allows; equal ones share a scan."""
        rate = self._admitted_per_s
        gained = (now_ms - self._allowed_ms) * rate / 1_000
        self._allowance = min(max(1.0, rate / 10), self._allowance + gained)
        self._allowed_ms = now_ms
        shared: dict[tuple[int, How], Scan] = {}
        left: deque[int] = deque()
        effects: list[Effect] = []
        begun: list[tuple[Scan, Snapshot | None, Digest | None]] = []
        while self._waiting:
            number = self._waiting.popleft()
            found = self.subscriptions.get(number)
            if found is None or found.standing is not Standing.WAITING:
                continue
            how, since, digest = self._how(found)
            is_shared = how is not How.REPLAY and not found.is_alone
            scan = shared.get((found.audience.number, how)) if is_shared else None
            is_ready = found.full_ms is None and found.rights_version >= self.rights_version
            if not is_ready or (scan is None and not self._may_begin()):
                left.append(number)
                continue
            if scan is None:
                scan = self._begin(found.audience, how)
                begun.append((scan, since, digest))
                if is_shared:
                    shared[found.audience.number, how] = scan
            scan.members.add(number)
            found.scan = scan.number
            found.move(Standing.SCANNING)
        self._waiting = left
        for scan, since, digest in begun:
            to = tuple(sorted(scan.members))
            effects.append(StartSync(to, scan.how))
            effects.append(
                BeginScan(
                    scan.number,
                    scan.how,
                    scan.audience.number,
                    scan.step,
                    scan.snapshot,
                    to,
                    since,
                    digest,
                )
            )
        return effects

    def _may_begin(self) -> bool:
        return self._allowance >= 1 and len(self._scans) < RECORD_SCANS_AT_ONCE_MAX

    def _begin(self, audience: Audience, how: How) -> Scan:
        assert self.snapshot is not None
        self._allowance -= 1
        self._last_scan += 1
        scan = Scan(self._last_scan, how, audience, self.step_number, self.snapshot, set())
        self._scans[scan.number] = scan
        return scan

    def _how(self, found: Subscription) -> tuple[How, Snapshot | None, Digest | None]:
        if found.snapshot is not None and found.digest is not None:
            # It was synced here, and the ring does not reach back to it: the log may.
            if found.snapshot.xmin >= self.table.good_from:
                return How.REPLAY, found.snapshot, found.digest
            return How.DIGEST, None, None
        cursor = found.wanted.cursor
        if cursor is not None and (
            misfit(cursor, self.table, found.wanted.filter.hash, found.wanted.permit.hash) is None
        ):
            return How.REPLAY, cursor.snapshot, cursor.digest
        return found.wanted.otherwise, None, None

    def _scanning(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case ScanRead(number, rows):
                scan = self._scans.get(number)
                if scan is None:
                    return []
                return [SendRows(tuple(sorted(scan.members)), scan.audience.number, (), rows)]
            case ScanEnded(number, digest):
                scan = self._scans.get(number)
                if scan is None:
                    return []
                scan.digest = digest
                if scan.how is not How.FULL:
                    return []
                members = [self.subscriptions[one] for one in sorted(scan.members)]
                return self._synced(scan, members, digest, now_ms)
            case SyncDone(number, subscription, digest):
                scan = self._scans.get(number)
                if scan is None or subscription not in scan.members:
                    return []
                found = self.subscriptions[subscription]
                return self._synced(scan, [found], scan.digest or digest, now_ms)
            case ScanFailed(number):
                scan = self._scans.get(number)
                effects: list[Effect] = []
                for one in sorted(scan.members) if scan is not None else ():
                    found = self.subscriptions[one]
                    # What was sent of it may be a part: by digest, whatever it was.
                    effects += [
                        e for e in self._wait(found, How.DIGEST) if not isinstance(e, CancelScan)
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
            found.at, found.snapshot, found.digest = scan.step, scan.snapshot, digest
            found.is_proven = scan.how is not How.REPLAY
            self._leave_scan(found)
            found.move(Standing.BEHIND)
            self._behind.add(found.number)
        to = tuple(one.number for one in members)
        self._told_ms[scan.audience.number] = now_ms
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
                effects += self._wait(found, How.DIGEST)
            elif self.recent.reaches(found.at):
                groups.setdefault((found.audience.number, found.at), []).append(found)
            else:
                effects += self._wait(found, How.DIGEST if found.is_partial else None)
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
            return [effect for one in members for effect in self._wait(one, How.DIGEST)]
        to = tuple(sorted(one.number for one in members))
        for one in members:
            one.snapshot = one.digest = None
            one.is_proven = one.is_partial = False
            one.move(Standing.LIVE)
            self._behind.discard(one.number)
        self._live.pop(audience.number, None)
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
        self._full.add(number)
        if found.standing is Standing.SCANNING:
            # Others would wait for it: it leaves, and scans by itself when it reads again.
            found.is_alone = True
            return self._wait(found, How.DIGEST)
        self._hold(found)
        return []

    def _hold(self, found: Subscription) -> None:
        """Nothing more is sent to it for now; what it misses is in the ring, and in the log."""
        if found.standing is Standing.LIVE:
            found.move(Standing.BEHIND)
            self._behind.add(found.number)
            found.at, found.snapshot = self.step_number, self.snapshot
            found.digest = found.audience.digest()
            found.is_proven = found.audience.is_proven
            found.is_partial = found.audience.number in self._fanned
            found.is_torn = bool(self._unsettled) or found.digest is None
            self._live.pop(found.audience.number, None)

    def _drain(self, number: int, now_ms: int) -> list[Effect]:  # noqa: ARG002
        found = self.subscriptions.get(number)
        if found is None:
            return []
        found.full_ms = None
        self._full.discard(number)
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
                effects += self._boot(found, "rights have changed")
            return effects
        for found in list(self.subscriptions.values()):
            # Held until its permit is looked at: what a scan reads meanwhile would be lost for it.
            if found.standing is Standing.SCANNING:
                effects += self._wait(found, How.DIGEST)
            self._hold(found)
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
                effects += self._boot(found, "rights have changed")
                continue
            found.rights_version = event.version
            kept.append(found)
        if self.state is not Feeding.STEPPING:
            effects += self._catch_up([one for one in kept if one.standing is Standing.BEHIND])
        return effects

    # --- what always holds ------------------------------------------------------------------------

    def invariants(self) -> None:
        scanning: dict[int, int] = {}
        for scan in self._scans.values():
            assert scan.members, "RF7: a scan for nobody"
            for number in scan.members:
                assert number not in scanning, f"RF7: {number} is in two scans"
                scanning[number] = scan.number
                assert self.subscriptions[number].audience is scan.audience, (
                    "RF7: of another audience"
                )
        shared = [
            (scan.audience.number, scan.how, scan.step)
            for scan in self._scans.values()
            if scan.how is not How.REPLAY
            and not any(self.subscriptions[one].is_alone for one in scan.members)
        ]
        assert len(set(shared)) == len(shared), "RF5: two scans for one audience and step"
        for found in self.subscriptions.values():
            self._check_subscription(found, scanning)
        for number, to in self._live.items():
            assert to == () or number in {one.number for one in self.audiences}, (
                "RF5: a lost audience"
            )
        assert len({one.identity for one in self.audiences}) == len(self.audiences), (
            "RF5: two of one"
        )
        self.audiences.check()
        self.recent.check()
        assert self.recent.bytes <= RECORD_RECENT_BYTES_MAX, f"RF6: {self.recent.bytes} bytes"

    def _check_subscription(self, found: Subscription, scanning: dict[int, int]) -> None:
        assert found.number in found.audience.members, "RF5: not in its audience"
        assert found.at <= self.step_number, f"RF2: {found.number} is ahead"
        found.check()
        is_behind = found.standing is Standing.BEHIND
        assert (found.number in self._behind) == is_behind, f"RF2: {found.number} is left behind"
        is_scanning = found.standing is Standing.SCANNING
        assert (scanning.get(found.number) == found.scan) == is_scanning, f"RF7: {found.number}"
        if found.standing is Standing.LIVE:
            assert found.rights_version >= self.rights_version, f"RF3: {found.number} is live"
            assert found.number in self._live_of(found.audience), f"RF2: {found.number} is left out"
        else:
            is_served = found.number in self._live.get(found.audience.number, ())
            assert not is_served, f"RF3: {found.number} is served, and not live"


def _without_cursor(wanted: Wanted, how: How) -> Wanted:
    return Wanted(wanted.filter, wanted.permit, wanted.rights_version, None, how)
