"""The feed of a table, event by event."""

from decimal import Decimal
from random import Random
from typing import Any

import pytest
from tests.core.records.tables import TABLE

from moorline.core.effects import Effect, Event
from moorline.core.records.cursor import TableCursor
from moorline.core.records.feed_events import (
    BeginScan,
    Boot,
    BufferFull,
    CancelScan,
    ChangesRead,
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
    Wanted,
)
from moorline.core.records.filter import parse_filter
from moorline.core.records.permit import Permit, make_permit, owner_column
from moorline.core.records.row_hash import digest_of_rows
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.subscription import Standing
from moorline.core.records.table import After, Before, Change
from moorline.core.records.table_feed import TableFeed
from moorline.core.sets.digest import Digest
from moorline.errors import MachineError
from moorline.limits import RECORD_CURSOR_FRESH_MS, RECORD_SLOW_MS, RECORD_WAITING_MAX

ALL = make_permit(owner_column(TABLE), is_all=True)
ONE = make_permit(owner_column(TABLE), is_all=False, owners=frozenset({1}))
SCOPES = (1, "NEW", Decimal(1), "n")


def after(seq: int) -> After:
    return After(seq, SCOPES, b"{}")


def appears(key: str, seq: int) -> Change:
    return Change((key,), None, after(seq))


def goes(key: str, seq: int) -> Change:
    return Change((key,), Before(seq, SCOPES), None)


def digest(*versions: tuple[str, int]) -> Digest:
    return digest_of_rows(TABLE.salt, (((key,), seq) for key, seq in versions))


class Scene:
    def __init__(self, **options: Any) -> None:
        self.feed = TableFeed(TABLE, Random(1), rights_version=1, **options)
        self.now_ms = 0
        self.xid = 10

    def post(self, event: Event) -> list[Effect]:
        effects = self.feed.handle(event, self.now_ms)
        self.feed.check()
        return effects

    def subscribe(
        self, number: int, where: dict[str, Any] | None = None, **wanted: Any
    ) -> list[Effect]:
        permit = wanted.pop("permit", ALL)
        version = wanted.pop("version", 1)
        filter_ = parse_filter(TABLE, where or {})
        return self.post(Subscribed(number, number, Wanted(filter_, permit, version, **wanted)))

    def begin(self) -> list[Effect]:
        self.now_ms += 100
        effects = self.post(Tick())
        self.xid += 1
        return [*effects, *self.post(StepBegun(Snapshot(self.xid, self.xid), TABLE))]

    def step(self, *changes: Change) -> list[Effect]:
        self.begin()
        effects = self.post(ChangesRead(changes)) if changes else []
        return [*effects, *self.post(StepEnded())]

    def live(
        self, *numbers: int, where: dict[str, Any] | None = None, permit: Permit = ALL
    ) -> None:
        for number in numbers:
            self.subscribe(number, where, permit=permit)
        (scan,) = [one for one in self.step() if isinstance(one, BeginScan)]
        self.post(ScanEnded(scan.scan, digest()))
        assert all(self.feed.subscriptions[one].standing is Standing.LIVE for one in numbers)


def test_a_first_sync_and_then_live() -> None:
    scene = Scene()
    assert scene.subscribe(1) == []
    scene.now_ms = 1
    assert scene.post(Tick()) == [TakeStep(None)]
    at = Snapshot(5, 5)
    scene.post(StepBegun(at, TABLE))
    assert scene.post(StepEnded()) == [
        StartSync((1,), How.FULL),
        BeginScan(1, How.FULL, 1, 1, at, (1,)),
    ]
    rows = ((("a",), after(1)),)
    assert scene.post(ScanRead(1, rows)) == [SendRows((1,), 1, (), rows)]
    assert scene.post(ScanEnded(1, digest(("a", 1)))) == [EndSync((1,), 1, at, digest(("a", 1)))]
    effects = scene.step(appears("b", 2))
    assert effects[:2] == [StartSync((1,), How.LIVE), SendRows((1,), 1, (), ((("b",), after(2)),))]
    assert effects[2] == EndSync((1,), 1, Snapshot(11, 11), digest(("a", 1), ("b", 2)))


def test_rf5_equal_subscriptions_share_a_scan_and_what_is_sent() -> None:
    scene = Scene()
    for number in (1, 2, 3):
        scene.subscribe(number, {"workspace": 1} if number < 3 else {"workspace": 2})
    scans = [one for one in scene.step() if isinstance(one, BeginScan)]
    assert [one.to for one in scans] == [(1, 2), (3,)]
    for scan in scans:
        scene.post(ScanEnded(scan.scan, digest()))
    sent = [one for one in scene.step(appears("a", 1)) if isinstance(one, SendRows)]
    assert [one.to for one in sent] == [(1, 2)]


