"""Lines that Postgres sent: what is kept, what is forgotten, and when nothing may be said of it."""

import json

import pytest

from moorline.core.records.snapshot import Snapshot
from moorline.limits import RECORDS_NOTIFIED_BYTES_MAX, RECORDS_NOTIFIED_LINES_MAX
from moorline.records.notified import First, NotifiedLines

LONG = '[1, "101", "I", ["1"], 0, "0", [], ' + "[" * 7_900
"""As long as a line may be, and all of it nested."""


def line(
    number: int, xid: int, kind: str = "I", key: str = "1", prev_xid: int = 0, prev_seq: int = 0
) -> str:
    if kind == "I":
        return json.dumps([number, str(xid), kind, [key]])
    if kind in "TR":
        return json.dumps([number, str(xid), kind])
    return json.dumps([number, str(xid), kind, [key], prev_seq, str(prev_xid), ["a", None]])


def begun(at: Snapshot) -> NotifiedLines:
    lines = NotifiedLines()
    lines.begin(at)
    return lines


def test_only_lines_between_two_snapshots_count() -> None:
    lines = begun(Snapshot(100, 100))
    for number, xid in enumerate((99, 100, 101, 102, 103), 1):
        lines.hear(line(number, xid, key=str(xid)))
    # 101 was open at the end of the step: it waits for the next one.
    first, second = Snapshot(101, 103, (101,)), Snapshot(104, 104)
    assert set(lines.first_lines(Snapshot(100, 100), first) or {}) == {("100",), ("102",)}
    lines.forget(first)
    assert set(lines.first_lines(first, second) or {}) == {("101",), ("103",)}


def test_what_a_key_was_is_said_by_its_first_line() -> None:
    since, until = Snapshot(100, 100), Snapshot(200, 200)
    lines = begun(since)
    lines.hear(line(8, 102, "U", "old", prev_xid=101, prev_seq=6))
    lines.hear(line(5, 101, "U", "old", prev_xid=50, prev_seq=3))
    lines.hear(line(6, 101, "I", "new"))
    lines.hear(line(7, 101, "U", "new", prev_xid=101, prev_seq=4))
    assert lines.first_lines(since, until) == {
        ("old",): First(True, 3, ("a", None)),
        ("new",): First(False, 0, ()),
    }


@pytest.mark.parametrize("kind", ["T", "R"])
def test_a_line_that_does_not_say_all_makes_nothing_known(kind: str) -> None:
    since = Snapshot(100, 100)
    lines = begun(since)
    lines.hear(line(1, 101))
    lines.hear(line(2, 105, kind))
    assert lines.first_lines(since, Snapshot(104, 104)) is not None
    assert lines.first_lines(since, Snapshot(106, 106)) is None
    assert lines.is_truncated(since, Snapshot(106, 106)) == (kind == "T")


def test_a_snapshot_from_before_the_lines_is_not_covered() -> None:
    lines = begun(Snapshot(100, 110, (105,)))
    assert lines.covers(Snapshot(100, 110, (105,)))
    assert lines.covers(Snapshot(120, 120))
    assert not lines.covers(Snapshot(100, 109, (105,)))
    # 104 was over when we began to listen: a snapshot that has it as open would ask for it.
    assert not lines.covers(Snapshot(100, 110, (104, 105)))
    assert not NotifiedLines().covers(Snapshot(1, 1))


@pytest.mark.parametrize("payload", ["", "no line", "[1]", '{"a": 1}', "null", LONG])
def test_a_text_that_is_no_line_makes_nothing_known(payload: str) -> None:
    lines = begun(Snapshot(100, 100))
    lines.hear(payload)
    assert not lines.covers(Snapshot(100, 100))


@pytest.mark.slow
def test_what_waits_is_bounded() -> None:
    lines = begun(Snapshot(100, 100))
    for number in range(RECORDS_NOTIFIED_LINES_MAX):
        lines.hear(line(number, 101))
    assert lines.covers(Snapshot(100, 100))
    lines.hear(line(0, 101))
    assert not lines.covers(Snapshot(100, 100))
    assert len(lines) == 0
    lines = begun(Snapshot(100, 100))
    for number in range(RECORDS_NOTIFIED_BYTES_MAX // 7_000):
        lines.hear(line(number, 101, key="x" * 7_000))
    assert not lines.covers(Snapshot(100, 100))
