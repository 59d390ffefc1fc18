"""Room: testing. How much goes wrong in a simulation."""

from dataclasses import dataclass

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
