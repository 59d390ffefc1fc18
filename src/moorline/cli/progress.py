"""Room: cli. A progress bar on stderr for long work; in a pipe there is none.

with progress("checking") as seen:
    seen(17, 1_000)
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

LOOK_S = 0.1
"""Time between two looks at the clock's bar: a person sees no more."""


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Gives a function that hears how many are done, and of how many; 0 where nobody knows."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    # What a command prints under a bar goes where it always goes.
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as bar:
        task = bar.add_task(what, total=None)
        shown_s = 0.0

        def seen(done: int, total: int) -> None:
            nonlocal shown_s
            now_s = time.monotonic()
            if now_s - shown_s >= LOOK_S or done == total:
                shown_s = now_s
                bar.update(task, completed=done, total=total or None)

        yield seen
