"""A node that ends with `kill -9` of itself at a given point of a staged commit; run as a program.

    python -m tests.staging.killed_node POINT serve --data=…

The point is the call of a method, `before:` or `after:` it, the nth time after the decision.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from moorline.cli.main import main
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


def kill_at(when: str, method: str, times: int) -> None:
    kind, name = METHODS[method]
    original: Callable[..., Any] = getattr(kind, name)
    decide = StagingStore.decide
    is_decided = method == "decide"
    calls = 0

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += is_decided
        is_now = is_decided and calls == times
        if is_now and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments)
        if is_now:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def decided(*arguments: Any) -> Any:
        nonlocal is_decided
        result = decide(*arguments)
        is_decided = True
        return result

    if method != "decide":
        StagingStore.decide = decided  # type: ignore[method-assign,assignment]
    setattr(kind, name, counted)


if __name__ == "__main__":
    point = sys.argv.pop(1)
    # Small, so that a commit of some hundred rows has many steps.
    vars(shell).update(STAGED_NOTE_BYTES=4_000, STAGED_QUEUE_ROWS_PER_TURN=10)
    if point != "never":
        when, method, times = point.split(":")
        kill_at(when, method, int(times))
    main()
