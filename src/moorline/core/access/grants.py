"""Room: core/access. The tree of rows, and what it says of a path: the only place where a verdict is found.

    grants.put(Row("/topics/orders", "@sales", grants=SUBSCRIBE | LIST))
    grants.rights_at(subjects, "/topics/orders/eu")      all rights there, as bits
    grants.rights_at(subjects, "/topics/orders/#")       those that every topic has which the filter takes
    grants.reach(subjects, WRITE, "/topics")             ALL, NONE or SOME of what is at and below it
    grants.split(subjects, SUBSCRIBE, "/records/runs")   the verdict there, and the levels below that differ
    grants.explain(subjects, WRITE, "/topics/orders")    the same verdict, with the rows that decided

    /                @loopback +slwpdag           From the root down to the path, at each node: what rows of
    └── topics       @everyone +s                 these subjects grant is added, then what they deny is
        ├── orders   @sales +w   alice -s         taken away. Deny beats grant at one node, deeper beats
        └── %u       @everyone +slw               higher. `%u` is the level of the principal itself.

A row at `/%u` is for all that is a principal's own: it stands in the tree as one at each of `OWN_PLACES`,
beside whatever rows are there, and is told as what it is.

A filter. Take the topic with a level that nobody named in place of each wildcard. If it has the right, a
topic that the filter takes can lack it only by a row that denies, the deepest that decides for it; and then
the shortest topic at or below that row's path which the filter takes lacks it too. So a filter is judged by
one such topic for each row that denies something to these subjects there, not by a walk over the tree.
Design: docs/design/access.md.

Invariants, looked at by `check`:

    GR1  the tree, by which a path is judged, and the lists, by which filters and subtrees are, have the same
         rows
    GR2  the rows of a subject are in order: those below a path are found by a search
    GR3  every leaf of the tree has a row
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from moorline.core.access.filter_paths import filled, is_filter, named_part, unified
from moorline.core.access.right import EVERYTHING, NOTHING, WRITE
from moorline.core.access.row import (
    OWN,
    OWN_PATH,
    OWN_PLACES,
    RESERVED,
    TOPICS,
    UNNAMED,
    Levels,
    Row,
    Subjects,
    levels_of,
)
from moorline.limits import EXPLAINED_ROWS_MAX


class Reach(Enum):
    """How much of a subtree has a right."""

    ALL = "all"
    NONE = "none"
    SOME = "some"


class Explanation(NamedTuple):
    is_granted: bool
    path: str
    """What was judged; of a filter that is denied, a topic that it takes and that is not granted. A level
    that nobody named is written as `…` there."""
    decided: tuple[Row, ...]
    """The rows that decided, all of one node; none where no row says anything."""


class _Node:
    __slots__ = ("below", "own", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, Row] | None = None
        self.own: dict[str, Row] | None = None
        """What rows at `/%u` say here."""
        self.below: dict[str, _Node] | None = None


_Entry = tuple[Levels, Row]


class Grants:
    """All rows. An empty one denies everything."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._root = _Node()
        self._by_subject: dict[str, list[_Entry]] = {}
        """The rows of each subject in the order of their levels: those below a path are neighbours."""
        self._own_by_subject: dict[str, dict[Levels, Row]] = {}
        """Those of them that have `%u`: for each principal they are at another place."""
        self._own_rows: dict[str, Row] = {}
        """Those at `/%u`, by subject; their parts are in the tree, and below in place of them."""
        self._own_parts: dict[str, dict[Levels, Row]] = {}
        self._count = 0
        self.fill(rows)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        for subject in {*self._by_subject, *self._own_by_subject}:
            for _, row in self._by_subject.get(subject, ()):
                yield row
            yield from self._own_by_subject.get(subject, {}).values()
        yield from self._own_rows.values()

    def fill(self, rows: Iterable[Row]) -> None:
        for _ in self.filling(rows):
            pass

    def filling(self, rows: Iterable[Row]) -> Iterator[None]:
        """Puts many rows into one that is empty; may be interrupted at each yield, and asked only behind it.

        No two of them are of one path and subject.
        """
        assert not self._count
        for row in rows:
            if row.path == OWN_PATH:
                self._put_own(row)
                continue
            levels = levels_of(row.path)
            before = self._plant(levels, row)
            assert before is None, f"two rows are of {row.path} and {row.subject}"
            self._list(levels, row, is_sorted=False)
            yield
        for entries in self._by_subject.values():
            # Once, at the end: to insert a hundred thousand one by one would move most of them each time.
            entries.sort(key=_place)
            yield

    def put(self, row: Row) -> None:
        """Adds it in place of the one of this path and subject, if there is one."""
        if row.path == OWN_PATH:
            self._remove_own(row.subject)
            self._put_own(row)
            return
        levels = levels_of(row.path)
        # The old one leaves its list before the new one comes in, or both would be there.
        if self._plant(levels, row) is not None:
            self._unlist(levels, row.subject)
        self._list(levels, row, is_sorted=True)

    def remove(self, path: str, subject: str) -> bool:
        """False if there is none."""
        if path == OWN_PATH:
            return self._remove_own(subject)
        levels = levels_of(path)
        if not self._uproot(levels, subject):
            return False
        self._unlist(levels, subject)
        return True

    # --- verdicts ---------------------------------------------------------------------------------

    def rights_at(self, subjects: Subjects, path: str) -> int:
        """What they may do there, as bits; of a filter, what they may do at every topic that it takes."""
        levels = levels_of(path)
        if not is_filter(levels):
            return self._rights(subjects, levels)
        bits = EVERYTHING
        # Lacking one right at one topic is lacking it for the filter.
        for one in self._samples(subjects, levels):
            bits &= self._rights(subjects, one)
            if not bits:
                break
        return bits

    def denies(self, subjects: Subjects, right: int, path: str) -> bool:
        """Whether rows take a right away there that one has without any, as by knowing a queue's id."""
        return not self._rights(subjects, levels_of(path), implied=right) & right

    def denies_within(self, subjects: Subjects, right: int, path: str) -> bool:
        """Whether they do so at a path or anywhere below it."""
        levels = levels_of(path)
        if not self._rights(subjects, levels, implied=right) & right:
            return True
        return any(row.denies & right for _, row in self._rows_below(subjects, levels))

    def everywhere(self, subjects: Subjects, path: str) -> int:
        """What they may do at a path and at everything below it, as bits; see `reach`."""
        levels = levels_of(path)
        reserved = RESERVED if len(levels) > 1 else frozenset()
        bits = self._rights(subjects, levels, reserved)
        for at, row in self._rows_below(subjects, levels):
            if not bits:
                break
            if row.denies & bits:
                bits &= self._rights(subjects, at, reserved)
        return bits

    def reaches(
        self, subjects: Subjects, right: int, below: str, apart: frozenset[str] = frozenset()
    ) -> bool:
        """Whether they have a right anywhere at or below a path, but for what is below those first levels."""
        levels = levels_of(below)
        if self._rights(subjects, levels) & right:
            return True
        return any(
            row.grants & right and at[0] not in apart and self._rights(subjects, at) & right
            for at, row in self._rows_below(subjects, levels)
        )

    def reach(self, subjects: Subjects, right: int, path: str) -> Reach:
        """How much of what is at and below a path has a right; `$…` topics are a part of it.

        A subtree is not less than all for what only nodes write in it: that is the publishers' own check.
        """
        levels = levels_of(path)
        reserved = RESERVED if len(levels) > 1 else frozenset()
        # What is below has the same verdict, until a row says otherwise: only rows of the other sign are
        # looked at.
        has_right = bool(self._rights(subjects, levels, reserved) & right)
        for at, row in self._rows_below(subjects, levels):
            # As with a filter: what differs below differs at the row that decides for it.
            if (row.denies if has_right else row.grants) & right and (
                bool(self._rights(subjects, at, reserved) & right) != has_right
            ):
                return Reach.SOME
        return Reach.ALL if has_right else Reach.NONE

    def split(self, subjects: Subjects, right: int, path: str) -> tuple[bool, frozenset[str]]:
        """Whether they have a right at a path; and the levels right below it where it is the other way."""
        levels = levels_of(path)
        has_right = bool(self._rights(subjects, levels) & right)
        found: set[str] = set()
        for at, row in self._rows_below(subjects, levels):
            # As in `reach`: only a row of the other sign, at the level itself, makes a difference there.
            if (
                len(at) == len(levels) + 1
                and (row.denies if has_right else row.grants) & right
                and bool(self._rights(subjects, at) & right) != has_right
            ):
                found.add(at[-1])
        return has_right, frozenset(found)

    def explain(self, subjects: Subjects, right: int, path: str) -> Explanation:
        """Why it is granted or not; the same verdict as `rights_at`."""
        levels = levels_of(path)
        judged = levels
        if is_filter(levels):
            samples = list(self._samples(subjects, levels))
            lacking = (one for one in samples if not self._rights(subjects, one) & right)
            judged = next(lacking, samples[0])
        is_granted = bool(self._rights(subjects, judged) & right)
        decided: list[Row] = []
        for nodes in self._walk(subjects, judged):
            rows = [row for node in nodes for row in _rows_of(node, subjects)]
            here = [row for row in rows if row.denies & right]
            here = here or [row for row in rows if row.grants & right]
            decided = here or decided
        if not is_granted and all(not row.denies & right for row in decided):
            decided = []  # reserved, and no row has a say in that
        # A part of a row is told as the row that somebody wrote.
        decided = [self._own_rows[row.subject] if row.path == OWN_PATH else row for row in decided]
        shown = path if is_granted else "/" + "/".join(judged).replace(UNNAMED, "…")
        decided.sort(key=lambda row: (row.path, row.subject))
        return Explanation(is_granted, shown, tuple(decided[:EXPLAINED_ROWS_MAX]))

    def _rights(
        self,
        subjects: Subjects,
        levels: Levels,
        reserved: frozenset[str] = RESERVED,
        implied: int = NOTHING,
    ) -> int:
        """`implied` is what one has before any row is looked at."""
        bits = implied
        for nodes in self._walk(subjects, levels):
            # One node of the tree may have two branches: by its name, and as the principal's own.
            granted = denied = NOTHING
            for node in nodes:
                for row in _rows_of(node, subjects):
                    granted |= row.grants
                    denied |= row.denies
            # Grants of all branches, then denials of all: node by node of one level the order of the
            # branches would decide.
            bits = (bits | granted) & ~denied
        # The last word, behind all rows: not even who may everything writes what clients take for a node's
        # own.
        if len(levels) > 1 and levels[1] in reserved and levels[0] == TOPICS:
            bits &= ~WRITE
        return bits

    def _walk(self, subjects: Subjects, levels: Levels) -> Iterator[Sequence[_Node]]:
        """The nodes of the tree from the root to the path, as far as there are any."""
        nodes: Sequence[_Node] = (self._root,)
        yield nodes
        own = subjects.level
        for level in levels:
            found: list[_Node] = []
            for node in nodes:
                if node.below is None:
                    continue
                # A topic may be called %u, and is not the principal's own by that.
                if level != OWN and (named := node.below.get(level)) is not None:
                    found.append(named)
                if level == own and (named := node.below.get(OWN)) is not None:
                    found.append(named)
            # No row is deeper: what was found so far is the verdict.
            if not found:
                return
            nodes = found
            yield nodes

    def _samples(self, subjects: Subjects, levels: Levels) -> Iterator[Levels]:
        """Paths that a filter takes, such that it has a right exactly if all of them have it."""
        yield filled(levels)
        # A row at or above the known part decides for the first sample as for every other.
        for at, row in self._rows_below(subjects, named_part(levels)):
            if row.denies and (sample := unified(levels, at)) is not None:
                yield sample

    def _rows_below(self, subjects: Subjects, levels: Levels) -> Iterator[_Entry]:
        """The rows of these subjects below a path, not at it, with the levels that they have for them."""
        depth = len(levels)
        for name in subjects.names:
            entries = self._by_subject.get(name, ())
            # Neighbours, since a path comes right before all that begin with it.
            for place in range(bisect_left(entries, levels, key=_place), len(entries)):
                at, row = entries[place]
                if at[:depth] != levels:
                    break
                if len(at) > depth:
                    yield at, row
            # They have no place in that order, because it is another one for each principal. There are few:
            # a handful of rows for everyone.
            for own in (self._own_by_subject.get(name), self._own_parts.get(name)):
                for unresolved, row in () if own is None else own.items():
                    at = _resolved(unresolved, subjects.level)
                    if len(at) > depth and at[:depth] == levels:
                        yield at, row

    # --- keeping ----------------------------------------------------------------------------------

    def _put_own(self, row: Row) -> None:
        assert row.subject not in self._own_rows, f"two rows are of {row.path} and {row.subject}"
        self._own_rows[row.subject] = row
        self._count += 1
        for levels, bits in OWN_PLACES:
            part = Row(row.path, row.subject, row.grants & bits, row.denies & bits)
            if part.grants or part.denies:
                self._plant(levels, part, is_part=True)
                self._own_parts.setdefault(row.subject, {})[levels] = part

    def _remove_own(self, subject: str) -> bool:
        if self._own_rows.pop(subject, None) is None:
            return False
        self._count -= 1
        for levels in self._own_parts.pop(subject, {}):
            self._uproot(levels, subject, is_part=True)
        return True

    def _plant(self, levels: Levels, row: Row, *, is_part: bool = False) -> Row | None:
        """The row that was there."""
        node = self._root
        for level in levels:
            if node.below is None:
                node.below = {}
            found = node.below.get(level)
            if found is None:
                # Tables are made where they are needed: most nodes of a large tree are leaves with one row.
                found = node.below[level] = _Node()
            node = found
        if is_part:
            if node.own is None:
                node.own = {}
            node.own[row.subject] = row
            return None
        if node.rows is None:
            node.rows = {}
        before = node.rows.get(row.subject)
        node.rows[row.subject] = row
        return before

    def _uproot(self, levels: Levels, subject: str, *, is_part: bool = False) -> bool:
        """False if it was not there."""
        nodes = [self._root]
        for level in levels:
            found = None if nodes[-1].below is None else nodes[-1].below.get(level)
            if found is None:
                return False
            nodes.append(found)
        last = nodes[-1]
        rows = last.own if is_part else last.rows
        if rows is None or rows.pop(subject, None) is None:
            return False
        # What leads nowhere any more goes too, or a table that changes for years would grow.
        if not rows and is_part:
            last.own = None
        elif not rows:
            last.rows = None
        for depth in range(len(levels), 0, -1):
            if nodes[depth].rows or nodes[depth].own or nodes[depth].below:
                break
            above = nodes[depth - 1].below
            assert above is not None
            del above[levels[depth - 1]]
            if not above:
                nodes[depth - 1].below = None
        return True

    def _list(self, levels: Levels, row: Row, *, is_sorted: bool) -> None:
        self._count += 1
        if OWN in levels:
            self._own_by_subject.setdefault(row.subject, {})[levels] = row
        elif is_sorted:
            insort(self._by_subject.setdefault(row.subject, []), (levels, row), key=_place)
        else:
            self._by_subject.setdefault(row.subject, []).append((levels, row))

    def _unlist(self, levels: Levels, subject: str) -> None:
        self._count -= 1
        if OWN in levels:
            rows = self._own_by_subject[subject]
            del rows[levels]
            if not rows:
                del self._own_by_subject[subject]
            return
        entries = self._by_subject[subject]
        place = bisect_left(entries, levels, key=_place)
        assert entries[place][0] == levels
        del entries[place]
        if not entries:
            del self._by_subject[subject]

    # --- what always holds ------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts the invariants; costs a walk over all rows."""
        planted: dict[tuple[Levels, str], Row] = {}
        parts = 0
        waiting: list[tuple[Levels, _Node]] = [((), self._root)]
        while waiting:
            levels, node = waiting.pop()
            is_of_use = node is self._root or node.rows or node.own or node.below
            assert is_of_use, f"GR3: nothing is at {levels}"
            planted.update({(levels, subject): row for subject, row in (node.rows or {}).items()})
            for subject, row in (node.own or {}).items():
                assert self._own_parts[subject][levels] is row, f"GR1: a part at {levels}"
                parts += 1
            waiting += [((*levels, level), one) for level, one in (node.below or {}).items()]
        listed = {(levels_of(row.path), row.subject): row for row in self if row.path != OWN_PATH}
        assert listed == planted, f"GR1: {len(listed)} rows are listed, {len(planted)} planted"
        assert parts == sum(map(len, self._own_parts.values())), f"GR1: {parts} parts are planted"
        assert self._own_parts.keys() <= self._own_rows.keys(), "GR1: parts of no row"
        assert self._count == len(planted) + len(self._own_rows), f"GR1: {self._count} are counted"
        for subject, entries in self._by_subject.items():
            places = [levels for levels, _ in entries]
            assert places == sorted(places), f"GR2: the rows of {subject}"


def _place(entry: _Entry) -> Levels:
    return entry[0]


def _rows_of(node: _Node, subjects: Subjects) -> Iterator[Row]:
    if node.rows is not None:
        yield from _of_subjects(node.rows, subjects)
    if node.own is not None:
        yield from _of_subjects(node.own, subjects)


def _of_subjects(rows: dict[str, Row], subjects: Subjects) -> Iterator[Row]:
    # Whichever are fewer: a node may have the rows of thousands, and a principal dozens of groups.
    if len(rows) < len(subjects.names):
        for subject, row in rows.items():
            if subject in subjects.names:
                yield row
    else:
        for name in subjects.names:
            if (found := rows.get(name)) is not None:
                yield found


def _resolved(levels: Levels, own: str) -> Levels:
    return tuple(own if level == OWN else level for level in levels)
