"""Durable subscriptions: plain steps, and a simulation in which publishers come and go."""

import heapq
from collections.abc import Sequence
from random import Random

import pytest
from tests.core.values.durable_states import state_of

from moorline.core.effects import Effect, Event, SetTimer, TimerFired
from moorline.core.values.choice import Candidate
from moorline.core.values.durable import DUE, Durable, PathState
from moorline.core.values.durable_events import (
    AttemptFailed,
    Drop,
    Ended,
    PublisherLost,
    Resolve,
    Resolved,
    ResolveFailed,
    Stop,
    SubscribeAt,
    Subscribed,
    TellAlive,
    TellDead,
    Unsubscribe,
    Want,
)
from moorline.limits import (
    DURABLE_ASKS_MAX,
    DURABLE_PATHS_PER_ASK,
    DURABLE_STEP_MS,
    DURABLE_TICK_MS,
    DURABLE_WAIT_MS_MAX,
)

A = Candidate(b"a", 1)
B = Candidate(b"b", 1)


STEPS = 100_000
STEPS_A_SEED = 500


def machine(seed: int = 1) -> Durable:
    return Durable("durable", Random(seed))


def of(kind: type[Effect], effects: Sequence[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, kind)]


def alive(durable: Durable, paths: list[str], candidates: list[Candidate]) -> bytes:
    """Brings them there in one go; who has them."""
    (resolve,) = durable.handle(Want(paths), 0)
    assert isinstance(resolve, Resolve)
    (subscribe,) = durable.handle(Resolved(resolve.ask, dict.fromkeys(paths, candidates)), 1)
    assert isinstance(subscribe, SubscribeAt)
    effects = durable.handle(Subscribed(subscribe.attempt, {}), 2)
    assert effects == [TellAlive(subscribe.instance, sorted(paths))]
    return subscribe.instance


def test_the_flow_from_a_wish_to_a_value() -> None:
    durable = machine()
    assert alive(durable, ["/x", "/y"], [A]) == b"a"
    assert state_of(durable, "/x") is PathState.ALIVE
    durable.check()


def test_a_lost_publisher_makes_one_batch_of_all_its_paths() -> None:
    """T37: ten thousand at once: few asks, at different times, within the first step of the backoff."""
    durable = machine()
    paths = [f"/{place}" for place in range(10_000)]
    alive(durable, paths, [A])
    effects = durable.handle(PublisherLost(b"a", "gone"), 1_000)
    (dead,) = of(TellDead, effects)
    assert isinstance(dead, TellDead)
    assert len(dead.paths) == 10_000
    asked: list[str] = []
    asks = 0
    now_ms = 1_000
    while len(asked) < 10_000:
        now_ms += DURABLE_TICK_MS
        for effect in durable.handle(TimerFired(DUE), now_ms):
            if isinstance(effect, Resolve):
                asks += 1
                asked += effect.paths
                durable.handle(ResolveFailed(effect.ask, "later"), now_ms)
        assert now_ms <= 1_000 + DURABLE_STEP_MS + DURABLE_TICK_MS
    assert sorted(asked) == sorted(paths)
    assert 2 <= asks <= DURABLE_STEP_MS // DURABLE_TICK_MS + 2
    durable.check()


def test_t30_the_wait_grows_by_a_step_and_has_a_cap() -> None:
    """T30: linear backoff, jittered over its last half."""
    durable = machine()
    effects = durable.handle(Want(["/x"]), 0)
    now_ms = 0
    for tries in range(1, 60):
        (resolve,) = of(Resolve, effects)
        assert isinstance(resolve, Resolve)
        effects = durable.handle(Resolved(resolve.ask, {"/x": "nobody publishes it"}), now_ms)
        (timer,) = of(SetTimer, effects)
        assert isinstance(timer, SetTimer)
        wait_ms = min(tries * DURABLE_STEP_MS, DURABLE_WAIT_MS_MAX)
        assert wait_ms // 2 <= timer.after_ms <= wait_ms + DURABLE_TICK_MS
        now_ms += timer.after_ms
        effects = durable.handle(TimerFired(DUE), now_ms)


