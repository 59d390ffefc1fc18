"""Room: testing. Fakes that are real implementations, and the simulator that runs on them.

They ship with Moorline, so that you can test your own code without a server, a disk or a clock:

    MemoryDisk       a disk that loses at a crash what a real machine would lose
    HandClock        a clock that moves only by hand
    UnreliableNet    a net that loses, repeats, delays and reorders
    Simulator        machines on all of these, with chaos, repeatable from one seed

Nothing that runs in a server imports this room.
"""

from moorline.testing.chaos import Chaos
from moorline.testing.clock import HandClock
from moorline.testing.memory_disk import Crashed, Lose, MemoryDisk
from moorline.testing.net import Delivery, UnreliableNet
from moorline.testing.node import Factory, Runnable
from moorline.testing.simulator import Observer, Simulator
from moorline.testing.transcript import Replay, SimulationFailed, Transcript

__all__ = [
    "Chaos",
    "Crashed",
    "Delivery",
    "Factory",
    "HandClock",
    "Lose",
    "MemoryDisk",
    "Observer",
    "Replay",
    "Runnable",
    "SimulationFailed",
    "Simulator",
    "Transcript",
    "UnreliableNet",
]
