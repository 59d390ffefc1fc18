"""Where a message is, step by step: a node that notes the time at each, for `bench.steps`.

    python -m bench.step_marks DATA INTO      serves; SIGUSR1 begins anew, SIGUSR2 writes INTO

The functions that a message runs through are wrapped, and note the time of a clock that all processes of a
machine share. A message is known by the stamp at the head of its body. That costs each message some
microseconds, which are in the figures.

What else may have taken the loop from a message is noted beside it: collections of garbage, statements of
the catalog, and how long the loop's thread was ready and had no core.
"""

import functools
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.topic_client import FRAME_BYTES, NAMES
from moorline.core.frames.frame import FRAME

STAMP_AT = FRAME.size + len(NAMES[0])
STAMP_BYTES = 20

STEPS = (
    "node has read",
    "decoded, judged",
    "appended",
    "framed",
    "in the log",
    "sync begun",
    "in the segments",
    "sync told",
    "committed",
    "answered",
    "block given",
    "delivery written",
)
"""In this order, at the node; the client's own come before and behind."""

FLAGS = ("--listen=tcp://127.0.0.1:0", "--http=off", "--log-level=warning")

Row = dict[str, int]


class Marks:
    """What was noted since the last beginning."""

    def __init__(self, into: Path) -> None:
        self._into = into
        self.rows: dict[int, Row] = {}
        self.read_ns = 0
        self.pending: list[Row] = []
        """Of what is in no commit yet."""
        self.under_way: list[Row] = []
        self.given: list[Row] = []
        """Handed to their session, and not written yet."""
        self.garbage: list[tuple[int, int]] = []
        self.catalog: list[tuple[int, int]] = []
        self._garbage_ns = 0
        self._waits = open("/proc/thread-self/schedstat", "rb", buffering=0)  # noqa: SIM115

    def listen(self) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: self._begin())
        signal.signal(signal.SIGUSR2, lambda *_: self._tell())
        gc.callbacks.append(self._collected)

    def _begin(self) -> None:
        self.rows, self.garbage, self.catalog = {}, [], []

    def _tell(self) -> None:
        whole = self._into.with_suffix(".part")
        told = {"rows": self.rows, "garbage": self.garbage, "catalog": self.catalog}
        whole.write_text(json.dumps(told))
        whole.rename(self._into)

    def _collected(self, phase: str, _: object) -> None:
        now = time.monotonic_ns()
        if phase == "start":
            self._garbage_ns = now
        else:
            self.garbage.append((self._garbage_ns, now))

    def waited_ns(self) -> int:
        """For how long the loop's thread was ready and had no core, since it began."""
        return int(os.pread(self._waits.fileno(), 64, 0).split()[1])

    def mark(self, rows: list[Row], step: str) -> None:
        now = time.monotonic_ns()
        for row in rows:
            row[step] = now


def _behind(owner: type, name: str, note: Callable[..., None]) -> None:
    """Has `note(result, *arguments)` called behind each call."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*given: Any, **named: Any) -> Any:
        result = original(*given, **named)
        note(result, *given)
        return result

    setattr(owner, name, wrapped)


def _before(owner: type, name: str, note: Callable[..., None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*given: Any, **named: Any) -> Any:
        note(*given)
        return original(*given, **named)

    setattr(owner, name, wrapped)


def _wrap(marks: Marks) -> None:
    _wrap_publishing(marks)
    _wrap_commits(marks)
    _wrap_delivery(marks)


def _wrap_publishing(marks: Marks) -> None:
    from moorline.net.session import Session
    from moorline.topics.publishing import Publishing

    def read(*_: object) -> None:
        marks.read_ns = time.monotonic_ns()

    def heard(_publishing: Publishing, _session: Session, calls: list[Any]) -> None:
        now = time.monotonic_ns()
        for call in calls:
            row = {"node has read": marks.read_ns, "decoded, judged": now}
            marks.pending.append(row)
            marks.rows[int(call.records[0].body[:STAMP_BYTES])] = row

    def stored(*_: object) -> None:
        marks.mark(marks.pending, "appended")

    _before(Session, "data_received", read)
    _before(Publishing, "heard", heard)
    _behind(Publishing, "heard", stored)


def _wrap_commits(marks: Marks) -> None:
    from moorline.catalog.groups import Groups
    from moorline.journal.begun_syncs import KernelSyncs
    from moorline.journal.streams.store import StreamStore
    from moorline.journal.streams.stream_log import StreamLog
    from moorline.net.session import Session

    def taken(batch: object, *_: object) -> None:
        if batch is not None:
            marks.under_way, marks.pending = marks.pending, []
            marks.mark(marks.under_way, "framed")

    def begun(*_: object) -> None:
        marks.mark(marks.under_way, "in the segments")
        waited = marks.waited_ns()
        for row in marks.under_way:
            row["waited"] = waited

    def committed(*_: object) -> None:
        marks.mark(marks.under_way, "committed")
        waited = marks.waited_ns()
        for row in marks.under_way:
            row["waited"] = waited - row.get("waited", waited)

    _behind(StreamStore, "take_batch", taken)
    _behind(StreamLog, "write", lambda *_: marks.mark(marks.under_way, "in the log"))
    _behind(KernelSyncs, "begin", lambda *_: marks.mark(marks.under_way, "sync begun"))
    _behind(StreamStore, "begin", begun)
    _before(KernelSyncs, "told", lambda *_: marks.mark(marks.under_way, "sync told"))
    _behind(StreamStore, "committed", committed)
    _behind(Session, "answer", lambda *_: marks.mark(_answered(marks), "answered"))
    original = Groups.commit_all

    async def commit_all(*given: Any) -> Any:
        began = time.monotonic_ns()
        try:
            return await original(*given)
        finally:
            marks.catalog.append((began, time.monotonic_ns()))

    setattr(Groups, "commit_all", commit_all)  # noqa: B010 - with other types


def _answered(marks: Marks) -> list[Row]:
    return [row for row in marks.under_way if "committed" in row]


def _wrap_delivery(marks: Marks) -> None:
    from moorline.net.connection import Connection
    from moorline.sessions.outlet import NativeOutlet

    def given(_outlet: object, effect: Any) -> None:
        frames = effect.frames
        for start in range(0, len(frames), FRAME_BYTES):
            stamp = frames[start + STAMP_AT : start + STAMP_AT + STAMP_BYTES]
            row = marks.rows.get(int(stamp))
            if row is not None:
                row["block given"] = time.monotonic_ns()
                marks.given.append(row)

    def written(*_: object) -> None:
        if marks.given:
            marks.mark(marks.given, "delivery written")
            marks.given = []

    _before(NativeOutlet, "deliver", given)
    _behind(Connection, "_write", written)


def main() -> int:
    from moorline.cli.main import run

    data, into, *settings = sys.argv[1:]
    marks = Marks(Path(into))
    _wrap(marks)
    marks.listen()
    return run(["serve", f"--data={data}", *FLAGS, *(f"--set={one}" for one in settings)])


if __name__ == "__main__":
    sys.exit(main())
