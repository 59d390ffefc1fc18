"""Room: node. The clock of a node: watched while it runs, remembered over a stop, confirmed by an operator.

    clock.json    when the node was last seen running: by the wall clock, by the trusted time, and by the
                  machine's own clock with the id of its boot; and whether the wall clock was held

The file is written at intervals, at every change, and at the end. Without one, or with one that cannot be
read, the wall clock is taken as it is.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from moorline.access.guard import Declarations, needs
from moorline.core.access.right import ADMINISTER
from moorline.core.effects import Effect
from moorline.core.wall_clock import ClockHeld, ClockTrusted, Remembered
from moorline.limits import CLOCK_LOOK_MS, CLOCK_NOTE_MS
from moorline.metrics import Metrics
from moorline.net.clock import boot_id, boot_ms, monotonic_ms
from moorline.net.session import Session, each
from moorline.net.trusted_clock import TrustedClock
from moorline.node.folder import write_durably
from moorline.wire.node import ClockConfirmed, ConfirmClock

log = logging.getLogger("moorline.node")

FILE = "clock.json"
CLOCK = "/admin/clock"

REASONS = {
    "RETURNED": "the wall clock is back where it should be",
    "CONFIRMED": "an operator has confirmed the wall clock",
    "TIME": "the wall clock has gone evenly for long enough",
}


class Note(msgspec.Struct, frozen=True):
    """What the file holds."""

    clock: Remembered
    boot: str
    boot_ms: int


class NodeClock:
    """Looks after a `TrustedClock`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._saving = threading.Lock()
        self.jumps = 0
        note = self._read()
        stopped_ms = None
        if note is not None and note.boot and note.boot == boot_id():
            # The machine has not been restarted: its own clock knows how long the stop was.
            passed_ms = boot_ms() - note.boot_ms
            stopped_ms = passed_ms if passed_ms >= 0 else None
        self.clock = TrustedClock(note.clock if note else None, stopped_ms)
        self.look()
        if self.clock.is_held and not self.jumps:
            # Before the stop, or over one of unknown length: the first look finds nothing new.
            self._perform([ClockHeld(self.clock.machine.jump_ms)])

    def declared(self) -> Declarations:
        return {ConfirmClock: needs(ADMINISTER, lambda _: (CLOCK,), each(self._confirm))}

    def _confirm(self, session: Session, call: ConfirmClock) -> ClockConfirmed:  # noqa: ARG002
        self.look()
        was_held, jump_ms = self.clock.is_held, self.clock.machine.jump_ms
        self._perform(self.clock.confirm())
        self.save()
        return ClockConfirmed(call.call, was_held, jump_ms)

    def look(self) -> None:
        """Compares the clocks; what is found is said, and stored before anything relies on it."""
        effects = self.clock.look()
        if effects:
            self._perform(effects)
            self.save()

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case ClockHeld(jump_ms):
                    self.jumps += 1
                    log.error(self.warning(), extra={"jump_ms": jump_ms})
                case ClockTrusted(reason, jump_ms):
                    log.warning(REASONS[reason], extra={"jump_ms": jump_ms})

    def warning(self) -> str:
        """What an operator should know of it; empty if all is well."""
        machine = self.clock.machine
        if not machine.is_held:
            return ""
        ahead = "ahead of" if machine.jump_ms > 0 else "behind"
        return (
            f"the wall clock is {_span(abs(machine.jump_ms))} {ahead} where it should be: expiry and "
            "retention take no notice of that. Set it right, or confirm it with `moor clock confirm`; it "
            f"counts by itself in {_span(machine.confirms_in_ms)}"
        )

    # --- the file ---------------------------------------------------------------------------------

    def _read(self) -> Note | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Note)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("the note of the clock cannot be read", extra={"why": str(error)})
            return None

    def save(self) -> None:
        """One at a time, whoever asks: the loop, or the thread of the notes at intervals.

        Each takes its note when it has its turn, so that no older one is written over a newer one.
        """
        with self._saving:
            note = Note(self.clock.remembered(), boot_id(), boot_ms())
            try:
                write_durably(self._file, msgspec.json.encode(note).decode())
            except OSError as error:
                # A full disk, mostly: the note before this one says the same of an earlier moment.
                log.warning("the clock was not noted", extra={"why": str(error)})

    async def watch_forever(self) -> None:
        noted_ms = monotonic_ms()
        while True:
            self.look()
            if monotonic_ms() - noted_ms >= CLOCK_NOTE_MS:
                noted_ms = monotonic_ms()
                await asyncio.to_thread(self.save)
            await asyncio.sleep(CLOCK_LOOK_MS / 1_000)


@contextlib.asynccontextmanager
async def open_clock(folder: Path) -> AsyncIterator[NodeClock]:
    clock = NodeClock(folder)
    clock.save()
    watch = asyncio.create_task(clock.watch_forever())
    try:
        yield clock
    finally:
        watch.cancel()
        clock.look()
        clock.save()


def watch(metrics: Metrics, clock: NodeClock) -> None:
    """Shows the clock on /metrics."""
    metrics.watch(
        "clock_held",
        "1 while the wall clock has jumped, and expiry and retention take no notice of that.",
        lambda: int(clock.clock.is_held),
    )
    metrics.watch("clock_jumps_total", "Jumps of the wall clock.", lambda: clock.jumps)
    metrics.watch(
        "clock_jump_seconds",
        "How far the wall clock is ahead while it is held; below 0: behind.",
        lambda: clock.clock.machine.jump_ms / 1_000,
    )


def _span(time_ms: int) -> str:
    """A length of time, as people say it."""
    minutes = -(-time_ms // 60_000)
    days, hours, minutes = minutes // 1_440, minutes // 60 % 24, minutes % 60
    parts = [(days, "day"), (hours, "hour"), (minutes, "minute")]
    said = [f"{count} {name}{'s' * (count > 1)}" for count, name in parts if count][:2]
    return " ".join(said) or "less than a minute"
