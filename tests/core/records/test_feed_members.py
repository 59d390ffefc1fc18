"""Who subscribes to a feed: how they come and go, and what always holds of where they stand."""

from random import Random

import pytest
from tests.core.records.tables import TABLE
from tests.core.records.test_table_feed import ALL, Scene

from moorline.core.records.feed_events import (
    Boot,
    CancelScan,
    ConnectionGone,
    How,
    Subscribed,
    Tick,
    Unsubscribed,
    Wanted,
)
from moorline.core.records.feed_members import FeedMembers
from moorline.core.records.filter import parse_filter
from moorline.core.records.subscription import Standing


def test_a_connection_that_goes_takes_all_that_it_asked_for_along() -> None:
    members = FeedMembers(TABLE, Random(1), 200)
    for number, connection in ((1, 7), (2, 7), (3, 8)):
        wanted = Wanted(parse_filter(TABLE, {"workspace": number}), ALL, 1)
        members.add(Subscribed(number, connection, wanted))
    assert members.remove_connection(7) == []
    assert (list(members.by_number), len(members.audiences)) == ([3], 1)
    (boot,) = members.boot(members.by_number[3], "rights have changed")
    assert isinstance(boot, Boot)
    assert (boot.subscription, len(members.audiences)) == (3, 0)
    assert members.remove(3) == members.remove_connection(8) == []
    members.check(0, 1)


def test_equal_ones_become_live_together_and_wait_again_apart() -> None:
    scene = Scene()
    scene.live(1, 2)
    members = scene.feed._members
    first, second = members.by_number[1], members.by_number[2]
    assert first.audience is second.audience
    assert members.live_of(first.audience) == (1, 2)
    members.hold(first, scene.feed.step_number, scene.feed.snapshot)
    assert (first.standing, members.behind) == (Standing.BEHIND, {1})
    assert members.live_of(first.audience) == (2,)
    members.wait(second, How.DIGEST)
    assert (second.standing, second.wanted.cursor) == (Standing.WAITING, None)
    assert members.live_of(first.audience) == ()
    members.go_live(first)
    assert (first.snapshot, first.digest, members.behind) == (None, None, set())
    scene.feed.check()


def test_t34_who_goes_leaves_nothing() -> None:
    scene = Scene()
    scene.live(1, 2)
    scene.subscribe(3, {"workspace": 9})
    scene.step()
    assert scene.post(Unsubscribed(3)) == [CancelScan(2)]
    scene.post(ConnectionGone(1))
    scene.post(Unsubscribed(2))
    members = scene.feed._members
    assert (len(members.audiences), members.fan_out._live, members.admission.scans) == (0, {}, {})
    scene.now_ms += 100
    assert scene.post(Tick()) == [], "nobody is there to take steps for"


def test_rf2_nobody_is_ahead_or_left_behind() -> None:
    scene = Scene()
    scene.live(1)
    scene.feed.subscriptions[1].at = 99
    with pytest.raises(AssertionError, match="RF2"):
        scene.feed.check()
    scene = Scene()
    scene.live(1)
    scene.feed._members.behind.add(1)
    with pytest.raises(AssertionError, match="RF2"):
        scene.feed.check()


def test_rf3_nobody_is_live_by_older_rights() -> None:
    scene = Scene()
    scene.live(1)
    scene.feed.rights_version = 9
    with pytest.raises(AssertionError, match="RF3"):
        scene.feed.check()


def test_rf5_a_subscription_is_in_its_audience() -> None:
    scene = Scene()
    scene.live(1)
    scene.feed.audiences[1].members.clear()
    with pytest.raises(AssertionError, match="RF5"):
        scene.feed.check()


def test_rf7_nobody_who_is_live_waits_for_a_scan() -> None:
    scene = Scene()
    scene.live(1)
    scene.subscribe(2, {"workspace": 2})
    scene.step()
    scene.feed._members.admission.scans[2].members.add(1)
    with pytest.raises(AssertionError, match="RF7"):
        scene.feed.check()
