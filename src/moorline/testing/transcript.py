"""Room: testing. What happened in a simulation, line by line, and the failure that quotes it.

12 ms  a -> b       Ping(number=1)
13 ms  b timer      retry
20 ms  b crash      lose=some
"""

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

LINES_MAX: Final = 10_000
"""Lines kept for reading; the digest covers all that there ever were."""

LINE_CHARACTERS_MAX: Final = 240
"""A longer line is cut: the message in it is too long to be read by eye."""

QUOTED_LINES: Final = 40
"""Lines under a failure: about one screen."""

Replay: TypeAlias = Callable[[int], object] | str
"""How to run a simulation again: a function at the top of a module that takes the seed, or the
Python line itself with `{seed}` in it."""


class Transcript:
    """The last lines, and a digest over all of them: two runs are equal if their digests are."""

    def __init__(self, lines_max: int = LINES_MAX) -> None:
        self._lines: deque[str] = deque(maxlen=lines_max)
        self._digest = hashlib.sha256()

    def add(self, now_ms: int, what: str, detail: object = "") -> None:
        line = f"{now_ms:>8} ms  {what:<14} {detail}".rstrip()
        if len(line) > LINE_CHARACTERS_MAX:
            line = line[: LINE_CHARACTERS_MAX - 1] + "…"
        self._lines.append(line)
        self._digest.update(line.encode("utf-8", "surrogatepass"))
        self._digest.update(b"\n")

    def lines(self, last: int | None = None) -> list[str]:
        lines = list(self._lines)
        return lines if last is None else lines[max(0, len(lines) - last) :]

    def digest(self) -> str:
        return self._digest.hexdigest()

    def __str__(self) -> str:
        return "\n".join(self._lines)


class SimulationFailed(AssertionError):
    """A check, a machine, or the test's own callback failed; `__cause__` is the failure itself."""

    def __init__(
        self, cause: BaseException, *, seed: int, step: int, transcript: Transcript, replay: Replay
    ) -> None:
        self.seed = seed
        self.step = step
        self.replay = replay_line(replay, seed)
        quoted = transcript.lines(QUOTED_LINES)
        text = [
            f"seed {seed}, step {step}: {type(cause).__name__}: {cause}",
            f"replay: {self.replay}",
            f"the last {len(quoted)} lines:",
            *quoted,
        ]
        super().__init__("\n".join(text))


def replay_line(replay: Replay, seed: int) -> str:
    """One line of Python that runs the simulation again."""
    if isinstance(replay, str):
        return replay.replace("{seed}", str(seed)) or f"build the same Simulator with seed={seed}"
    name = getattr(replay, "__qualname__", "")
    if not name.isidentifier():
        return f"call your scenario with seed {seed}"
    return f"from {replay.__module__} import {name}; {name}({seed})"
