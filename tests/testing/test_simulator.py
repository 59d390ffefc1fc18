"""The simulator: it repeats itself, it finds mistakes, and it tells how to find them again."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from tests.testing import counter

from moorline.core.effects import (
    Append,
    CancelTimer,
    Close,
    Effect,
    Event,
    PeerLost,
    Received,
    Send,
    SetTimer,
    Sync,
    Synced,
    TimerFired,
)
from moorline.errors import MachineError
from moorline.testing import Chaos, MemoryDisk, SimulationFailed, Simulator, UnreliableNet


def python(line: str, hash_seed: int) -> subprocess.CompletedProcess[str]:
    """Runs one line in a new process, where Python shuffles its sets in another way."""
    path = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run(
        [sys.executable, "-c", line], env=environment, capture_output=True, text=True, check=False
    )


def first_failure(scenario: Callable[[int], Simulator], seeds: range) -> SimulationFailed:
    for seed in seeds:
        try:
            scenario(seed)
        except SimulationFailed as failure:
            return failure
    pytest.fail(f"no failure in {seeds}")


# --- the counters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seeds", [range(start, start + 50) for start in range(0, 300, 50)], ids=str
)
def test_no_acknowledged_increment_is_lost(seeds: range) -> None:
    for seed in seeds:
        counter.sound(seed)


def test_an_acknowledgement_before_the_sync_is_found() -> None:
    failure = first_failure(counter.hasty, range(50))
    assert "acknowledged" in str(failure)
    assert isinstance(failure.__cause__, AssertionError)


def test_a_recovery_that_does_not_sync_is_found() -> None:
    failure = first_failure(counter.forgetful, range(100))
    assert "acknowledged" in str(failure)


def test_a_failure_replays_from_its_line_in_another_process() -> None:
    failure = first_failure(counter.hasty, range(50))
    again = python(failure.replay, hash_seed=3)
    assert again.returncode == 1
    assert str(failure) in again.stderr
    assert f"seed {failure.seed}, step {failure.step}: AssertionError" in str(failure)
    assert " ms  counter crash" in str(failure)


def test_one_seed_gives_one_transcript_in_every_process() -> None:
    line = "from tests.testing.counter import sound; print(sound(11).transcript.digest())"
    first, second = python(line, hash_seed=1), python(line, hash_seed=2)
    assert first.stderr == second.stderr == ""
    assert first.stdout == second.stdout
    assert first.stdout.strip() == counter.sound(11).transcript.digest()
    assert first.stdout.strip() != counter.sound(12).transcript.digest()


# --- each effect ----------------------------------------------------------------------------------


class Puppet:
    """A machine that answers as its test says, and remembers what it was told, and when."""

    def __init__(self, answers: dict[Event, list[Effect]]) -> None:
        self.answers = answers
        self.heard: list[tuple[int, Event]] = []

    def handle(self, event: Event, now_ms: int) -> Sequence[Effect]:
        self.heard.append((now_ms, event))
        return self.answers.get(event, [])


class Go(Event, frozen=True):
    number: int = 0


class Strange(Effect, frozen=True):
    pass


def puppets(
    answers: dict[str, dict[Event, list[Effect]]], **options: Any
) -> tuple[Simulator, dict[str, Puppet]]:
    """A simulator with a puppet under each name."""
    simulator = Simulator(1, **options)
    built: dict[str, Puppet] = {}

    def build(name: str, _: MemoryDisk, __: random.Random) -> tuple[Puppet, list[Event]]:
        built[name] = Puppet(answers[name])
        return built[name], []

    for name in answers:
        simulator.add(name, partial(build, name))
    return simulator, built


def test_a_message_travels() -> None:
    simulator, built = puppets({"a": {Go(): [Send("b", "hello")]}, "b": {}})
    simulator.post("a", Go(), after_ms=11)
    assert simulator.run(10) == 2
    assert built["b"].heard == [(12, Received("a", "hello"))]
    assert simulator.transcript.lines(1) == ["      12 ms  a -> b         'hello'"]


def test_timers_are_replaced_and_cancelled() -> None:
    answers: dict[Event, list[Effect]] = {
        Go(1): [SetTimer("t", 10), SetTimer("u", 10), SetTimer("t", 20)],
        Go(2): [CancelTimer("u"), CancelTimer("unknown")],
    }
    simulator, built = puppets({"a": answers})
    simulator.post("a", Go(1))
    simulator.post("a", Go(2), after_ms=5)
    simulator.run(10)
    assert built["a"].heard == [(0, Go(1)), (5, Go(2)), (20, TimerFired("t"))]
    assert simulator.now_ms() == 20


def test_a_sync_ends_later_and_then_the_data_are_durable() -> None:
    answers: dict[Event, list[Effect]] = {
        Go(1): [Append("x/log", b"one"), Sync("x/log", 1)],
        Go(2): [Append("x/log", b"two")],
    }
    simulator, built = puppets({"a": answers}, sync_ms=(7, 7))
    simulator.post("a", Go(1))
    simulator.run(10)
    assert built["a"].heard == [(0, Go(1)), (7, Synced("x/log", 1))]
    simulator.post("a", Go(2))
    simulator.run(10)
    assert simulator.disk("a").files() == {"x/log": b"onetwo"}
    simulator.crash("a", lose="all")
    assert simulator.disk("a").files() == {"x/log": b"one"}


def test_both_ends_learn_that_a_link_is_closed_after_what_was_sent() -> None:
    answers: dict[Event, list[Effect]] = {Go(): [Send("b", "bye"), Close("b", "DONE", "enough")]}
    net = partial(UnreliableNet, delay_ms=(1, 30), ordered=True)
    simulator, built = puppets({"a": answers, "b": {}}, net=net)
    simulator.post("a", Go())
    simulator.run(10)
    assert [event for _, event in built["a"].heard] == [Go(), PeerLost("b")]
    assert [event for _, event in built["b"].heard] == [Received("a", "bye"), PeerLost("a")]


def test_other_effects_and_other_peers_go_to_the_observer() -> None:
    seen: list[tuple[str, Effect]] = []
    answers: dict[Event, list[Effect]] = {Go(): [Strange(), Send("nobody", 1)]}
    simulator, _ = puppets({"a": answers}, observer=lambda *told: seen.append(told))
    simulator.post("a", Go())
    simulator.run(1)
    assert seen == [("a", Strange()), ("a", Send("nobody", 1))]


# --- nodes ----------------------------------------------------------------------------------------


def test_a_crash_forgets_timers_and_tells_the_peers() -> None:
    answers: dict[Event, list[Effect]] = {Go(): [SetTimer("t", 10), Send("b", "hello")]}
    simulator, built = puppets({"a": answers, "b": {}, "stranger": {}})
    simulator.post("a", Go())
    simulator.run(2)
    simulator.crash("a")
    simulator.restart("a")
    simulator.run(10)
    assert built["a"].heard == []
    assert [event for _, event in built["b"].heard] == [Received("a", "hello"), PeerLost("a")]
    assert built["stranger"].heard == []


def test_a_node_that_is_down_misses_what_comes() -> None:
    simulator, built = puppets({"a": {Go(): [Send("b", "hello")]}, "b": {}})
    simulator.crash("b")
    assert not simulator.is_up("b")
    simulator.post("a", Go())
    simulator.run(10)
    assert built["b"].heard == []
    assert "b missed" in simulator.transcript.lines(1)[0]


def test_things_wait_for_a_paused_node() -> None:
    answers: dict[Event, list[Effect]] = {Go(1): [SetTimer("t", 3)]}
    simulator, built = puppets({"a": answers})
    simulator.post("a", Go(1))
    simulator.post("a", Go(2), after_ms=5)
    simulator.run(1)
    simulator.pause("a")
    simulator.run(10)
    assert built["a"].heard == [(0, Go(1))]
    simulator.clock.advance(95)
    simulator.resume("a")
    simulator.run(10)
    assert built["a"].heard[1:] == [(100, TimerFired("t")), (100, Go(2))]


def test_a_disk_can_be_stopped_at_every_step() -> None:
    """Killed at any disk operation, the counter comes back with all that it acknowledged."""
    for stop in range(40):
        simulator = Simulator(stop, chaos=Chaos(lose=("some",)), check=counter.nothing_is_lost)
        acknowledged = counter.build(simulator)
        simulator.disk("counter").crash_at = stop
        while acknowledged[-1] < 20 and simulator.step():
            assert simulator.steps < 500
        assert any("counter crash" in line for line in simulator.transcript.lines())


def test_a_failing_disk_stops_the_node() -> None:
    simulator = Simulator(5, check=counter.nothing_is_lost)
    acknowledged = counter.build(simulator)
    simulator.run_until(lambda _: acknowledged[-1] == 3, steps_max=100)
    simulator.disk("counter").fail_sync = True
    simulator.run_until(lambda sim: not sim.is_up("counter"), steps_max=100)
    simulator.disk("counter").fail_sync = False
    simulator.run_until(lambda _: acknowledged[-1] == 6, steps_max=100)
    assert any("counter disk" in line for line in simulator.transcript.lines())


# --- failures -------------------------------------------------------------------------------------


class Broken(counter.Counter):
    def step(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: ARG002
        raise AssertionError("this must never happen")


def test_a_failing_machine_tells_its_story_and_the_seed() -> None:
    simulator = Simulator(42)
    simulator.add("broken", lambda *_: (Broken(0, hasty=False), []))
    simulator.post("broken", Go(9))
    with pytest.raises(SimulationFailed, match="seed 42, step 1: MachineError") as caught:
        simulator.run(1)
    assert isinstance(caught.value.__cause__, MachineError)
    assert "story of counter" in str(caught.value)
    assert "Go(number=9)" in str(caught.value)


def test_a_failing_start_tells_the_seed() -> None:
    def missing(disk: MemoryDisk, _: random.Random) -> tuple[Puppet, list[Event]]:
        disk.open("not/there", create=False)
        return Puppet({}), []

    with pytest.raises(SimulationFailed, match="seed 42, step 0: FileNotFoundError"):
        Simulator(42).add("a", missing)


def test_a_condition_that_never_holds_fails() -> None:
    simulator, _ = puppets({"a": {}}, replay="again({seed})")
    with pytest.raises(SimulationFailed, match=r"replay: again\(1\)"):
        simulator.run_until(lambda _: False, steps_max=10)


def test_an_effect_that_nobody_performs_fails() -> None:
    simulator, _ = puppets({"a": {Go(): [Strange()]}})
    simulator.post("a", Go())
    with pytest.raises(SimulationFailed, match="nobody to perform Strange"):
        simulator.run(1)


@pytest.mark.slow
def test_a_storm_fails_and_stale_timers_do_not() -> None:
    calm: dict[Event, list[Effect]] = {Go(): [SetTimer("t", 1_000)] * 60_000}
    simulator, built = puppets({"a": calm})
    simulator.post("a", Go())
    simulator.post("a", Go())
    simulator.run(10)
    assert built["a"].heard[2:] == [(1_000, TimerFired("t"))]
    storm: dict[Event, list[Effect]] = {Go(): [SetTimer(f"t{n}", 1) for n in range(100_001)]}
    simulator, _ = puppets({"a": storm})
    simulator.post("a", Go())
    with pytest.raises(SimulationFailed, match="a storm"):
        simulator.run(1)


def test_the_transcript_is_bounded() -> None:
    simulator, _ = puppets({"a": {TimerFired("t"): [SetTimer("t", 1)], Go(): [SetTimer("t", 1)]}})
    simulator.post("a", Go())
    simulator.run(12_000)
    assert len(simulator.transcript.lines()) == 10_000
    simulator.transcript.add(0, "a", "x" * 10_000)
    assert len(simulator.transcript.lines(1)[0]) == 240
