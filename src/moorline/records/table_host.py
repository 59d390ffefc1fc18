"""Room: records. One table on a node: the feed's effects, performed over Postgres and for the clients
that subscribe.

    host = TableHost(capture, …)
    host.subscribe(receiver, wanted)
    await host.run()                 steps for as long as somebody subscribes

The loop takes one step after the other: soon where something changes, less often where nothing does,
not at all without
subscribers. Scans go on beside it (scans.py), at the snapshots of their steps. A database that is away
is tried again;
clients keep their connections, and hear what they missed.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import msgspec

from moorline.core.effects import Effect, Event
from moorline.core.records.feed_events import (
    BeginScan,
    Boot,
    BufferFull,
    CancelScan,
    ChangesRead,
    Drained,
    EndSync,
    LookAtPermits,
    PermitsLooked,
    Refuse,
    Resync,
    RightsHeard,
    SendRows,
    StartSync,
    StepBegun,
    StepEnded,
    StepFailed,
    Subscribed,
    SyncDone,
    TakeStep,
    Tick,
    To,
    Unsubscribed,
    Wanted,
)
from moorline.core.records.log_reach import LogReach
from moorline.core.records.permit import Permit
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.subscription import Standing
from moorline.core.records.table import Table
from moorline.core.records.table_feed import Feeding, TableFeed
from moorline.errors import (
    DatabaseUnreachable,
    LimitReached,
    RightsUnknown,
    RowTooLarge,
    TableRefused,
    TableRestored,
)
from moorline.limits import RECORD_ROW_RETURN_MS, RECORDS_AWAY_MS_MAX, RECORDS_IDLE_MS
from moorline.net.clock import monotonic_ms
from moorline.net.slices import in_slices
from moorline.records.capture import Capture
from moorline.records.capture import Resync as Why
from moorline.records.database import is_locked
from moorline.records.held_step import HeldStep
from moorline.records.permits import Permits
from moorline.records.pulse import Pulse
from moorline.records.receiver import Receiver
from moorline.records.scan_slots import ScanSlots
from moorline.records.scans import Scans
from moorline.records.sending import Sending
from moorline.records.signing import Signing

log = logging.getLogger("moorline.records")


class TableHost:
    def __init__(
        self,
        capture: Capture,
        signing: Signing,
        permits: Permits,
        slots: ScanSlots,
        pulse: Pulse,
        *,
        poll_ms: int,
        poll_ms_max: int,
        admitted_per_s: int,
        boots_all: bool,
    ) -> None:
        self.receivers: dict[int, Receiver] = {}
        self.is_over = False
        """It takes nobody any more."""
        self.away = ""
        """Why the database does not answer; empty if it does."""
        self.feed = TableFeed(
            capture.table,
            random.Random(),
            rights_version=permits.version,
            boots_all=boots_all,
            step_ms=0,
            admitted_per_s=admitted_per_s,
        )
        self.sending = Sending(capture.table, signing.sign, self._leave_out)
        self._capture = capture
        self._permits = permits
        self._poll_ms, self._poll_ms_max = poll_ms, poll_ms_max
        self.slots = slots
        self._scans = Scans(capture, self.feed, self.sending, self.receivers, slots, self._post_any)
        self._events: deque[Event] = deque()
        self._is_performing = False
        self._asked: TakeStep | None = None
        self._held: HeldStep | None = None
        """The step whose changes are all read, while its effects are performed."""
        self._woken = asyncio.Event()
        self._pulse = pulse
        self._is_stirred = False
        """Somebody writes to the table, or has begun to."""
        self._looking: set[asyncio.Task[None]] = set()
        self._resyncs = 0

    @property
    def table(self) -> Table:
        return self.feed.table

    @property
    def scans_running(self) -> int:
        return len(self._scans.running)

    # --- subscriptions ----------------------------------------------------------------------------

    def subscribe(self, receiver: Receiver, wanted: Wanted) -> None:
        """Registered before anything is read for it."""
        assert not self.is_over
        self.receivers[receiver.number] = receiver
        hearer = receiver.hearer
        self.post(Subscribed(receiver.number, hearer.number, wanted, hearer.rights.principal))
        if not receiver.hearer.is_writable:
            self.post(BufferFull(receiver.number))
        self._woken.set()

    def unsubscribe(self, receiver: Receiver) -> None:
        if self.receivers.pop(receiver.number, None) is not None:
            self.post(Unsubscribed(receiver.number))
            self._scans.left()

    def pause(self, receiver: Receiver) -> None:
        """Its client does not read. Who is in a scan is waited for there."""
        found = self.feed.subscriptions.get(receiver.number)
        if found is not None and found.standing is not Standing.SCANNING:
            self.post(BufferFull(receiver.number))

    def resume(self, receiver: Receiver) -> None:
        self.post(Drained(receiver.number))
        self._woken.set()

    def sync_done(self, receiver: Receiver) -> None:
        """Its questions are over."""
        offer, receiver.offer = receiver.offer, None
        if offer is not None:
            self.post(SyncDone(offer.scan, receiver.number, offer.digest))
            self._scans.left()

    def _leave_out(self, receiver: Receiver, error: RowTooLarge) -> None:
        """It asks again later, when the row may be another one; nobody else waits for it."""
        log.warning(
            "a row is too large for clients", extra={"table": self.table.name, "why": str(error)}
        )
        receiver.offer = None
        self.unsubscribe(receiver)
        receiver.hearer.refuse(receiver.table, error.code, str(error), RECORD_ROW_RETURN_MS)

    def rights_changed(self, version: int) -> None:
        self.post(RightsHeard(version))

    # --- the machine ------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Its effects are done when this returns, unless it came from within one: then behind those."""
        self._events.append(event)
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while self._events:
                effects = self.feed.handle(self._events.popleft(), monotonic_ms())
                for effect in effects:
                    self._perform(effect)
        finally:
            self._is_performing = False

    def _post_any(self, event: Any) -> None:
        self.post(event)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case TakeStep():
                self._asked = effect
            case StartSync(to, how):
                for receiver in self._of(to):
                    receiver.pending = how
                    receiver.offer = None
                    if receiver.is_asking:
                        # Its questions may be on their way, and would be taken for those of this sync.
                        receiver.hearer.boot("its sync begins anew")
            case SendRows(to, audience, deletions, records):
                if receivers := self._of(to):
                    filter_ = self.feed.audiences[audience].filter
                    self.sending.rows(receivers, filter_, deletions, records)
            case EndSync():
                self._end_sync(effect)
            case BeginScan():
                self._scans.begin(effect, self._held)
            case CancelScan(number):
                self._scans.cancel(number)
            case LookAtPermits(version, to):
                task = asyncio.create_task(self._look(version, to))
                self._looking.add(task)
                task.add_done_callback(self._looking.discard)
            case Boot(number, why, _):
                for receiver in self._of((number,)):
                    receiver.hearer.boot(why)
            case Refuse(number, why, return_ms):
                for receiver in self._of((number,)):
                    del self.receivers[number]
                    receiver.hearer.refuse(receiver.table, "BUSY", why, return_ms)
            case _:
                raise AssertionError(f"{effect} is none of a feed")

    def _of(self, to: To) -> list[Receiver]:
        """Those who are still there."""
        receivers = self.receivers
        return [receivers[number] for number in to if number in receivers]

    def _end_sync(self, effect: EndSync) -> None:
        receivers = self._of(effect.to)
        if not receivers:
            return
        audience = self.feed.audiences[effect.audience]
        cursor = self.sending.cursor(
            effect.snapshot, audience.filter, audience.permit.hash, effect.digest
        )
        self.sending.end(receivers, cursor)
        for receiver in receivers:
            if not receiver.hearer.is_writable:
                # It stopped reading while it was scanned for, when only the scan heard of that.
                self.post(BufferFull(receiver.number))
        self._scans.left()

    async def _look(self, version: int, to: To) -> None:
        """What each may see now; a walk in slices, which begins anew at the next change."""
        permits = await in_slices(self._looked(to))
        if version == self._permits.version:
            self.post(PermitsLooked(version, permits))

    def _looked(self, to: To) -> Generator[None, None, dict[int, Permit]]:
        found: dict[int, Permit] = {}
        for receiver in self._of(to):
            try:
                found[receiver.number] = self._permits.of(receiver.hearer.rights, self.table)
            except (LimitReached, RightsUnknown) as error:
                receiver.hearer.boot(str(error))
            yield
        return found

    # --- the loop ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until nobody has subscribed for a while, or the table is not served any more."""
        pause_ms = self._poll_ms
        idle_since_ms = monotonic_ms()
        unwatch: Callable[[], None] | None = None
        try:
            while True:
                if self.receivers:
                    idle_since_ms = monotonic_ms()
                    unwatch = unwatch or self._pulse.watch(self._capture.number, self._stirred)
                elif monotonic_ms() - idle_since_ms >= RECORDS_IDLE_MS:
                    return
                self._asked = None
                self.post(Tick())
                if self._asked is None:
                    await self._pause(self._poll_ms_max)
                    continue
                pause_ms = await self._turn(self._asked.since, pause_ms)
                await self._pause(pause_ms)
                if self._is_stirred:
                    # Its commit may be some time behind its number: looks are close together for a while.
                    self._is_stirred, pause_ms = False, self._poll_ms
        except (TableRefused, TableRestored) as error:
            self._refuse_all(error)
        finally:
            self.is_over = True
            if unwatch is not None:
                unwatch()
            self.slots.leave(self.table.name)
            await self._scans.close()
            for task in self._looking:
                task.cancel()

    async def _turn(self, since: Snapshot | None, pause_ms: int) -> int:
        """One step; the pause behind it."""
        try:
            has_changed = await self._step(since)
        except DatabaseUnreachable as error:
            if is_locked(error):
                # By somebody who may wait for what we read ourselves; and behind him wait all who write.
                self._scans.give_way()
            if not self.away:
                log.warning(
                    "a database is away", extra={"table": self.table.name, "why": str(error)}
                )
            self.away = str(error)
            self._fail()
            return min(max(2 * pause_ms, 20), RECORDS_AWAY_MS_MAX)
        except BaseException:
            self._fail()
            raise
        if self.away:
            log.info("a database is back", extra={"table": self.table.name})
            self.away = ""
        if self._resyncs > 1:
            # The log is not good yet: scans one behind the other would help nobody.
            return RECORDS_AWAY_MS_MAX
        return self._poll_ms if has_changed else min(2 * pause_ms, self._poll_ms_max)

    def _fail(self) -> None:
        if self.feed.state is not Feeding.RESTING:
            self.post(StepFailed())

    async def _step(self, since: Snapshot | None) -> bool:
        is_first = since is None
        if since is None:
            since = await self._capture.position()
        held = await HeldStep.open(
            self._capture, since, is_exported=is_first or self._is_somebody_behind()
        )
        try:
            resync = held.step.resync
            if not held.can_export and (resync is not None or self._is_somebody_behind()):
                # Somebody came meanwhile, or everybody is to be synced: the same again, to be shared.
                await held.release()
                held = await HeldStep.open(self._capture, since, is_exported=True)
                # What was found once is not found again: a table is described anew only once.
                resync = held.step.resync or resync
            return await self._read(held, resync, is_first=is_first)
        finally:
            self._held = None
            await held.release()

    async def _read(self, held: HeldStep, resync: Why | None, *, is_first: bool) -> bool:
        step = held.step
        is_other = _described(step.table) != _described(self.table)
        if resync is None and (is_other or self._scans.has_found_other):
            # A replay may have been the first to look at it.
            resync = Why("schema", "the table is described otherwise than before")
        self._scans.has_found_other = False
        self._take_table(step.table)
        self.post(StepBegun(step.until, step.table))
        if resync is None:
            self._resyncs = 0
            async for changes in step.changes():
                self.post(ChangesRead(tuple(changes)))
        elif not is_first:
            self._resyncs += 1
            log.info(
                "all clients of a table are synced anew",
                extra={"table": self.table.name, "why": resync.text},
            )
            self.post(Resync(resync.why))
        if held.can_export and self._is_somebody_behind(is_resync=resync is not None):
            await held.export()
            self._held = held
        self.post(StepEnded(self.slots.room(self.table.name, self._woken.set)))
        if not self._is_somebody_waiting():
            self.slots.leave(self.table.name)
        return not step.is_unchanged

    def _take_table(self, table: Table) -> None:
        before, self.sending.table = self.sending.table, table
        if before.epoch != table.epoch:
            # Numbers of rows are given anew there: a digest could find one equal that is another row.
            for receiver in self.receivers.values():
                receiver.needs_full = True
        if (before.columns, before.rewritten) == (table.columns, table.rewritten):
            return
        others = {column.name for column in set(before.columns) ^ set(table.columns)}
        # Or rows have other values of them, under the numbers that they have.
        others |= {name for name, _ in before.rewritten ^ table.rewritten}
        for receiver in self.receivers.values():
            chosen = receiver.filter.columns
            # A new column has values in rows that did not change: a digest says nothing of them.
            receiver.needs_full |= chosen is None or not others.isdisjoint(chosen)

    def _is_somebody_behind(self, *, is_resync: bool = False) -> bool:
        return is_resync or any(
            one.standing is not Standing.LIVE for one in self.feed.subscriptions.values()
        )

    def _is_somebody_waiting(self) -> bool:
        return any(one.standing is Standing.WAITING for one in self.feed.subscriptions.values())

    async def _pause(self, pause_ms: int) -> None:
        """Not longer than until somebody comes, but never without a moment for others."""
        await asyncio.sleep(min(pause_ms, self._poll_ms) / 1_000)
        rest_ms = pause_ms - self._poll_ms
        if rest_ms > 0:
            try:
                async with asyncio.timeout(rest_ms / 1_000):
                    await self._woken.wait()
            except TimeoutError:
                pass
        self._woken.clear()

    def _stirred(self) -> None:
        if not self.away and self._resyncs <= 1:
            # Else it has a reason to wait.
            self._is_stirred = True
            self._woken.set()

    def leave(self) -> None:
        """It is over, by whatever cause: who is left is cut, and comes back to another one."""
        self.is_over = True
        receivers = list(self.receivers.values())
        self.receivers.clear()
        for receiver in receivers:
            receiver.hearer.boot("the table is opened anew")

    def _refuse_all(self, error: TableRefused | TableRestored) -> None:
        log.warning(
            "a table is not served any more", extra={"table": self.table.name, "why": str(error)}
        )
        code = "NOT_READY" if isinstance(error, TableRestored) else "TABLE_GONE"
        self.is_over = True
        receivers = list(self.receivers.values())
        self.receivers.clear()
        for receiver in receivers:
            receiver.hearer.refuse(receiver.table, code, "the table is not served any more")


def _described(table: Table) -> Table:
    """Without how far its log reaches back, which changes all the time, and without what only those who were
    away have to be told of."""
    return msgspec.structs.replace(table, reach=LogReach(), written=(), attached="")
