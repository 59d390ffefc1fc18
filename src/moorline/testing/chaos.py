"""Room: testing. How much goes wrong in a simulation, and the dice that say when."""

import random
from dataclasses import dataclass
from typing import Protocol

from moorline.testing.memory_disk import Lose


@dataclass(frozen=True, slots=True)
class Chaos:
    """Probabilities for each step of a simulation, and how long each mishap lasts.

    `crash` stops a random node, half of the times in the middle of a disk operation of its next
    step, and loses one of `lose`. `pause` holds a node still, as SIGSTOP or a long collection of
    garbage does. `cut` parts two nodes.
    """

    crash: float = 0.0
    restart_after_ms: tuple[int, int] = (1, 200)
    lose: tuple[Lose, ...] = ("none", "some", "all")
    pause: float = 0.0
    resume_after_ms: tuple[int, int] = (1, 200)
    cut: float = 0.0
    heal_after_ms: tuple[int, int] = (1, 200)

    def __post_init__(self) -> None:
        for probability in (self.crash, self.pause, self.cut):
            assert 0 <= probability <= 1, f"not a probability: {probability}"
        for low, high in (self.restart_after_ms, self.resume_after_ms, self.heal_after_ms):
            assert 0 <= low <= high, f"not a span (low, high): {(low, high)}"
        assert self.lose, "lose names at least one of none, some, all"


class Troubled(Protocol):
    """What mishaps do to a simulation."""

    def names(self) -> list[str]: ...

    def is_up(self, name: str) -> bool: ...

    def is_paused(self, name: str) -> bool: ...

    def crash(self, name: str, lose: Lose) -> None: ...

    def fail_disk(self, name: str, steps: int) -> None: ...

    def restart_later(self, name: str, after_ms: int) -> None: ...

    def pause(self, name: str) -> None: ...

    def resume_later(self, name: str, after_ms: int) -> None: ...

    def cut(self, a: str, b: str, for_ms: int) -> None: ...


class Mishaps:
    """Throws the dice before each step; what they say is done by the simulation."""

    def __init__(self, chaos: Chaos, chance: random.Random) -> None:
        self.chaos = chaos
        self._chance = chance

    def befall(self, troubled: Troubled) -> None:
        # A die is thrown for each kind at every step, whether it can happen or not: the throws of a seed stay
        # where they are when a node is down.
        chance, chaos = self._chance, self.chaos
        up = [name for name in troubled.names() if troubled.is_up(name)]
        if chance.random() < chaos.crash and up:
            self._crash(troubled, chance.choice(up))
        running = [name for name in up if troubled.is_up(name) and not troubled.is_paused(name)]
        if chance.random() < chaos.pause and running:
            name = chance.choice(running)
            troubled.pause(name)
            troubled.resume_later(name, chance.randint(*chaos.resume_after_ms))
        if chance.random() < chaos.cut and len(troubled.names()) > 1:
            a, b = chance.sample(troubled.names(), 2)
            troubled.cut(a, b, chance.randint(*chaos.heal_after_ms))

    def _crash(self, troubled: Troubled, name: str) -> None:
        # Half of them between two steps, half in the middle of one, at a write that never comes back.
        if self._chance.random() < 0.5:
            troubled.crash(name, self.loss())
            troubled.restart_later(name, self.downtime_ms())
        else:
            troubled.fail_disk(name, self._chance.randrange(3))

    def loss(self) -> Lose:
        """What a disk loses in a crash."""
        return self._chance.choice(self.chaos.lose)

    def downtime_ms(self) -> int:
        return self._chance.randint(*self.chaos.restart_after_ms)