def test_a_publisher_that_failed_is_not_the_next() -> None:
    for seed in range(20):
        durable = machine(seed)
        first = alive(durable, ["/x"], [A, B])
        durable.handle(PublisherLost(first, "gone"), 10)
        (resolve,) = of(Resolve, durable.handle(TimerFired(DUE), 1_000))
        assert isinstance(resolve, Resolve)
        (subscribe,) = durable.handle(Resolved(resolve.ask, {"/x": [A, B]}), 1_001)
        assert isinstance(subscribe, SubscribeAt)
        assert subscribe.instance != first


def test_a_refusal_of_one_path_leads_to_the_other_publisher_for_that_one() -> None:
    durable = machine()
    (resolve,) = durable.handle(Want(["/x", "/y"]), 0)
    assert isinstance(resolve, Resolve)
    found = {"/x": [A], "/y": [A]}
    (subscribe,) = durable.handle(Resolved(resolve.ask, found), 1)
    assert isinstance(subscribe, SubscribeAt)
    effects = durable.handle(Subscribed(subscribe.attempt, {"/y": "NO_SUCH_VALUE"}), 2)
    assert TellAlive(b"a", ["/x"]) in effects
    assert TellDead(["/y"], "NO_SUCH_VALUE") in effects
    (resolve,) = of(Resolve, durable.handle(TimerFired(DUE), 1_000))
    assert isinstance(resolve, Resolve)
    assert resolve.paths == ["/y"]
    (subscribe,) = durable.handle(Resolved(resolve.ask, {"/y": [A, B]}), 1_001)
    assert isinstance(subscribe, SubscribeAt)
    assert subscribe.instance == b"b"


@pytest.mark.parametrize("count", [2, 12, 20])
@pytest.mark.parametrize("is_one_lesser", [False, True])
@pytest.mark.parametrize("hangs_ms", [1, 5_000, 60_000])
def test_n_tries_reach_the_one_of_n_that_does_not_hang(
    count: int, is_one_lesser: bool, hangs_ms: int
) -> None:
    """S3: the others are of a better priority, and all of them together hang longer than is remembered."""
    lesser = 2 if is_one_lesser else 1
    some = [Candidate(bytes((place,)), 1) for place in range(count - 1)]
    alive_one = Candidate(b"alive", lesser)
    for seed in range(10):
        durable = machine(seed)
        effects = durable.handle(Want(["/x"]), 0)
        now_ms, tries = 0, 0
        while state_of(durable, "/x") is not PathState.ALIVE:
            (resolve,) = of(Resolve, effects)
            assert isinstance(resolve, Resolve)
            found = {"/x": [*some, alive_one]}
            (subscribe,) = of(SubscribeAt, durable.handle(Resolved(resolve.ask, found), now_ms))
            assert isinstance(subscribe, SubscribeAt)
            tries += 1
            if subscribe.instance == b"alive":
                durable.handle(Subscribed(subscribe.attempt, {}), now_ms)
                break
            now_ms += hangs_ms
            effects = durable.handle(AttemptFailed(subscribe.attempt, "it hangs"), now_ms)
            (timer,) = of(SetTimer, effects)
            assert isinstance(timer, SetTimer)
            now_ms += timer.after_ms
            effects = durable.handle(TimerFired(DUE), now_ms)
        assert tries <= count


def test_what_is_dropped_while_it_is_tried_is_unsubscribed_by_its_answer() -> None:
    durable = machine()
    (resolve,) = durable.handle(Want(["/x"]), 0)
    assert isinstance(resolve, Resolve)
    (subscribe,) = durable.handle(Resolved(resolve.ask, {"/x": [A]}), 1)
    assert isinstance(subscribe, SubscribeAt)
    assert durable.handle(Drop(["/x"]), 2) == []
    effects = durable.handle(Subscribed(subscribe.attempt, {}), 3)
    assert effects == [Unsubscribe(b"a", ["/x"])]
    assert len(durable) == 0
    durable.check()


