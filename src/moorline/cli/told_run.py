"""Room: cli. A run of the pipeline tells a node about itself, so that people can see it.

    with told_run(endpoint, "verify", where) as run:
        … run.hears(seen) hears of progress …
        run.proves("8 of 8 streams are proven equal", is_proven=True)

It tells from a thread of its own, once a second at most. A job never fails by it: where the node is away, or
does not grant the right, the job goes on, and nobody sees it there.
"""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator

import msgspec

from moorline.cli.endpoint import Endpoint
from moorline.errors import MoorlineError
from moorline.limits import PIPELINE_RUN_ENDS_MS_MAX, PIPELINE_RUN_SILENT_MS, PIPELINE_RUN_TELLS_MS
from moorline.wire.pipeline_run import RunState, TellRun

Seen = Callable[[int, int], None]
TEXT_CHARACTERS_MAX = 1_024


class ToldRun:
    """What there is to tell, changed by the job and read by the thread."""

    def __init__(self, kind: str, what: str) -> None:
        name = secrets.token_urlsafe(16)
        self.now = TellRun(0, name, kind, _text(what), RunState.RUNNING.value)

    def hears(self, seen: Seen) -> Seen:
        """What hears of progress, and passes it on."""

        def both(done: int, total: int) -> None:
            self._change(done=max(0, done), total=max(0, total))
            seen(done, total)

        return both

    def proves(self, proof: str, *, is_proven: bool | None) -> None:
        """What came out, in a sentence; `is_proven` None where nothing was compared."""
        self._change(proof=_text(proof), is_proven=is_proven)

    def ends(self, error: BaseException | None) -> None:
        if error is None:
            self._change(state=RunState.DONE.value)
            return
        why = str(error) or type(error).__name__
        if isinstance(error, KeyboardInterrupt):
            why = "it was interrupted"
        self._change(state=RunState.FAILED.value, why=_text(why))

    def _change(self, **fields: object) -> None:
        # One assignment: the thread sees the old one or the new one.
        self.now = msgspec.structs.replace(self.now, **fields)


def _text(text: str) -> str:
    return text.replace("\0", " ")[:TEXT_CHARACTERS_MAX]


@contextlib.contextmanager
def told_run(
    endpoint: Endpoint, kind: str, what: str, *, is_told: bool = True
) -> Iterator[ToldRun]:
    """Not told where no node is called: a job may read a data folder."""
    run = ToldRun(kind, what)
    if not is_told or not endpoint.address:
        yield run
        return
    ended = threading.Event()
    thread = threading.Thread(target=_tell, args=(endpoint, run, ended), daemon=True)
    thread.start()
    try:
        yield run
    except BaseException as error:
        run.ends(error)
        raise
    else:
        run.ends(None)
    finally:
        ended.set()
        thread.join(PIPELINE_RUN_ENDS_MS_MAX / 1_000)


def _tell(endpoint: Endpoint, run: ToldRun, ended: threading.Event) -> None:
    # The node is away, or does not grant it: the job goes on, and nobody sees it there.
    with contextlib.suppress(MoorlineError, OSError, TimeoutError):
        asyncio.run(_tell_all(endpoint, run, ended))


async def _tell_all(endpoint: Endpoint, run: ToldRun, ended: threading.Event) -> None:
    told: TellRun | None = None
    told_s = 0.0
    loop = asyncio.get_running_loop()
    async with endpoint.connect() as moor:
        while True:
            is_last = ended.is_set()
            # Read behind that: the end is in it.
            now = run.now
            is_due = loop.time() - told_s >= PIPELINE_RUN_SILENT_MS / 3_000
            if now is not told or is_due:
                await moor.pipeline_runs.tell(now)
                told, told_s = now, loop.time()
            if is_last:
                return
            await asyncio.to_thread(ended.wait, PIPELINE_RUN_TELLS_MS / 1_000)
