"""Room: records. Lines of a table that Postgres sent, until a step takes them. Pure: no connection in here.

Postgres sends what a transaction notified when it commits, in the order of commits. So lines are those of
transactions that are over, and when a marker is heard that was sent behind a snapshot, so are all that it
shows.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from moorline.core.records.snapshot import Snapshot
from moorline.core.records.table import Key
from moorline.limits import RECORDS_NOTIFIED_BYTES_MAX, RECORDS_NOTIFIED_LINES_MAX


class NotifiedLine(msgspec.Struct, frozen=True, array_like=True):
    """As the trigger writes it: `I` has a key, `U` and `D` what was before too; `T` and `R` ("resync")
    nothing."""

    number: int
    xid: str
    kind: str
    key: tuple[str, ...] = ()
    prev_seq: int = 0
    prev_xid: str = "0"
    scopes: tuple[Any, ...] = ()


class First(msgspec.Struct, frozen=True):
    """What a key was before its first line, if it was."""

    was: bool
    seq: int
    scopes: tuple[str | None, ...]


_decode = msgspec.json.Decoder(NotifiedLine).decode


class NotifiedLines:
    def __init__(self) -> None:
        self._heard: list[NotifiedLine] = []
        self._bytes = 0
        self._from: Snapshot | None = None
        """All that is behind this one is heard, or will be. None: something was missed."""

    def __len__(self) -> int:
        return len(self._heard)

    def hear(self, payload: str) -> None:
        try:
            line = _decode(payload)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            # Anybody may send on any channel: what is no line of ours says nothing, but nothing is relied
            # on then.
            self.lose()
            return
        self._heard.append(line)
        self._bytes += len(payload)
        if (
            len(self._heard) > RECORDS_NOTIFIED_LINES_MAX
            or self._bytes > RECORDS_NOTIFIED_BYTES_MAX
        ):
            self.lose()

    def lose(self) -> None:
        self._heard.clear()
        self._bytes = 0
        self._from = None

    def begin(self, at: Snapshot) -> None:
        """Lines are heard of all that is behind `at`: it was taken while we listened."""
        self._from = at
        self._keep(at)

    def covers(self, since: Snapshot) -> bool:
        """Whether nothing behind `since` was missed or forgotten."""
        known = self._from
        if known is None:
            return False
        return since.xmax >= known.xmax and all(known.is_behind(one) for one in since.open)

    def forget(self, since: Snapshot) -> None:
        """What is not behind `since` was taken by a step."""
        assert self.covers(since)
        self._from = since
        self._keep(since)

    def first_lines(self, since: Snapshot, until: Snapshot) -> dict[Key, First] | None:
        """Of each key that changed between the two; None if a line says that it does not say all."""
        found: dict[Key, First] = {}
        # By number: two sessions that change one row do so one after the other, and number it so.
        for line in sorted(self._between(since, until), key=lambda one: one.number):
            if line.kind in ("T", "R"):
                return None
            if line.key not in found:
                was = line.kind != "I" and not since.is_behind(int(line.prev_xid))
                found[line.key] = First(was, line.prev_seq, line.scopes)
        return found

    def is_truncated(self, since: Snapshot, until: Snapshot) -> bool:
        return any(line.kind == "T" for line in self._between(since, until))

    def _between(self, since: Snapshot, until: Snapshot) -> Iterable[NotifiedLine]:
        return (
            line
            for line in self._heard
            if since.is_behind(int(line.xid)) and not until.is_behind(int(line.xid))
        )

    def _keep(self, since: Snapshot) -> None:
        self._heard = [line for line in self._heard if since.is_behind(int(line.xid))]
        if not self._heard:
            self._bytes = 0