def test_a_path_that_is_dropped_and_wanted_again_keeps_its_second_subscription() -> None:
    """Found by a simulation: the answer to the first try ended what the second had just begun."""
    durable = machine()
    (resolve,) = durable.handle(Want(["/x"]), 0)
    assert isinstance(resolve, Resolve)
    (first,) = durable.handle(Resolved(resolve.ask, {"/x": [A]}), 1)
    assert isinstance(first, SubscribeAt)
    durable.handle(Drop(["/x"]), 2)
    (resolve,) = durable.handle(Want(["/x"]), 3)
    assert isinstance(resolve, Resolve)
    (second,) = durable.handle(Resolved(resolve.ask, {"/x": [A]}), 4)
    assert isinstance(second, SubscribeAt)
    assert durable.handle(Subscribed(first.attempt, {}), 5) == []
    assert durable.handle(Subscribed(second.attempt, {}), 6) == [TellAlive(b"a", ["/x"])]


def test_an_end_of_one_value_leaves_the_others() -> None:
    durable = machine()
    alive(durable, ["/x", "/y"], [A])
    effects = durable.handle(Ended(b"a", ["/y", "/z"], "DENIED"), 5)
    assert TellDead(["/y"], "DENIED") in effects
    assert state_of(durable, "/x") is PathState.ALIVE


def test_behind_a_stop_nothing_is_tried() -> None:
    durable = machine()
    alive(durable, ["/x"], [A])
    assert durable.handle(Stop(), 5) == [Unsubscribe(b"a", ["/x"])]
    assert durable.handle(Want(["/y"]), 6) == []


def test_asks_are_bounded() -> None:
    durable = machine()
    for start in range(DURABLE_ASKS_MAX + 3):
        durable.handle(Want([f"/{start}/{place}" for place in range(10)]), 0)
    durable.check()
    assert len(durable._asks) == DURABLE_ASKS_MAX
    first = next(iter(durable._asks))
    effects = durable.handle(ResolveFailed(first, "no"), 1)
    assert len(of(Resolve, effects)) == 1
    big = machine()
    effects = big.handle(Want([f"/{place}" for place in range(DURABLE_PATHS_PER_ASK + 1)]), 0)
    assert len(of(Resolve, effects)) == 2


@pytest.mark.parametrize("breakage", ["forgotten", "alive", "asks"])
def test_a_broken_state_is_told(breakage: str) -> None:
    durable = machine()
    alive(durable, ["/x"], [A])
    if breakage == "forgotten":
        durable._paths["/y"] = type(durable._paths["/x"])()
    elif breakage == "alive":
        durable._alive[b"b"] = {"/z"}
    else:
        durable._asks = {ask: [] for ask in range(100, 100 + DURABLE_ASKS_MAX + 1)}
    with pytest.raises(AssertionError, match="S2: asks" if breakage == "asks" else "S1: "):
        durable.check()


