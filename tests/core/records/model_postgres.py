"""A table of Postgres in memory, with what registration puts there: transactions, snapshots, and the log.

A model of its own: it knows nothing of feeds, and what is visible where follows from transactions alone.
"""

from random import Random
from typing import NamedTuple

import msgspec
from tests.core.records.tables import TABLE

from moorline.core.records.log_reach import LogReach
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.table import After, Before, Change, Key, Scopes, Table


class Version:
    """Of a row: made by one transaction, and ended by another; `put_by` put the row there."""

    __slots__ = ("ended_by", "made_by", "put_by", "row", "scopes", "seq")

    def __init__(self, made_by: int, put_by: int, seq: int, scopes: Scopes, row: bytes) -> None:
        self.made_by, self.seq, self.scopes, self.row = made_by, seq, scopes, row
        self.put_by = put_by
        self.ended_by: int | None = None


class Line(NamedTuple):
    n: int
    xid: int
    kind: str
    key: Key
    old: Scopes
    prev_seq: int
    prev_xid: int


class ModelPostgres:
    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.next_xid = 10
        self.open: dict[int, set[Key]] = {}
        self.committed: set[int] = set()
        self.versions: dict[Key, list[Version]] = {}
        self.log: list[Line] = []
        self.reach = LogReach()
        self.moments: list[Snapshot] = []
        self.epoch = 1
        self._seq = self._n = 0

    @property
    def table(self) -> Table:
        return msgspec.structs.replace(TABLE, reach=self.reach, epoch=f"e{self.epoch}")

    # --- writers ----------------------------------------------------------------------------------

    def begin(self) -> int:
        xid, self.next_xid = self.next_xid, self.next_xid + 1
        self.open[xid] = set()
        return xid

    def end(self, xid: int, *, is_committed: bool) -> None:
        keys = self.open.pop(xid)
        if is_committed:
            self.committed.add(xid)
            return
        for key in keys:
            self.versions[key] = [one for one in self.versions[key] if one.made_by != xid]
            for one in self.versions[key]:
                if one.ended_by == xid:
                    one.ended_by = None
        self.log = [line for line in self.log if line.xid != xid]

    def write(self, xid: int, key: Key, scopes: Scopes | None) -> bool:
        """Inserts or updates; with no scopes, deletes. False if another one holds the row."""
        if any(key in keys for other, keys in self.open.items() if other != xid):
            return False
        now = next((one for one in self.versions.get(key, []) if one.ended_by is None), None)
        if now is None and scopes is None:
            return False
        self.open[xid].add(key)
        if now is not None:
            now.ended_by = xid
            self._n += 1
            kind = "D" if scopes is None else "U"
            self.log.append(Line(self._n, xid, kind, key, now.scopes, now.seq, now.put_by))
        if scopes is not None:
            self._seq += 1
            row = b'{"id":%s,"v":%d}' % (key[0].encode(), self._seq)
            put_by = xid if now is None else now.put_by
            self.versions.setdefault(key, []).append(Version(xid, put_by, self._seq, scopes, row))
        return True

    def truncate(self) -> bool:
        """It waits for all writers, and here it is left where there are some."""
        if self.open:
            return False
        xid = self.begin()
        for versions in self.versions.values():
            for one in versions:
                one.ended_by = xid if one.ended_by is None else one.ended_by
        self._n += 1
        self.log.append(Line(self._n, xid, "T", (), (), 0, 0))
        self.end(xid, is_committed=True)
        return True

    def pass_the_bound(self) -> None:
        """The log has grown beyond its bound: it is dropped. Who is open may have been refused lines."""
        self.log = []
        drawn, self.next_xid = self.next_xid, self.next_xid + 1
        self.reach = msgspec.structs.replace(self.reach, cleared_below=drawn)

    def keep_moment(self) -> None:
        self.moments.append(self.snapshot())

    def prune(self, moment: Snapshot) -> None:
        """Lines go that were visible then; not all of them, as a turn takes no more than so many."""
        gone = [
            line
            for line in self.log
            if self._is_seen(line.xid, moment) and self.chance.random() < 0.9
        ]
        for line in gone:
            self.log.remove(line)
            self.reach = self.reach.pruned(line.xid, moment)

    # --- readers ----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        open_ = tuple(sorted(self.open))
        return Snapshot(open_[0] if open_ else self.next_xid, self.next_xid, open_)

    def _is_seen(self, xid: int, at: Snapshot) -> bool:
        return xid in self.committed and not at.is_behind(xid)

    def rows(self, at: Snapshot) -> dict[Key, Version]:
        found = {}
        for key, versions in self.versions.items():
            for one in versions:
                is_ended = one.ended_by is not None and self._is_seen(one.ended_by, at)
                if self._is_seen(one.made_by, at) and not is_ended:
                    assert key not in found, "two versions of one row"
                    found[key] = one
        return found

    def changes(self, since: Snapshot, until: Snapshot) -> list[Change] | None:
        """Net, as a capture gives them (docs/design/records.md); None: all is to be synced anew."""
        if not self.reach.reaches(since, until):
            return None
        lines = [
            one for one in self.log if self._is_seen(one.xid, until) and since.is_behind(one.xid)
        ]
        if any(line.kind == "T" for line in lines):
            return None
        first: dict[Key, Line] = {}
        for line in lines:
            first.setdefault(line.key, line)
        found: list[Change] = []
        now = {
            key: one
            for key, one in self.rows(until).items()
            if key in first or since.is_behind(one.put_by)
        }
        for key in {**first, **now}:
            begun, version = first.get(key), now.get(key)
            before = None
            if begun is not None and not since.is_behind(begun.prev_xid):
                before = Before(begun.prev_seq, begun.old)
            after = After(version.seq, version.scopes, version.row) if version is not None else None
            if before is not None or after is not None:
                found.append(Change(key, before, after))
        self.chance.shuffle(found)
        return sorted(found, key=lambda change: change.after is not None)
