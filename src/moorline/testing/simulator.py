"""Room: testing. Runs machines together, on simulated disks, nets and clocks, from one seed.

    def scenario(seed: int) -> None:
        simulator = Simulator(seed, chaos=Chaos(crash=0.01), check=nothing_is_lost, replay=scenario)
        simulator.add("server", build_server)
        simulator.add("client", build_client)
        simulator.run(2_000)

Two runs of one seed are equal bit for bit, in any process, as long as the machines themselves
are (no clock, no chance of their own) and their messages print the same: no sets of text in them,
since Python shuffles those from process to process. Whatever fails comes out as `SimulationFailed`.
"""

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, assert_never

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
from moorline.errors import DiskFull
from moorline.testing.agenda import Agenda, Entry, FinishSync, Fire, Heal, Post, Restart, Resume
from moorline.testing.chaos import Chaos, Mishaps
from moorline.testing.clock import HandClock
from moorline.testing.memory_disk import Crashed, Lose, MemoryDisk
from moorline.testing.net import Delivery, UnreliableNet
from moorline.testing.node import Factory, Runnable, SimulatedNode
from moorline.testing.transcript import Replay, SimulationFailed, Transcript

Observer: TypeAlias = Callable[[str, Effect], None]
"""Gets (node, effect) for the effects that only the test knows what to do with."""


@dataclass(frozen=True, slots=True)
class _LinkEnd:
    """Travels like a message to the far end of a link, and becomes its `PeerLost`."""

    life: int