class World:
    """Publishers that come and go, a resolver that may fail, and a net that is late or loses answers."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.durable = Durable("durable", Random(seed + 1))
        self.now_ms = 0
        self.agenda: list[tuple[int, int, Event]] = []
        self.order = 0
        self.publishers = {name: set[str]() for name in (b"a", b"b", b"c")}
        self.up = dict.fromkeys(self.publishers, True)
        self.held: dict[bytes, set[str]] = {name: set() for name in self.publishers}
        """What each publisher believes this subscriber to be subscribed to."""
        self.timer: int | None = None
        self.is_fair = False

    def post(self, event: Event, after_ms: int) -> None:
        self.order += 1
        heapq.heappush(self.agenda, (self.now_ms + after_ms, self.order, event))

    def perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            delay_ms = self.chance.randrange(1, 300)
            match effect:
                case SetTimer(_, after_ms):
                    self.timer = self.now_ms + after_ms
                case Resolve(ask, paths):
                    if not self.is_fair and self.chance.random() < 0.2:
                        self.post(ResolveFailed(ask, "no resolver"), delay_ms)
                    else:
                        self.post(
                            Resolved(ask, {path: self.found(path) for path in paths}), delay_ms
                        )
                case SubscribeAt(attempt, instance, paths):
                    if not self.up[instance] or (not self.is_fair and self.chance.random() < 0.1):
                        self.post(AttemptFailed(attempt, "unreachable"), delay_ms)
                        continue
                    has = self.publishers[instance]
                    self.held[instance] |= has & set(paths)
                    refused = {path: "NO_SUCH_VALUE" for path in paths if path not in has}
                    self.post(Subscribed(attempt, refused), delay_ms)
                case Unsubscribe(instance, paths):
                    self.held[instance] -= set(paths)

    def found(self, path: str) -> list[Candidate] | str:
        # The resolver may be behind: it names publishers that are down, as it does until their ttl is over.
        names = [Candidate(name, 1) for name, has in self.publishers.items() if path in has]
        return names or "nobody publishes it"

    def step(self) -> None:
        due_ms = self.agenda[0][0] if self.agenda else self.now_ms + 10_000
        if self.timer is not None and self.timer <= due_ms:
            self.now_ms, self.timer = max(self.now_ms, self.timer), None
            event: Event = TimerFired(DUE)
        elif self.agenda:
            self.now_ms, _, event = heapq.heappop(self.agenda)
        else:
            self.now_ms = due_ms
            return
        self.perform(self.durable.handle(event, self.now_ms))
        self.durable.check()

    def end(self, name: bytes, paths: list[str]) -> None:
        """What is on its way on the same connection comes before it: answers say what they said, and then
        this ends it. Here the two are one."""
        for place, (at_ms, order, event) in enumerate(self.agenda):
            if isinstance(event, Subscribed) and self.instance_of(event.attempt) == name:
                refused = {**event.refused, **dict.fromkeys(paths, "UNPUBLISHED")}
                self.agenda[place] = (at_ms, order, Subscribed(event.attempt, refused))
        self.perform(self.durable.handle(Ended(name, paths, "UNPUBLISHED"), self.now_ms))

    def instance_of(self, attempt: int) -> bytes:
        return self.durable._attempts.get(attempt, (b"", []))[0]

    def kill(self, name: bytes) -> None:
        self.up[name] = False
        self.held[name].clear()
        # Attempts under way fail first, as they do where one connection carries both.
        for place, (at_ms, order, event) in enumerate(self.agenda):
            if isinstance(event, Subscribed) and self.instance_of(event.attempt) == name:
                self.agenda[place] = (at_ms, order, AttemptFailed(event.attempt, "lost"))
        heapq.heapify(self.agenda)
        self.perform(self.durable.handle(PublisherLost(name, "lost"), self.now_ms))


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_what_is_wanted_and_there_is_found_in_the_end(seed: int) -> None:
    lived(seed)


@pytest.mark.slow
def test_that_is_so_for_a_hundred_thousand_steps() -> None:
    for seed in range(60, 60 + STEPS // STEPS_A_SEED):
        lived(seed)


def lived(seed: int) -> None:
    world = World(seed)
    paths = [f"/{place}" for place in range(12)]
    wanted: set[str] = set()
    for _ in range(STEPS_A_SEED):
        match world.chance.randrange(12):
            case 0:
                some = world.chance.sample(paths, 3)
                wanted |= set(some)
                world.perform(world.durable.handle(Want(some), world.now_ms))
            case 1:
                some = world.chance.sample(paths, 2)
                wanted -= set(some)
                world.perform(world.durable.handle(Drop(some), world.now_ms))
            case 2:
                name = world.chance.choice(list(world.publishers))
                if world.up[name]:
                    world.kill(name)
                else:
                    world.up[name] = True
            case 3:
                name = world.chance.choice(list(world.publishers))
                world.publishers[name] ^= set(world.chance.sample(paths, 3))
                gone = sorted(world.held[name] - world.publishers[name])
                world.held[name] -= set(gone)
                if gone and world.up[name]:
                    world.end(name, gone)
            case _:
                world.step()
        world.durable.check()
    # From here on all is well; and everything that is wanted and published comes alive, and nothing else.
    world.is_fair = True
    world.up = dict.fromkeys(world.up, True)
    for path in paths:
        world.publishers[b"a"].add(path)
    until_ms = world.now_ms + 120_000
    while world.now_ms < until_ms:
        world.step()
    assert {path for path in paths if state_of(world.durable, path) is PathState.ALIVE} == wanted
    held = [path for has in world.held.values() for path in has]
    assert sorted(held) == sorted(wanted)