def test_a_cursor_leads_to_a_replay_and_another_one_does_not() -> None:
    scene = Scene()
    hashes = parse_filter(TABLE, {}).hash, ALL.hash
    cursor = TableCursor("runs", "e1", Snapshot(5, 6), *hashes, digest(("a", 1)))
    other = TableCursor("runs", "e0", Snapshot(5, 6), *hashes, digest(("a", 1)))
    scene.subscribe(1, cursor=cursor, otherwise=How.DIGEST)
    scene.subscribe(2, cursor=other, otherwise=How.DIGEST)
    one, two = [effect for effect in scene.step() if isinstance(effect, BeginScan)]
    assert (one.how, one.since, one.digest) == (How.REPLAY, Snapshot(5, 6), digest(("a", 1)))
    assert (two.how, two.since) == (How.DIGEST, None)
    assert scene.post(SyncDone(two.scan, 1, digest())) == [], "of another scan"
    (end,) = scene.post(SyncDone(one.scan, 1, digest(("a", 1))))
    assert isinstance(end, EndSync)
    # The scan tells what is there: what the cursor said differs, and who came with it hears so.
    scene.post(ScanEnded(two.scan, digest(("b", 1))))
    scene.post(SyncDone(two.scan, 2, digest(("b", 1))))
    assert scene.feed.audiences[1].digest() == digest(("b", 1))


def test_t26_what_happens_during_a_scan_is_sent_behind_it() -> None:
    scene = Scene()
    scene.subscribe(1)
    (_, scan) = scene.step()
    assert isinstance(scan, BeginScan)
    assert scene.step(appears("a", 1), appears("b", 2)) == []
    scene.step(goes("a", 1))
    effects = scene.post(ScanEnded(scan.scan, digest()))
    assert effects[1:] == [
        StartSync((1,), How.LIVE),
        # What came and went is told too: nobody knows what was seen in between.
        SendRows((1,), 1, (("a",),), ((("b",), after(2)),)),
        EndSync((1,), 1, Snapshot(13, 13), digest(("b", 2))),
    ]


def test_a_scan_that_ends_within_a_step_goes_live_at_the_end_of_it() -> None:
    scene = Scene()
    scene.subscribe(1)
    (_, scan) = scene.step()
    assert isinstance(scan, BeginScan)
    scene.begin()
    scene.post(ChangesRead((appears("a", 1),)))
    assert len(scene.post(ScanEnded(scan.scan, digest()))) == 1
    assert scene.post(ChangesRead((appears("b", 2),))) == []
    sent = [one for one in scene.post(StepEnded()) if isinstance(one, SendRows)]
    assert {key for key, _ in sent[0].records} == {("a",), ("b",)}


def test_t60_a_slow_one_gets_the_latest_of_each_key_and_others_are_not_held() -> None:
    scene = Scene()
    scene.live(1, 2)
    scene.post(BufferFull(1))
    for seq in range(1, 6):
        change = Change(("a",), Before(seq - 1, SCOPES) if seq > 1 else None, after(seq))
        (_, sent, _) = scene.step(change)
        assert isinstance(sent, SendRows)
        assert sent.to == (2,)
    (_, sent, end) = scene.post(Drained(1))
    assert sent == SendRows((1,), 1, (), ((("a",), after(5)),))
    assert isinstance(end, EndSync)
    assert end.digest == digest(("a", 5))


def test_who_does_not_read_for_long_is_cut() -> None:
    scene = Scene()
    scene.live(1, 2)
    scene.post(BufferFull(1))
    scene.now_ms += RECORD_SLOW_MS
    boots = [one for one in scene.post(Tick()) if isinstance(one, Boot)]
    assert [one.subscription for one in boots] == [1]
    assert list(scene.feed.subscriptions) == [2]


def test_rf6_beyond_the_ring_the_log_goes_on() -> None:
    scene = Scene(recent_bytes_max=250)
    scene.live(1)
    scene.post(BufferFull(1))
    at = scene.feed.snapshot
    scene.step(appears("a", 1))
    scene.step(appears("b", 2))
    assert scene.post(Drained(1)) == []
    (_, scan) = scene.step()
    assert isinstance(scan, BeginScan)
    assert (scan.how, scan.since, scan.digest) == (How.REPLAY, at, digest())


def test_one_that_is_slow_in_a_scan_leaves_it_and_scans_alone() -> None:
    """RF7: the others do not wait for it."""
    scene = Scene()
    scene.subscribe(1)
    scene.subscribe(2)
    (_, scan) = scene.step()
    assert isinstance(scan, BeginScan)
    assert scene.post(BufferFull(1)) == []
    assert scene.post(ScanRead(scan.scan, ())) == [SendRows((2,), 1, (), ())]
    scene.post(Drained(1))
    (_, alone) = scene.step()
    assert isinstance(alone, BeginScan)
    assert (alone.to, alone.how) == ((1,), How.DIGEST)


def test_t50_rights_are_heard_of_before_anything_more_is_sent() -> None:
    scene = Scene()
    scene.live(1, 2)
    scene.begin()
    assert scene.post(RightsHeard(2)) == [LookAtPermits(2, (1, 2))]
    assert scene.post(ChangesRead((appears("a", 1),))) == []
    scene.post(StepEnded())
    boot, *rest = scene.post(PermitsLooked(2, {1: ONE, 2: ALL}))
    assert isinstance(boot, Boot)
    assert boot.subscription == 1
    assert rest[1] == SendRows((2,), 1, (), ((("a",), after(1)),))


