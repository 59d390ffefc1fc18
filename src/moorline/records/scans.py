"""Room: records. The scans and replays of one table's feed: each a task, at the snapshot of its step.

A scan waits for those who read it, and they for each other, within a bound: whoever does not read is
left behind, and
syncs alone later. Rows of a full scan go through the feed, which knows who is in it; what differs from
one to another
(a replay, answers to questions, ids that are gone) is sent from here, to those who are still in the scan.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from moorline.core.records.audience import Audience
from moorline.core.records.feed_events import (
    BeginScan,
    BufferFull,
    How,
    ScanEnded,
    ScanFailed,
    ScanRead,
    SyncDone,
)
from moorline.core.records.known_ids import KnownIds
from moorline.core.records.row_hash import RowDigest
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.table import After, Key
from moorline.core.records.table_feed import TableFeed
from moorline.core.sets.digest import Digest
from moorline.errors import MoorlineError
from moorline.limits import (
    RECORD_SLOW_MS,
    RECORDS_CHUNK_ROWS_MAX,
    RECORDS_FETCH_KEYS,
    RECORDS_OFFER_MS_MAX,
    RECORDS_PATIENCE_MS,
    RECORDS_QUESTION_MS_MAX,
    RECORDS_SNAPSHOT_MS_MAX,
)
from moorline.net.clock import monotonic_ms
from moorline.records.capture import Capture, ScannedRow
from moorline.records.condition import Condition
from moorline.records.held_step import HeldStep
from moorline.records.key_set import KeySet
from moorline.records.offer import Offer
from moorline.records.receiver import Receiver
from moorline.records.scan_slots import ScanSlot, ScanSlots
from moorline.records.scope import condition_of
from moorline.records.sending import Sending

log = logging.getLogger("moorline.records")


class _Scan:
    """One that runs."""

    def __init__(
        self,
        begun: BeginScan,
        audience: Audience,
        held: HeldStep,
        condition: Condition,
        slot: ScanSlot,
    ) -> None:
        self.number = begun.scan
        self.begun = begun
        self.audience = audience
        self.held: HeldStep | None = held
        self.snapshot_id = held.snapshot_id
        self.salt = held.step.table.salt
        self.condition = condition
        self.slot = slot
        self.left = asyncio.Event()
        """Somebody has left it."""
        self.task: asyncio.Task[None] | None = None


class Scans:
    def __init__(
        self,
        capture: Capture,
        feed: TableFeed,
        sending: Sending,
        receivers: dict[int, Receiver],
        slots: ScanSlots,
        post: Callable[[object], None],
    ) -> None:
        """`slots` are those of a database: scans of other tables are among them."""
        self.running: dict[int, _Scan] = {}
        self.has_found_other = False
        """A look beside the steps found the table described otherwise: the next step does not find
        that again."""
        self._capture = capture
        self._feed = feed
        self._sending = sending
        self._receivers = receivers
        self._slots = slots
        self._post = post
        self._releasing: set[asyncio.Task[None]] = set()

    def begin(self, begun: BeginScan, held: HeldStep | None) -> None:
        """While the step is open."""
        if held is None or not held.snapshot_id:
            self._post(ScanFailed(begun.scan))
            return
        audience = self._feed.audiences[begun.audience]
        condition = condition_of(held.step.table, audience.filter, audience.permit)
        held.hold()
        slot = self._slots.take(begun.principal, is_offer=begun.how is How.DIGEST)
        scan = self.running[begun.scan] = _Scan(begun, audience, held, condition, slot)
        scan.task = asyncio.create_task(self._run(scan))
        scan.task.add_done_callback(lambda _: self._over(scan))

    def cancel(self, number: int) -> None:
        """Nobody is in it any more, and nothing more is fetched from it: its permits may be old ones."""
        scan = self.running.get(number)
        if scan is None:
            return
        for one in scan.begun.to:
            receiver = self._receivers.get(one)
            if (
                receiver is not None
                and receiver.offer is not None
                and receiver.offer.scan == number
            ):
                receiver.offer = None
        if scan.task is not None:
            scan.task.cancel()

    def give_way(self) -> None:
        """Nothing of the table is read any more, nor a snapshot of it held; clients are synced later."""
        for number in list(self.running):
            self._post(ScanFailed(number))
            self.cancel(number)

    def left(self) -> None:
        """Some subscriptions have ended or moved on."""
        for scan in self.running.values():
            scan.left.set()

    async def close(self) -> None:
        tasks = [scan.task for scan in self.running.values() if scan.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._releasing:
            await asyncio.wait(self._releasing)

    def _over(self, scan: _Scan) -> None:
        """Also where its task was cancelled before it began, and did nothing at all."""
        self.running.pop(scan.number, None)
        scan.slot.end()
        if scan.held is not None:
            task = asyncio.create_task(self._imported(scan))
            self._releasing.add(task)
            task.add_done_callback(self._releasing.discard)

    async def _run(self, scan: _Scan) -> None:
        try:
            match scan.begun.how:
                case How.FULL:
                    await self._full(scan)
                case How.REPLAY:
                    await self._replay(scan)
                case How.DIGEST | How.IDS:
                    await self._by_known(scan)
                case How.LIVE:
                    raise AssertionError("what is live is not scanned")
        except MoorlineError as error:
            log.info(
                "a sync failed, and is tried again",
                extra={"table": self._feed.table.name, "why": str(error)},
            )
            self._post(ScanFailed(scan.number))
        except Exception:
            log.exception("a scan failed", extra={"table": self._feed.table.name})
            self._post(ScanFailed(scan.number))
        finally:
            await self._imported(scan)

    async def _imported(self, scan: _Scan) -> None:
        """The scan sees its snapshot by itself, or needs it no more."""
        held, scan.held = scan.held, None
        if held is not None:
            await held.release()

    def _members(self, scan: _Scan) -> list[Receiver]:
        """Those who are in it now."""
        subscriptions = self._feed.subscriptions
        return [
            self._receivers[number]
            for number in scan.begun.to
            if number in subscriptions
            and subscriptions[number].scan == scan.number
            and number in self._receivers
        ]

    # --- the kinds of it --------------------------------------------------------------------------

    async def _full(self, scan: _Scan) -> None:
        digest = RowDigest(scan.salt)
        columns = scan.audience.filter.columns
        async for rows in self._capture.scan_rows(
            scan.condition, scan.snapshot_id, columns=columns
        ):
            await self._imported(scan)
            for row in rows:
                digest.enter(row.key, row.seq)
            self._post(ScanRead(scan.number, tuple(records_of(rows))))
            await self._room(scan)
        self._post(ScanEnded(scan.number, digest.digest()))

    async def _replay(self, scan: _Scan) -> None:
        begun = scan.begun
        assert begun.since is not None
        assert begun.digest is not None
        epoch = self._feed.table.epoch
        if (why := await self._capture.replays(epoch, begun.since)) is not None:
            log.debug("no replay", extra={"table": self._feed.table.name, "why": why.text})
            self.has_found_other |= why.why in ("schema", "epoch")
            self._post(ScanFailed(scan.number))
            return
        if any(receiver.needs_full for receiver in self._members(scan)):
            # Columns became others between its subscribe and this step: rows that did not change lack them.
            self._post(ScanFailed(scan.number))
            return
        digest = RowDigest(scan.salt, begun.digest)
        async for changes in self._capture.changes_since(
            begun.since, scan.condition, scan.snapshot_id
        ):
            await self._imported(scan)
            deletions: list[Key] = []
            records: list[tuple[Key, After]] = []
            for change in changes:
                digest.roll(
                    change, was_in=change.before is not None, is_in=change.after is not None
                )
                if change.after is not None:
                    records.append((change.key, change.after))
                else:
                    deletions.append(change.key)
            self._send(scan, self._members(scan), deletions, records)
            await self._room(scan)
        for receiver in self._members(scan):
            self._post(SyncDone(scan.number, receiver.number, digest.digest()))

    async def _by_known(self, scan: _Scan) -> None:
        """All keys of the scope; then each by what it said that it knows."""
        keys = KeySet(scan.salt)
        async for part in self._capture.scan_keys(scan.condition, scan.snapshot_id):
            await keys.add(part)
        await keys.close()
        digest = await keys.digest()
        self._post(ScanEnded(scan.number, digest))
        offer = Offer(
            scan.number,
            self._capture,
            scan.condition,
            scan.audience.filter,
            scan.snapshot_id,
            keys,
            digest,
        )
        alone: list[Receiver] = []
        for receiver in self._members(scan):
            if receiver.needs_full or not receiver.can_compare:
                alone.append(receiver)
            elif receiver.digest == digest:
                # Nothing differs, which is a replay of nothing: there is no question to wait for.
                receiver.pending = How.REPLAY
                self._post(SyncDone(scan.number, receiver.number, digest))
            else:
                receiver.offer = offer
                receiver.asked_ms = monotonic_ms()
                self._sending.begin([receiver])
        await self._everything(scan, alone, keys, digest)
        # First syncs and replays of others go on, whatever the clients of this one do.
        scan.slot.read()
        await self._answered(scan)

    async def _answered(self, scan: _Scan) -> None:
        """Until all have asked their last question. Who does not go on asking is cut: a snapshot and a
        connection are held for it."""
        begun_ms = monotonic_ms()
        while members := self._members(scan):
            now_ms = monotonic_ms()
            spent_ms = now_ms - begun_ms
            is_late = spent_ms >= RECORDS_SNAPSHOT_MS_MAX or (
                spent_ms >= RECORDS_OFFER_MS_MAX and self._slots.is_wanted
            )
            due_ms = [one.asked_ms + RECORDS_QUESTION_MS_MAX for one in members]
            for receiver, its_due_ms in zip(members, due_ms, strict=True):
                if is_late or its_due_ms <= now_ms:
                    receiver.hearer.boot("it does not ask, or takes too long")
            wait_ms = max(1, min(*due_ms, now_ms + RECORDS_QUESTION_MS_MAX) - now_ms)
            scan.left.clear()
            try:
                async with asyncio.timeout(wait_ms / 1_000):
                    await scan.left.wait()
            except TimeoutError:
                continue

    async def _everything(
        self, scan: _Scan, receivers: Sequence[Receiver], keys: KeySet, digest: Digest
    ) -> None:
        """To those who cannot be asked what they have: known ids that are gone, and rows."""
        there = await keys.numbers() if any(one.known is not None for one in receivers) else []
        everything: list[Receiver] = []
        for receiver in receivers:
            known, receiver.known = receiver.known, None
            receiver.pending = How.FULL if known is None else How.IDS
            if known is not None:
                await self._gone(scan, receiver, known, there)
            if known is not None and receiver.known_at is not None and not receiver.needs_full:
                await self._unknown(scan, receiver, known, there, receiver.known_at)
                self._done(scan, [receiver], digest)
            else:
                everything.append(receiver)
            receiver.needs_full = False
        if everything:
            await self._all(scan, everything, None)
            self._done(scan, everything, digest)

    async def _gone(
        self, scan: _Scan, receiver: Receiver, known: KnownIds, there: list[int]
    ) -> None:
        for gone in _runs_of(known.absent(there)):
            if receiver not in self._members(scan):
                break
            self._send(scan, [receiver], gone, [])
            # Also where the client reads all of it at once: a few characters may name millions.
            await asyncio.sleep(0)
            await self._room(scan)

    async def _unknown(
        self,
        scan: _Scan,
        receiver: Receiver,
        known: KnownIds,
        there: list[int],
        known_at: Snapshot,
    ) -> None:
        """What it does not know, and what it knows as it was."""
        wanted: dict[Key, None] = {}
        async for part in self._capture.scan_keys(scan.condition, scan.snapshot_id, since=known_at):
            wanted.update((key, None) for key, _ in part)
        for start in range(0, len(there), RECORDS_CHUNK_ROWS_MAX):
            some = there[start : start + RECORDS_CHUNK_ROWS_MAX]
            wanted.update(((str(number),), None) for number in some if number not in known)
            await asyncio.sleep(0)
        keys = list(wanted)
        for start in range(0, len(keys), RECORDS_FETCH_KEYS):
            await self._all(scan, [receiver], keys[start : start + RECORDS_FETCH_KEYS])

    async def _all(
        self, scan: _Scan, receivers: Sequence[Receiver], keys: Sequence[Key] | None
    ) -> None:
        columns = scan.audience.filter.columns
        async for rows in self._capture.scan_rows(
            scan.condition, scan.snapshot_id, keys=keys, columns=columns
        ):
            members = self._members(scan)
            still = [receiver for receiver in receivers if receiver in members]
            if not still:
                return
            self._send(scan, still, [], list(records_of(rows)))
            await self._room(scan)

    def _done(self, scan: _Scan, receivers: Sequence[Receiver], digest: Digest) -> None:
        for receiver in receivers:
            if receiver in self._members(scan):
                self._post(SyncDone(scan.number, receiver.number, digest))

    def _send(
        self,
        scan: _Scan,
        receivers: Sequence[Receiver],
        deletions: Sequence[Key],
        records: Sequence[tuple[Key, After]],
    ) -> None:
        self._sending.rows(receivers, scan.audience.filter, deletions, records)

    # --- those who do not read --------------------------------------------------------------------

    async def _room(self, scan: _Scan) -> None:
        """Waits until all who are in the scan read what was sent; not for long if others wait too."""
        members = self._members(scan)
        slow = [one for one in members if not one.hearer.is_writable]
        if not slow:
            return
        is_awaited = len(members) > 1 or self._slots.is_wanted
        patience_ms = RECORDS_PATIENCE_MS if is_awaited else RECORD_SLOW_MS
        try:
            async with asyncio.timeout(patience_ms / 1_000):
                for receiver in slow:
                    await receiver.hearer.writable()
        except TimeoutError:
            for receiver in slow:
                if receiver.hearer.is_writable:
                    continue
                if len(members) > 1:
                    self._post(BufferFull(receiver.number))
                else:
                    receiver.hearer.boot("it does not read")


def records_of(rows: Iterable[ScannedRow]) -> Iterable[tuple[Key, After]]:
    return ((row.key, After(row.seq, (), row.row, row.whole_bytes)) for row in rows)


def _runs_of(runs: Iterable[tuple[int, int]]) -> Iterable[list[Key]]:
    """The keys of runs of ids, in parts."""
    part: list[Key] = []
    for first, last in runs:
        for number in range(first, last + 1):
            part.append((str(number),))
            if len(part) >= RECORDS_CHUNK_ROWS_MAX:
                yield part
                part = []
    if part:
        yield part
