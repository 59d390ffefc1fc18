"""A net of processes for the simulation of the whole: what is said on it is late, lost or there twice.

Calls      a question and its answer; either may be lost, and a question may arrive twice
Pipes      one direction of a connection: in order and nothing lost, but all of it waits where the way is cut
Processes  run, stand still, die and begin another life; what was for an earlier life is for nobody

A way may be cut in one direction alone.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any

Work = Callable[[], None]
Reply = Callable[[Any], None]

DELAY_MS = 400
WINDOW = 6
"""Messages of a pipe that nobody has read: beyond it a sender waits."""
RESENT_MS = 500


class Process:
    """One resolver, publisher or subscriber."""

    def __init__(self, net: "Network", name: str) -> None:
        self.net = net
        self.name = name
        self.life = 0
        self.is_up = True
        self.is_stopped = False
        self.held: list[Work] = []
        """What came while it stood still."""
        self.stood_ms = 0
        """How long it stood still, in all its lives."""
        self.stopped_ms = 0
        self.pipes: list[Pipe] = []

    def later(self, after_ms: int, work: Work) -> None:
        self.net.later(self, after_ms, work)

    def stop(self) -> None:
        self.is_stopped, self.stopped_ms = True, self.net.now_ms

    def go_on(self) -> None:
        self.is_stopped = False
        self.stood_ms += self.net.now_ms - self.stopped_ms
        held, self.held = self.held, []
        for work in held:
            self.later(0, work)

    def die(self) -> None:
        if self.is_stopped:
            self.go_on()
        self.life += 1
        self.is_up = False
        for pipe in self.pipes:
            pipe.broken_by(self)
        self.pipes = []


class Network:
    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.now_ms = 0
        self.seen: Counter[str] = Counter()
        self.cut: set[tuple[Process, Process]] = set()
        self.is_quiet = False
        self._agenda: list[tuple[int, int, Process, int, Work]] = []
        self._order = 0
        self.wire = Process(self, "wire")
        """Always there: what happens on the wire is nobody's."""
        self._pass_time()

    def _pass_time(self) -> None:
        self.later(self.wire, 1_000, self._pass_time)

    def later(self, process: Process, after_ms: int, work: Work) -> None:
        self._order += 1
        at_ms = self.now_ms + after_ms
        heapq.heappush(self._agenda, (at_ms, self._order, process, process.life, work))

    def step(self) -> None:
        at_ms, _, process, life, work = heapq.heappop(self._agenda)
        self.now_ms = max(self.now_ms, at_ms)
        if life != process.life or not process.is_up:
            return
        if process.is_stopped:
            process.held.append(work)
        else:
            work()

    def delay_ms(self) -> int:
        return self.chance.randint(1, DELAY_MS)

    def send(self, sender: Process, receiver: Process, work: Work) -> None:
        if (sender, receiver) in self.cut:
            self.seen["cut off"] += 1
            return
        if not self.is_quiet and self.chance.random() < 0.03:
            self.seen["lost"] += 1
            return
        if not self.is_quiet and self.chance.random() < 0.03:
            self.seen["twice"] += 1
            self.later(receiver, self.delay_ms(), work)
        self.later(receiver, self.delay_ms(), work)

    def call(
        self,
        caller: Process,
        callee: Process,
        ask: Callable[[Reply], None],
        heard: Callable[[Any], None],
        timer_ms: int,
    ) -> None:
        """`heard` has the answer, or None where there is none; once, whatever happens."""
        over: list[bool] = []

        def once(answer: Any) -> None:
            if not over:
                over.append(True)
                heard(answer)

        def reply(answer: Any) -> None:
            self.send(callee, caller, lambda: once(answer))

        self.later(caller, timer_ms, lambda: once(None))
        if callee.is_up:
            self.send(caller, callee, lambda: ask(reply))
        elif not {(caller, callee), (callee, caller)} & self.cut:
            self.later(caller, self.delay_ms(), lambda: once(None))


class Pipe:
    """One direction of one connection. Who reads it may be slow; nothing overtakes anything."""

    def __init__(self, sender: Process, receiver: Process, lost: Callable[[Process], None]) -> None:
        self.sender, self.receiver = sender, receiver
        self.is_open = True
        self.room: Work = lambda: None
        """Called when something was read."""
        self._lost = lost
        self._waiting: deque[Work] = deque()
        self._is_moving = False
        sender.pipes.append(self)
        receiver.pipes.append(self)

    @property
    def is_writable(self) -> bool:
        return len(self._waiting) < WINDOW

    def write(self, work: Work) -> None:
        if self.is_open:
            self._waiting.append(work)
            self._move(self.sender.net.delay_ms())

    def close(self) -> None:
        self.is_open = False
        for end in (self.sender, self.receiver):
            if self in end.pipes:
                end.pipes.remove(self)

    def broken_by(self, dead: Process) -> None:
        """The other end hears of it, where its kernel is there and the way is not cut."""
        self.is_open = False
        other = self.receiver if dead is self.sender else self.sender
        net = other.net
        if (dead, other) not in net.cut and net.chance.random() < 0.7:
            net.later(other, net.delay_ms(), lambda: self._lost(other))

    def _move(self, after_ms: int) -> None:
        if self._is_moving or not self._waiting:
            return
        self._is_moving = True
        net = self.sender.net
        # It moves on while the sender stands still: its kernel has it.
        net.later(net.wire, after_ms, self._arrive)

    def _arrive(self) -> None:
        self._is_moving = False
        if not self.is_open:
            return
        net = self.sender.net
        if (self.sender, self.receiver) in net.cut or self.receiver.is_stopped:
            self._move(RESENT_MS)
            return
        self._waiting.popleft()()
        self.room()
        self._move(net.chance.randint(0, 20))