def test_t54_rights_that_changed_before_it_was_registered_boot_it() -> None:
    scene = Scene()
    scene.post(RightsHeard(3))
    (boot,) = scene.subscribe(1, version=2)
    assert isinstance(boot, Boot)
    assert scene.subscribe(2, version=3) == []


def test_everybody_is_booted_if_that_is_wanted() -> None:
    scene = Scene(boots_all=True)
    scene.live(1, 2)
    effects = scene.post(RightsHeard(2))
    assert [one.subscription for one in effects if isinstance(one, Boot)] == [1, 2]
    assert len(scene.feed.audiences) == 0


def test_t56_returns_have_jitter_and_admission_a_rate() -> None:
    scene = Scene(boots_all=True, admitted_per_s=10)
    for number in range(1, 31):
        scene.subscribe(number, {"workspace": number})
    begun = [one for one in scene.step() if isinstance(one, BeginScan)]
    assert len(begun) <= 2
    more = [one for one in scene.step() if isinstance(one, BeginScan)]
    assert len(more) <= 1
    boots = [one for one in scene.post(RightsHeard(2)) if isinstance(one, Boot)]
    assert len(boots) == 30
    assert len({one.return_ms for one in boots}) > 20


def test_too_many_that_wait_are_told_when_to_return() -> None:
    scene = Scene()
    scene.feed._members.admission._waiting.extend(range(-RECORD_WAITING_MAX, 0))
    (refused,) = scene.subscribe(1)
    assert isinstance(refused, Refuse)
    assert not scene.feed.subscriptions


def test_t17_a_resync_goes_by_digest_and_ends_scans() -> None:
    scene = Scene()
    scene.live(1)
    scene.subscribe(2, {"workspace": 2})
    scene.step()
    scene.begin()
    scene.post(Resync("TRUNCATE"))
    assert scene.post(ChangesRead((appears("a", 1),))) == []
    effects = scene.post(StepEnded())
    assert isinstance(effects[0], CancelScan)
    assert {one.how for one in effects if isinstance(one, BeginScan)} == {How.DIGEST}


def test_t62_a_step_that_fails_is_read_again_and_what_it_sent_is_settled() -> None:
    scene = Scene()
    scene.live(1)
    scene.begin()
    (_, sent) = scene.post(ChangesRead((appears("a", 1), appears("b", 2))))
    assert isinstance(sent, SendRows)
    scene.post(StepFailed())
    # Meanwhile `a` went: it is in no step. `b` is in the next one.
    (_, again, deleted, end) = scene.step(appears("b", 2))
    assert again == SendRows((1,), 1, (), ((("b",), after(2)),))
    assert deleted == SendRows((1,), 1, (("a",),), ())
    assert isinstance(end, EndSync)
    assert end.digest == digest(("b", 2))


def test_who_left_a_step_that_then_failed_is_compared_anew() -> None:
    scene = Scene()
    scene.live(1)
    scene.begin()
    scene.post(ChangesRead((appears("a", 1),)))
    scene.post(BufferFull(1))
    scene.post(StepFailed())
    scene.post(Drained(1))
    (_, scan) = scene.step()
    assert isinstance(scan, BeginScan)
    assert scan.how is How.DIGEST


def test_a_scan_that_fails_begins_again_by_digest() -> None:
    scene = Scene()
    scene.subscribe(1)
    (_, scan) = scene.step()
    assert isinstance(scan, BeginScan)
    assert scene.post(ScanFailed(scan.scan)) == []
    (_, again) = scene.step()
    assert isinstance(again, BeginScan)
    assert again.how is How.DIGEST
    assert scene.post(ScanFailed(scan.scan)) == []


def test_an_audience_that_nothing_happens_to_gets_new_cursors() -> None:
    scene = Scene()
    scene.live(1)
    assert scene.step() == []
    scene.now_ms += RECORD_CURSOR_FRESH_MS
    (end,) = scene.step()
    assert isinstance(end, EndSync)


def test_what_is_out_of_place_tells_its_story() -> None:
    scene = Scene()
    for event in (StepEnded(), StepFailed(), ChangesRead(()), Event()):
        with pytest.raises(MachineError):
            scene.feed.handle(event, 0)


def test_rf6_the_ring_has_its_bound() -> None:
    scene = Scene(recent_bytes_max=1 << 40)
    scene.feed.recent.begin(1)
    huge = Change(("a",), None, After(1, SCOPES, bytes(65 << 20)))
    scene.feed.recent.add([huge])
    scene.feed.recent.end()
    with pytest.raises(AssertionError, match="RF6"):
        scene.feed.check()


def test_fo1_and_ad1_are_looked_at_too() -> None:
    scene = Scene()
    scene.live(1)
    scene.feed._members.fan_out._live[1] = (1, 2)
    with pytest.raises(AssertionError, match="FO1"):
        scene.feed.check()
