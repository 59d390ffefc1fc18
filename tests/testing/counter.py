"""Three counters for the simulator: one that is sound, and two with the mistakes people make.

A client asks for increments 1, 2, 3, … and repeats each until it is acknowledged. The server logs
the number, syncs, and then acknowledges. No acknowledged increment may ever be missing.
"""

import random
import struct
from collections.abc import Sequence
from enum import Enum, auto
from functools import partial
from typing import ClassVar

import msgspec

from moorline.core.effects import (
    Append,
    CancelTimer,
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
from moorline.core.machine import Machine
from moorline.testing import Chaos, MemoryDisk, Simulator, UnreliableNet

FILE = "counter/log"
RECORD = struct.Struct(">I")
RETRY_MS = 40
NET = partial(UnreliableNet, loss=0.1, repeat=0.1, delay_ms=(1, 30))
CHAOS = Chaos(crash=0.02, pause=0.01, cut=0.01)


class Increment(msgspec.Struct, frozen=True):
    number: int


class Done(msgspec.Struct, frozen=True):
    number: int


class Begin(Event, frozen=True):
    pass


class Only(Enum):
    RUNNING = auto()


class Counter(Machine[Only]):
    """The server. `hasty` acknowledges before the sync."""

    moves: ClassVar[dict[Enum, frozenset[Enum]]] = {}

    def __init__(self, count: int, *, hasty: bool) -> None:
        super().__init__("counter", Only.RUNNING)
        self.count = count
        self.durable = count
        self.hasty = hasty

    def step(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: ARG002
        match event:
            case Received(message=Increment(number)):
                return self.increment(number)
            case Synced(upto=upto):
                done = range(self.durable + 1, upto + 1)
                self.durable = max(self.durable, upto)
                return [Send("client", Done(number)) for number in done]
            case _:
                return []

    def increment(self, number: int) -> list[Effect]:
        if number <= self.durable:
            return [Send("client", Done(number))]
        if number <= self.count:
            return []  # its sync is on its way
        assert number == self.count + 1, f"asked for {number} after {self.count}"
        self.count = number
        append, sync = Append(FILE, RECORD.pack(number)), Sync(FILE, number)
        return [append, Send("client", Done(number)), sync] if self.hasty else [append, sync]


class Client(Machine[Only]):
    """Asks for one number after the other; `acknowledged` is the memory of its user."""

    moves: ClassVar[dict[Enum, frozenset[Enum]]] = {}

    def __init__(self, acknowledged: list[int], chance: random.Random) -> None:
        super().__init__("client", Only.RUNNING)
        self.acknowledged = acknowledged
        self.chance = chance

    def step(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: ARG002
        match event:
            case Received(message=Done(number)) if number == self.acknowledged[-1] + 1:
                self.acknowledged.append(number)
                return [CancelTimer("retry"), *self.ask()]
            case Begin() | TimerFired("retry") | PeerLost():
                return self.ask()
            case _:
                return []

    def ask(self) -> list[Effect]:
        after_ms = RETRY_MS + self.chance.randrange(10)
        increment = Increment(self.acknowledged[-1] + 1)
        return [Send("counter", increment), SetTimer("retry", after_ms)]


def recover(
    disk: MemoryDisk, _: random.Random, *, hasty: bool, forgetful: bool
) -> tuple[Counter, Sequence[Event]]:
    """Reads the log. `forgetful` takes what it finds for durable, though a process that crashed may
    have left it unsynced."""
    if not disk.exists(FILE):
        return Counter(0, hasty=hasty), []
    file = disk.open(FILE, create=False)
    whole = file.size() // RECORD.size
    file.truncate(whole * RECORD.size)
    if not forgetful:
        file.sync()
        for folder in ("counter", ""):
            disk.sync_folder(folder)
    count = RECORD.unpack(file.read_at((whole - 1) * RECORD.size, RECORD.size))[0] if whole else 0
    assert count == whole, "the log has a gap"
    file.close()
    return Counter(count, hasty=hasty), []


def build(simulator: Simulator, *, hasty: bool = False, forgetful: bool = False) -> list[int]:
    """Adds both nodes; returns the list that the acknowledged numbers are added to."""
    acknowledged = [0]
    simulator.add("counter", partial(recover, hasty=hasty, forgetful=forgetful))
    simulator.add("client", lambda _, chance: (Client(acknowledged, chance), [Begin()]))
    return acknowledged


def nothing_is_lost(simulator: Simulator) -> None:
    if simulator.is_up("counter") and simulator.is_up("client"):
        counter, client = simulator.machine("counter"), simulator.machine("client")
        assert isinstance(counter, Counter)
        assert isinstance(client, Client)
        told = client.acknowledged[-1]
        assert told <= counter.count, f"acknowledged {told}, and then had {counter.count}"


def sound(seed: int) -> Simulator:
    simulator = Simulator(seed, net=NET, chaos=CHAOS, check=nothing_is_lost, replay=sound)
    acknowledged = build(simulator)
    simulator.run(300)
    simulator.calm()
    goal = acknowledged[-1] + 3
    simulator.run_until(lambda _: acknowledged[-1] >= goal, steps_max=300)
    return simulator


def hasty(seed: int) -> Simulator:
    simulator = Simulator(seed, net=NET, chaos=CHAOS, check=nothing_is_lost, replay=hasty)
    build(simulator, hasty=True)
    simulator.run(300)
    return simulator


def forgetful(seed: int) -> Simulator:
    # It takes two crashes in a row, of the process and then of the machine.
    chaos = Chaos(crash=0.1, restart_after_ms=(1, 20), lose=("none", "all"))
    simulator = Simulator(seed, net=NET, chaos=chaos, check=nothing_is_lost, replay=forgetful)
    build(simulator, forgetful=True)
    simulator.run(300)
    return simulator
