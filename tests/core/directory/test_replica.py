"""What is published, brought to one resolver: plain steps, and a member that comes and goes."""

import heapq
from collections.abc import Sequence
from random import Random

import pytest

from moorline.core.directory.published import MemberView, PublishedPaths
from moorline.core.directory.replica import (
    HEARTBEAT,
    RETRY,
    Answered,
    Changed,
    Compare,
    Disconnect,
    Doubted,
    Failed,
    LinkLost,
    LoggedIn,
    LogIn,
    Replica,
    ReplicaState,
    SayHeartbeat,
    SendChanges,
    Start,
    Stop,
    TellCurrent,
    TellDegraded,
)
from moorline.core.effects import CancelTimer, Effect, Event, SetTimer, TimerFired
from moorline.core.sets.digest import Digest
from moorline.limits import (
    REPLICA_CHANGES_MAX,
    REPLICA_PAUSE_MS_MAX,
    REPLICA_PAUSE_MS_MIN,
    REPLICA_TRIES_MAX,
)

TTL_MS = 2_000


STEPS = 100_000
STEPS_A_SEED = 800


def made() -> tuple[Replica, PublishedPaths]:
    published = PublishedPaths()
    return Replica("replica", MemberView(published), Random(1)), published


def current(replica: Replica, published: PublishedPaths) -> None:
    assert replica.handle(Start(), 0) == [LogIn()]
    effects = replica.handle(LoggedIn(published.digest(), TTL_MS), 1)
    assert effects == [SetTimer(HEARTBEAT, TTL_MS // 2), TellCurrent()]
    replica.check()


def test_a_member_that_has_everything_gets_heartbeats_only() -> None:
    replica, published = made()
    published.change({"/a": 0})
    current(replica, published)
    assert replica.handle(TimerFired(HEARTBEAT), 1_001) == [SayHeartbeat()]
    effects = replica.handle(Answered(published.digest()), 1_002)
    assert effects == [SetTimer(HEARTBEAT, TTL_MS // 2), TellCurrent()]


def test_a_member_whose_rights_have_changed_is_asked_at_once() -> None:
    """It may have taken something away: half a ttl is too long to find out, or to bring it back."""
    replica, published = made()
    published.change({"/a": 0})
    current(replica, published)
    assert replica.handle(Doubted(), 5) == [CancelTimer(HEARTBEAT), SayHeartbeat()]
    assert replica.handle(Doubted(), 6) == [], "it is being asked"
    assert replica.handle(Answered(Digest.empty()), 7) == [Compare(Digest.empty())]
    assert replica.handle(Doubted(), 8) == [], "it is being compared with"
    replica.check()


def test_t23_a_member_that_lost_something_is_compared_with() -> None:
    """T23: the digest of the heartbeat's answer differs, and only a comparison follows."""
    replica, published = made()
    published.change({"/a": 0})
    current(replica, published)
    replica.handle(TimerFired(HEARTBEAT), 1_001)
    assert replica.handle(Answered(Digest.empty()), 1_002) == [Compare(Digest.empty())]
    effects = replica.handle(Answered(published.digest(), has_agreed=True), 1_003)
    assert TellCurrent() in effects
    replica.check()


def test_changes_go_out_one_batch_at_a_time() -> None:
    replica, published = made()
    current(replica, published)
    assert replica.handle(Changed(published.change({"/a": 0})), 2) == [
        CancelTimer(HEARTBEAT),
        SendChanges({"/a": 0}),
    ]
    first = published.digest()
    assert replica.handle(Changed(published.change({"/b": 0, "/a": None})), 3) == []
    replica.check()
    assert replica.handle(Answered(first), 4) == [SendChanges({"/b": 0, "/a": None})]
    assert TellCurrent() in replica.handle(Answered(published.digest()), 5)
    assert replica.is_current


def test_t35_three_failures_degrade_and_memory_stays_bounded() -> None:
    """T35: 3 tries 1 to 4 s apart, then every ttl/2; no batch fails, and nothing is kept."""
    replica, published = made()
    current(replica, published)
    for tries in range(1, 10):
        effects = replica.handle(Failed("no answer") if tries > 1 else LinkLost("gone"), 10)
        (timer,) = [effect for effect in effects if isinstance(effect, SetTimer)]
        assert timer.name == RETRY
        if tries < REPLICA_TRIES_MAX:
            assert replica.state is ReplicaState.AWAY
            assert REPLICA_PAUSE_MS_MIN <= timer.after_ms <= REPLICA_PAUSE_MS_MAX
        else:
            assert replica.state is ReplicaState.DEGRADED
            assert timer.after_ms == TTL_MS // 2
        told = TellDegraded(is_degraded=True, why="no answer") in effects
        assert told is (tries == REPLICA_TRIES_MAX)
        for place in range(REPLICA_CHANGES_MAX):
            assert replica.handle(Changed(published.change({f"/{tries}/{place}": 0})), 11) == []
        assert not replica._unsent
        assert replica.handle(TimerFired(RETRY), 12) == [LogIn()]
        replica.check()
    effects = replica.handle(LoggedIn(Digest.empty(), TTL_MS), 13)
    assert effects == [Compare(Digest.empty())]
    effects = replica.handle(Answered(published.digest(), has_agreed=True), 14)
    assert TellDegraded(is_degraded=False) in effects


def test_more_than_is_remembered_is_found_by_a_comparison() -> None:
    replica, published = made()
    current(replica, published)
    replica.handle(Changed(published.change({"/a": 0})), 2)
    first = published.digest()
    for place in range(REPLICA_CHANGES_MAX + 1):
        replica.handle(Changed(published.change({f"/{place}": 0})), 3)
        replica.check()
    assert replica.handle(Answered(first), 4) == [Compare(first)]


def test_behind_a_stop_nothing_is_said() -> None:
    replica, published = made()
    current(replica, published)
    assert Disconnect() in replica.handle(Stop(), 2)
    assert replica.handle(Changed(published.change({"/a": 0})), 3) == []


def test_a_broken_state_is_told() -> None:
    replica, published = made()
    current(replica, published)
    replica._has_timer = False
    with pytest.raises(AssertionError, match="P5"):
        replica.check()
    replica._has_timer, replica._unsent = True, {"/a": 0}
    with pytest.raises(AssertionError, match="P2"):
        replica.check()
    replica._unsent, replica._is_behind = {}, True
    with pytest.raises(AssertionError, match="P1"):
        replica.check()
    replica._is_behind, replica._is_asking = False, True
    replica.state = ReplicaState.SENDING
    with pytest.raises(AssertionError, match="P3"):
        replica.check()
    replica._is_asking, replica._failures = False, REPLICA_TRIES_MAX
    replica.state = ReplicaState.AWAY
    with pytest.raises(AssertionError, match="P4"):
        replica.check()


class World:
    """One member that crashes empty, hangs, loses entries; and a net on which anything may fail."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.published = PublishedPaths()
        self.view = MemberView(self.published)
        self.replica = Replica("replica", self.view, Random(seed + 1))
        self.now_ms = 0
        self.agenda: list[tuple[int, int, int, Event]] = []
        self.order = 0
        self.link = 0
        self.timers: dict[str, int] = {}
        self.entries: dict[str, int] = {}
        self.is_up = True
        self.is_fair = False
        self.compared_bytes = 0

    def digest(self) -> Digest:
        member = PublishedPaths()
        member.change(dict(self.entries))
        return member.digest()

    def post(self, event: Event) -> None:
        self.order += 1
        at_ms = self.now_ms + self.chance.randrange(1, 200)
        heapq.heappush(self.agenda, (at_ms, self.order, self.link, event))

    def perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            fails = not self.is_up or (not self.is_fair and self.chance.random() < 0.1)
            match effect:
                case SetTimer(name, after_ms):
                    self.timers[name] = self.now_ms + after_ms
                case CancelTimer(name):
                    self.timers.pop(name, None)
                case Disconnect():
                    self.link += 1
                case LogIn() | SayHeartbeat() | SendChanges() | Compare() if fails:
                    # What was sent may have come, and only the answer be lost.
                    if self.is_up and self.chance.random() < 0.5:
                        self.take(effect)
                    self.post(Failed("no answer"))
                case LogIn():
                    self.post(LoggedIn(self.digest(), TTL_MS))
                case SayHeartbeat():
                    self.post(Answered(self.digest()))
                case SendChanges():
                    self.take(effect)
                    self.post(Answered(self.digest()))
                case Compare():
                    self.take(effect)
                    self.post(Answered(self.digest(), has_agreed=True))

    def take(self, effect: Effect) -> None:
        match effect:
            case SendChanges(changes):
                for path, flags in changes.items():
                    self.entries.pop(path, None)
                    if flags is not None:
                        self.entries[path] = flags
            case Compare():
                self.entries = dict(zip(*self.published.copied(), strict=True))

    def step(self) -> None:
        due = min(self.timers.items(), key=lambda item: item[1], default=("", 1 << 60))
        if self.agenda and self.agenda[0][0] <= due[1]:
            self.now_ms, _, link, event = heapq.heappop(self.agenda)
            if link != self.link:
                return  # of a connection that was given up
        elif due[0]:
            del self.timers[due[0]]
            self.now_ms, event = max(self.now_ms, due[1]), TimerFired(due[0])
        else:
            return
        self.handle(event)

    def handle(self, event: Event) -> None:
        self.perform(self.replica.handle(event, self.now_ms))
        self.replica.check()
        if self.replica.is_current and not self.replica._is_asking:
            assert self.replica._theirs == self.view.digest(), "P1"


@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_the_member_has_it_all_in_the_end(seed: int) -> None:
    lived(seed)


@pytest.mark.slow
def test_that_is_so_for_a_hundred_thousand_steps() -> None:
    for seed in range(25, 25 + STEPS // STEPS_A_SEED):
        lived(seed)


def lived(seed: int) -> None:
    world = World(seed)
    world.handle(Start())
    for _ in range(STEPS_A_SEED):
        match world.chance.randrange(12):
            case 0 | 1:
                some: dict[str, int | None] = {
                    f"/{world.chance.randrange(50)}": world.chance.choice([None, 0, 1])
                    for _ in range(5)
                }
                if new := world.published.change(some):
                    world.handle(Changed(new))
            case 2 if world.chance.random() < 0.3:
                world.entries.clear()
                if world.chance.random() < 0.5:
                    world.handle(LinkLost("restarted"))
            case 3 if world.chance.random() < 0.3:
                world.is_up = not world.is_up
            case 4 if world.entries and world.chance.random() < 0.3:
                world.entries.pop(world.chance.choice(list(world.entries)))
                if world.chance.random() < 0.5:
                    world.handle(Doubted())
            case _:
                world.step()
    world.is_up = world.is_fair = True
    until_ms = world.now_ms + 4 * REPLICA_PAUSE_MS_MAX + 2 * TTL_MS
    while world.now_ms < until_ms:
        world.step()
    assert world.entries == dict(zip(*world.published.copied(), strict=True))
    assert not world.replica.is_degraded