class Simulator:
    """Several machines and everything around them.

    `net` makes the net from its chance: `partial(UnreliableNet, loss=0.1, delay_ms=(1, 50))`.
    A machine that has a `check` of its own is asked after each of its steps. What holds across machines is
    in the `check` that is given here: it is called after every step, and fails by assertion. `observer` gets
    effects of unknown type, and what is sent to peers that are not nodes here. `sync_ms` is how long a sync
    takes. A crashed node's peers get `PeerLost` unless `tell_crashes` is off.
    """

    def __init__(
        self,
        seed: int,
        *,
        net: Callable[[random.Random], UnreliableNet] = UnreliableNet,
        chaos: Chaos | None = None,
        check: Callable[["Simulator"], None] | None = None,
        observer: Observer | None = None,
        replay: Replay = "",
        sync_ms: tuple[int, int] = (0, 5),
        tell_crashes: bool = True,
    ) -> None:
        self.seed = seed
        self.steps = 0
        self.clock = HandClock()
        self.transcript = Transcript()
        # A chance for each purpose, so that one more throw for one does not shift all the others.
        self.net = net(self._chance_of("net"))
        self._disk_chance = self._chance_of("disk")
        self._mishaps = Mishaps(chaos or Chaos(), self._chance_of("chaos"))
        self._check = check
        self._observer = observer
        self._replay = replay
        self._sync_ms = sync_ms
        self._tell_crashes = tell_crashes
        self._nodes: dict[str, SimulatedNode[Runnable]] = {}
        self._factories: dict[str, Factory] = {}
        self._agenda = Agenda(self._is_stale)

    # --- what a test does with it -----------------------------------------------------------------

    def add(self, name: str, factory: Factory, *, disk: MemoryDisk | None = None) -> None:
        """Adds a node and starts it."""
        assert name not in self._nodes, f"there is a node {name} already"
        self._nodes[name] = SimulatedNode(name, disk or MemoryDisk())
        self._factories[name] = factory
        with self._telling():
            self._start(self._nodes[name])

    def post(self, name: str, event: Event, *, after_ms: int = 0) -> None:
        """Gives a node an event from outside; if it is down by then, the event is lost."""
        assert name in self._nodes, f"no node {name}"
        self._agenda.add(self.now_ms() + after_ms, Post(name, event))

    def step(self) -> bool:
        """Takes the next thing that is due; False if there is nothing left to do."""
        self.steps += 1
        with self._telling():
            self._mishaps.befall(self)
            if not self._take_next():
                self.steps -= 1
                return False
            if self._check is not None:
                self._check(self)
        return True

    def run(self, steps: int) -> int:
        """Takes up to so many steps; returns how many there were."""
        return next((taken for taken in range(steps) if not self.step()), steps)

    def run_until(self, condition: Callable[["Simulator"], bool], steps_max: int) -> None:
        """Takes steps until the condition holds, and fails if it never does."""
        for _ in range(steps_max):
            if condition(self) or not self.step():
                break
        with self._telling():
            assert condition(self), f"the condition did not come true in {steps_max} steps"

    def crash(self, name: str, lose: Lose = "all") -> None:
        """The node's machine or process dies, and its disk keeps what `lose` leaves."""
        assert self._nodes[name].machine is not None, f"{name} is down already"
        self._stop(self._nodes[name], lose)

    def restart(self, name: str) -> None:
        """Builds the node again from its disk."""
        assert self._nodes[name].machine is None, f"{name} is running"
        with self._telling():
            self._start(self._nodes[name])

    def restart_later(self, name: str, after_ms: int) -> None:
        # Of this life: a node that was restarted meanwhile, and crashed again, has a restart of its own.
        self._agenda.add(self.now_ms() + after_ms, Restart(name, self._nodes[name].life))

    def pause(self, name: str) -> None:
        """The node does nothing, and what comes for it waits: SIGSTOP."""
        self.transcript.add(self.now_ms(), f"{name} pause")
        self._nodes[name].paused = True

    def resume(self, name: str) -> None:
        self.transcript.add(self.now_ms(), f"{name} resume")
        for entry in self._nodes[name].resume():
            self._agenda.add(self.now_ms(), entry)

    def resume_later(self, name: str, after_ms: int) -> None:
        self._agenda.add(self.now_ms() + after_ms, Resume(name, self._nodes[name].life))

    def cut(self, a: str, b: str, for_ms: int) -> None:
        """Nothing passes between the two for so long."""
        self.transcript.add(self.now_ms(), "cut", f"{a} - {b}")
        self.net.cut(a, b)
        self._agenda.add(self.now_ms() + for_ms, Heal(a, b))

    def calm(self) -> None:
        """Nothing goes wrong any more: the net is whole, every node runs. Then things must end."""
        self.transcript.add(self.now_ms(), "calm")
        self._mishaps.chaos = Chaos()
        self.net.calm()
        for node in self._nodes.values():
            node.disk.crash_at = None
            if node.paused:
                self.resume(node.name)
            if node.machine is None:
                self.restart(node.name)

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def names(self) -> list[str]:
        return list(self._nodes)

    def is_up(self, name: str) -> bool:
        return self._nodes[name].machine is not None

    def is_paused(self, name: str) -> bool:
        return self._nodes[name].paused

    def machine(self, name: str) -> Runnable:
        machine = self._nodes[name].machine
        assert machine is not None, f"{name} is down"
        return machine

    def disk(self, name: str) -> MemoryDisk:
        return self._nodes[name].disk

    # --- one step ---------------------------------------------------------------------------------

    def _take_next(self) -> bool:
        agenda_ms, net_ms = self._agenda.next_due_ms(), self.net.next_due_ms()
        if agenda_ms is not None and (net_ms is None or agenda_ms <= net_ms):
            self._advance_to(agenda_ms)
            self._do(self._agenda.take())
            return True
        if net_ms is not None:
            self._advance_to(net_ms)
            delivery = self.net.take(self.now_ms())
            assert delivery is not None
            self._do(self._arrived(delivery))
            return True
        return False

    def _advance_to(self, due_ms: int) -> None:
        self.clock.advance(max(0, due_ms - self.now_ms()))

    def _arrived(self, delivery: Delivery) -> Post:
        if isinstance(delivery.message, _LinkEnd):
            lost = PeerLost(delivery.source)
            return Post(delivery.target, lost, delivery.message.life)
        return Post(delivery.target, Received(delivery.source, delivery.message))

    def _do(self, entry: Entry) -> None:
        match entry:
            case Post() | Fire() | FinishSync():
                node = self._nodes[entry.node]
                if node.paused:
                    node.wait(entry)
                else:
                    self._guard(node, lambda: self._give(node, entry))
            case Restart():
                self.restart(entry.node)
            case Resume():
                self.resume(entry.node)
            case Heal():
                self.transcript.add(self.now_ms(), "heal", f"{entry.a} - {entry.b}")
                self.net.heal(entry.a, entry.b)
            case _:
                assert_never(entry)

    def _give(self, node: SimulatedNode[Runnable], entry: Post | Fire | FinishSync) -> None:
        """Turns an entry into the event it stands for, and hands that to the machine."""
        match entry:
            case Post():
                if not node.is_of_life(entry.life):
                    self.transcript.add(self.now_ms(), f"{node.name} missed", entry.event)
                    return
                if isinstance(entry.event, Received):
                    what = f"{entry.event.peer} -> {node.name}"
                    self.transcript.add(self.now_ms(), what, repr(entry.event.message))
                else:
                    self.transcript.add(self.now_ms(), f"{node.name} event", entry.event)
                self._handle(node, entry.event)
            case Fire():
                del node.timers[entry.name]
                self.transcript.add(self.now_ms(), f"{node.name} timer", entry.name)
                self._handle(node, TimerFired(entry.name))
            case FinishSync():
                if entry.late:
                    node.sync(entry.file)
                self.transcript.add(self.now_ms(), f"{node.name} synced", _file(entry))
                self._handle(node, Synced(entry.file, entry.upto))

    def _handle(self, node: SimulatedNode[Runnable], event: Event) -> None:
        machine = node.machine
        assert machine is not None
        effects = machine.handle(event, self.now_ms())
        # Before its effects: what they bring about must not hide which event broke it.
        check = getattr(machine, "check", None)
        if check is not None:
            check()
        for effect in effects:
            self._perform(node, effect)

    def _perform(self, node: SimulatedNode[Runnable], effect: Effect) -> None:
        now_ms = self.now_ms()
        match effect:
            case Send() if effect.peer in self._nodes:
                node.link(self._nodes[effect.peer])
                if not self.net.send(node.name, effect.peer, effect.message, now_ms):
                    what = f"{node.name} -x {effect.peer}"
                    self.transcript.add(now_ms, what, repr(effect.message))
            case SetTimer():
                number = node.set_timer(effect.name)
                fire = Fire(node.name, node.life, effect.name, number)
                self._agenda.add(now_ms + effect.after_ms, fire)
            case CancelTimer():
                node.timers.pop(effect.name, None)
            case Append():
                self.transcript.add(now_ms, f"{node.name} append", _file(effect))
                node.file(effect.file).append(effect.data)
            case Sync():
                self.transcript.add(now_ms, f"{node.name} sync", _file(effect))
                self._begin_sync(node, effect)
            case Close() if effect.peer in self._nodes:
                self._close(node, effect)
            case _:
                assert self._observer is not None, f"nobody to perform {effect}"
                self._observer(node.name, effect)

    def _begin_sync(self, node: SimulatedNode[Runnable], effect: Sync) -> None:
        # A real sync covers at least what was appended before it began, and at most what was there
        # when it ended. Chance picks either, so that a machine cannot rely on one of them.
        late = self._disk_chance.random() < 0.5
        if not late:
            node.sync(effect.file)
        due_ms = self.now_ms() + self._disk_chance.randint(*self._sync_ms)
        due_ms = node.sync_ends_ms[effect.file] = max(due_ms, node.sync_ends_ms.get(effect.file, 0))
        finish = FinishSync(node.name, node.life, effect.file, effect.upto, late)
        self._agenda.add(due_ms, finish)

    def _close(self, node: SimulatedNode[Runnable], effect: Close) -> None:
        what = f"{node.name} close {effect.peer}"
        self.transcript.add(self.now_ms(), what, f"{effect.reason}: {effect.text}")
        node.unlink(self._nodes[effect.peer])
        self.net.drop(effect.peer, node.name)
        self._agenda.add(self.now_ms(), Post(node.name, PeerLost(effect.peer), node.life))
        self._end_link(node.name, effect.peer)

    def _end_link(self, source: str, target: str) -> None:
        end = _LinkEnd(self._nodes[target].life)
        self.net.send_sure(source, target, end, self.now_ms())

    # --- starting and stopping ---------------------------------------------------------------------

    def _start(self, node: SimulatedNode[Runnable]) -> None:
        self.transcript.add(self.now_ms(), f"{node.name} start")
        chance = self._chance_of(f"node {node.name} life {node.life}")

        def start() -> None:
            node.machine, events = self._factories[node.name](node.disk, chance)
            for event in events:
                self._handle(node, event)

        self._guard(node, start)

    def _guard(self, node: SimulatedNode[Runnable], work: Callable[[], None]) -> None:
        """Does a node's work; a disk that crashes in it, or fails, stops the node and no more."""
        try:
            work()
            return
        except Crashed:
            lose = self._mishaps.loss()
        except (DiskFull, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.EIO:
                raise  # a mistake in the code under test, such as a file that is not there
            # The process ends, as a server must whose disk fails it; what it wrote stays.
            self.transcript.add(self.now_ms(), f"{node.name} disk", error)
            lose = "none"
        self._stop(node, lose)
        self.restart_later(node.name, self._mishaps.downtime_ms())

    def _stop(self, node: SimulatedNode[Runnable], lose: Lose) -> None:
        self.transcript.add(self.now_ms(), f"{node.name} crash", f"lose={lose}")
        node.stop()
        node.disk.crash(self._disk_chance, lose)
        for peer in node.take_links(self._nodes):
            if self.net.ordered:
                self.net.drop(peer, node.name)  # a connection does not outlive its ends
            if self._tell_crashes:
                self._end_link(node.name, peer)

    def fail_disk(self, name: str, steps: int) -> None:
        """The node crashes at the step of its disk after so many others."""
        disk = self._nodes[name].disk
        disk.crash_at = disk.steps + steps

    def _is_stale(self, entry: Entry) -> bool:
        if isinstance(entry, Post | Heal):
            return False
        return self._nodes[entry.node].is_stale(entry)

    def _chance_of(self, purpose: str) -> random.Random:
        # Text is seeded by SHA-512: the same in every process, unlike the hash of a tuple.
        return random.Random(f"{self.seed} {purpose}")

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Whatever fails inside comes out with its seed and its transcript."""
        try:
            yield
        except SimulationFailed:
            raise
        except Exception as error:
            raise SimulationFailed(
                error,
                seed=self.seed,
                step=self.steps,
                transcript=self.transcript,
                replay=self._replay,
            ) from error


def _file(subject: Append | Sync | FinishSync) -> str:
    if isinstance(subject, Append):
        return f"{subject.file} +{len(subject.data)} bytes"
    return f"{subject.file} upto {subject.upto}"
