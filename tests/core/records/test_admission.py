"""Who waits is admitted at a rate, and equal ones share a scan."""

import pytest
from tests.core.records.feed_parts import subscription
from tests.core.records.tables import TABLE

from moorline.core.effects import Effect
from moorline.core.records.admission import Admission
from moorline.core.records.audience import Audiences
from moorline.core.records.feed_events import BeginScan, CancelScan, How
from moorline.core.records.scan_room import ScanRoom
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.subscription import Standing, Subscription
from moorline.core.sets.digest import Digest
from moorline.limits import RECORD_SCANS_AT_ONCE_MAX, RECORD_WAITING_MAX

AT = Snapshot(5, 5)
FREE = ScanRoom()


class Scene:
    def __init__(self, per_s: int = 1_000) -> None:
        self.audiences = Audiences(TABLE)
        self.subscriptions: dict[int, Subscription] = {}
        self.admission = Admission(self.subscriptions, per_s)

    def wait(self, number: int, workspace: int, how: How = How.FULL) -> Subscription:
        where = {"workspace": workspace}
        found = subscription(self.audiences, number, where, Standing.WAITING, how)
        self.subscriptions[number] = found
        self.admission.add(found)
        return found

    def admit(
        self, now_ms: int = 0, rights_version: int = 1, room: ScanRoom = FREE
    ) -> list[BeginScan]:
        effects: list[Effect] = self.admission.admit(TABLE, rights_version, 1, AT, room, now_ms)
        self.admission.check()
        return [one for one in effects if isinstance(one, BeginScan)]


def test_equal_ones_share_a_scan_wherever_they_wait() -> None:
    scene = Scene()
    for number, workspace in ((1, 7), (2, 8), (3, 7), (4, 8), (5, 7)):
        scene.wait(number, workspace)
    assert [one.to for one in scene.admit(1_000)] == [(1, 3, 5), (2, 4)]


def test_who_was_cut_with_others_shares_their_replay() -> None:
    scene = Scene()
    for number, xmax in ((1, 5), (2, 5), (3, 4), (4, 5)):
        found = scene.wait(number, 7)
        found.snapshot, found.digest = Snapshot(xmax, xmax), Digest.empty()
    alone = scene.subscriptions[4]
    alone.is_alone = True
    begun = scene.admit(1_000)
    assert [one.to for one in begun] == [(1, 2), (3,), (4,)]
    assert {one.how for one in begun} == {How.REPLAY}
    assert [one.since for one in begun] == [Snapshot(5, 5), Snapshot(4, 4), Snapshot(5, 5)]


def test_a_rate_and_a_number_at_once() -> None:
    scene = Scene(per_s=10)
    for number in range(30):
        scene.wait(number + 1, number)
    assert len(scene.admit(0)) == 1
    assert len(scene.admit(0)) == 0
    assert len(scene.admit(100)) == 1
    # However long nothing came: what was saved up is a tenth of a second.
    assert len(scene.admit(100_000)) == 1
    fast = Scene()
    for number in range(30):
        fast.wait(number + 1, number)
    assert len(fast.admit(1_000)) == RECORD_SCANS_AT_ONCE_MAX
    first = fast.subscriptions[1]
    assert fast.admission.leave(first) == [CancelScan(1)]
    first.standing = Standing.BEHIND
    assert [one.to for one in fast.admit(2_000)] == [(RECORD_SCANS_AT_ONCE_MAX + 1,)]


def test_who_is_not_ready_keeps_its_place_and_holds_nobody() -> None:
    scene = Scene()
    slow = scene.wait(1, 1)
    old = scene.wait(2, 2)
    scene.wait(3, 3)
    slow.full_ms, old.rights_version = 5, 0
    assert [one.to for one in scene.admit(1_000)] == [(3,)]
    slow.full_ms, old.rights_version = None, 1
    assert [one.to for one in scene.admit(2_000)] == [(1,), (2,)]


def test_a_slow_one_scans_alone() -> None:
    scene = Scene()
    scene.wait(1, 1).is_alone = True
    scene.wait(2, 1)
    assert [one.to for one in scene.admit(1_000)] == [(1,), (2,)]


def test_there_is_a_bound() -> None:
    scene = Scene()
    found = scene.wait(1, 1)
    for _ in range(RECORD_WAITING_MAX):
        scene.admission.add(found)
    assert scene.admission.is_full


def test_ad1_whoever_scans_is_in_its_scan() -> None:
    scene = Scene()
    found = scene.wait(1, 1)
    scene.admit()
    found.scan = 9
    with pytest.raises(AssertionError, match="AD1"):
        scene.admission.check()


def test_offers_and_one_principal_take_no_room_of_others() -> None:
    scene = Scene()
    for number in (1, 2, 3):
        scene.wait(number, number, How.DIGEST).principal = "mallory"
    scene.wait(4, 4).principal = "mallory"
    scene.wait(5, 5, How.DIGEST).principal = "ann"
    room = ScanRoom(scans=5, offers=2, offers_each=1)
    assert [one.to for one in scene.admit(1_000, room=room)] == [(1,), (4,), (5,)]
    assert scene.admit(2_000, room=ScanRoom(scans=5, offers=0)) == []
