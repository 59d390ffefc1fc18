"""From where on a log tells all: never where a line is missing, and wherever none is but for good cause."""

from random import Random

import pytest
from tests.core.records.model_postgres import ModelPostgres

from moorline.core.records.log_reach import LogReach
from moorline.core.records.snapshot import Snapshot

SCOPES = (1, "NEW", None, "a")


class Story:
    """Transactions that each write one line, in every order, and a log of which parts go."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.db = ModelPostgres(self.chance)
        self.written: set[int] = set()
        """Transactions that changed something."""
        self.snapshots: list[Snapshot] = []
        self.is_cleared = False

    def happen(self) -> None:
        db, chance = self.db, self.chance
        match chance.randint(0, 9):
            case 0 | 1 | 2:
                xid = db.begin()
                if db.write(xid, (str(xid),), SCOPES) and db.write(xid, (str(xid),), None):
                    self.written.add(xid)
            case 3 | 4 | 5:
                # The oldest stays open for long.
                open_ = sorted(db.open)[chance.random() < 0.9 :]
                if open_:
                    db.end(chance.choice(open_), is_committed=chance.random() < 0.9)
            case 6:
                db.keep_moment()
            case 7:
                if db.moments:
                    db.prune(chance.choice(db.moments))
            case 8:
                self.snapshots.append(db.snapshot())
            case _:
                if chance.random() < 0.1:
                    self.is_cleared = True
                    db.pass_the_bound()

    def lines_missing(self, since: Snapshot, until: Snapshot) -> bool:
        there = {line.xid for line in self.db.log}
        return any(
            since.is_behind(xid) and not until.is_behind(xid) and xid not in there
            for xid in self.written & self.db.committed
        )


@pytest.mark.parametrize("block", range(4))
def test_where_it_reaches_no_line_is_missing(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        story = Story(seed)
        for _ in range(150):
            story.happen()
            until = story.db.snapshot()
            for since in story.snapshots:
                if story.db.reach.reaches(since, until):
                    assert not story.lines_missing(since, until), f"{seed}: {since} to {until}"


def test_the_control_is_another_bound() -> None:
    """By the oldest open transaction alone, as one bound has it, most of these snapshots would be refused."""
    reached = refused = 0
    for seed in range(100):
        story = Story(seed)
        for _ in range(150):
            story.happen()
        reach, until = story.db.reach, story.db.snapshot()
        below = max(reach.cleared_below, reach.pruned_below)
        for since in story.snapshots:
            if reach.reaches(since, until):
                reached += 1
                refused += since.xmin < below
    assert refused > reached // 4


def test_whoever_is_younger_than_the_moment_lacks_nothing_whatever_stays_open() -> None:
    reach = LogReach().pruned(90, Snapshot(10, 100, (10, 95)))
    # 10 was open at the moment, and is: or it has ended since, and its lines are there.
    for since in (Snapshot(10, 100, (10, 95)), Snapshot(10, 120, (10,)), Snapshot(120, 120)):
        assert reach.reaches(since, Snapshot(200, 200))
    assert not reach.reaches(Snapshot(10, 90, (10,)), Snapshot(10, 200, (10,)))
    # 50 was open here, and had ended at the moment.
    assert not reach.reaches(Snapshot(10, 100, (10, 50)), Snapshot(200, 200))


def test_a_cleared_log_is_missed_when_a_transaction_from_before_ends() -> None:
    reach = LogReach(cleared_below=100)
    since = Snapshot(10, 120, (10, 110))
    assert reach.reaches(since, Snapshot(10, 130, (10,)))
    assert not reach.reaches(since, Snapshot(130, 130))
    assert reach.reaches(since)
    assert not reach.reaches(Snapshot(99, 99), Snapshot(130, 130))


def test_the_later_moment_counts_whatever_the_order_of_prunings() -> None:
    early, late = Snapshot(10, 50, (10,)), Snapshot(10, 60, (10, 55))
    assert LogReach().pruned(40, late).pruned(45, early) == LogReach(0, 46, late)
    assert LogReach().pruned(45, early).pruned(40, late) == LogReach(0, 46, late)
