"""What makes a node end with `kill -9` of itself at a given point of a staged commit, before it starts.

The point is the call of a method, `before:` or `after:` it, the nth time after the decision.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

from moorline.journal.queues.store import Store
from moorline.journal.staging.store import StagingStore
from moorline.journal.streams.store import StreamStore
from moorline.staging import commits as shell

METHODS: dict[str, tuple[type, str]] = {
    "decide": (StagingStore, "decide"),
    "advance": (StagingStore, "advance"),
    "complete": (StagingStore, "complete"),
    "append": (shell.StagedCommits, "_append"),
    "write": (StreamStore, "write"),
    "log": (Store, "write"),
}


class Point:
    """Counts calls from the decision on, and ends the process at one of them."""

    def __init__(self, when: str, times: int) -> None:
        self.is_decided = False
        self._when, self._times = when, times
        self._calls = 0

    def before(self) -> None:
        self._calls += self.is_decided
        self._kill_if("before")

    def after(self) -> None:
        self._kill_if("after")

    def _kill_if(self, when: str) -> None:
        if self.is_decided and self._calls == self._times and self._when == when:
            os.kill(os.getpid(), signal.SIGKILL)


def kill_at(when: str, method: str, times: int) -> None:
    kind, name = METHODS[method]
    point = Point(when, times)
    point.is_decided = method == "decide"
    if not point.is_decided:
        decide = StagingStore.decide

        def decided(*arguments: Any) -> Any:
            result = decide(*arguments)
            point.is_decided = True
            return result

        StagingStore.decide = decided  # type: ignore[method-assign,assignment]
    original: Callable[..., Any] = getattr(kind, name)
    if name != "write":

        def counted(*arguments: Any) -> Any:
            point.before()
            result = original(*arguments)
            point.after()
            return result

        setattr(kind, name, counted)
        return

    # A batch is begun on the loop, or else written by a thread: either is its write.
    begin: Callable[..., bool] = kind.begin  # type: ignore[attr-defined]

    def begun(*arguments: Any) -> bool:
        point.before()
        result = begin(*arguments)
        if result:
            point.after()
        return result

    def written(*arguments: Any) -> Any:
        result = original(*arguments)
        point.after()
        return result

    setattr(kind, "begin", begun)  # noqa: B010
    setattr(kind, name, written)


def prepare(point: str) -> None:
    # Small, so that a commit of some hundred rows has many steps.
    vars(shell).update(STAGED_NOTE_BYTES=4_000, STAGED_QUEUE_ROWS_PER_TURN=10)
    if point != "never":
        when, method, times = point.split(":")
        kill_at(when, method, int(times))
