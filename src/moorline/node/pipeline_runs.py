"""Room: node. Runs of the pipeline: heard from their own processes, kept in the catalog, shown to people.

Every node answers for all runs of the cluster. A run is its principal's: nobody else can tell of it, and
what it said at its end stays.
"""

from collections.abc import Callable, Iterable
from typing import Final

from moorline.access.guard import Declarations, heavy, needs
from moorline.catalog.pipeline_runs import RunRows
from moorline.core.access.right import LIST, WRITE
from moorline.errors import NotAuthorized
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.wire.message import Answer
from moorline.wire.pipeline_run import ListRuns, RunFacts, RunsListed, RunState, TellRun
from moorline.wire.queue import Done

RUNS: Final = "/pipeline/runs"


TOLD: Final = frozenset({RunState.RUNNING.value, RunState.DONE.value, RunState.FAILED.value})


def all_runs(_: object) -> Iterable[str]:
    return (RUNS,)


class PipelineRuns:
    """Answers `TellRun` and `ListRuns`."""

    def __init__(self, rows: RunRows) -> None:
        self._rows = rows
        self._turns = Turns()
        self.told: Callable[[], None] = lambda: None
        """Hears that a run has said something."""

    def declared(self) -> Declarations:
        return {
            # In the turn of its session: what a run said last is kept last.
            TellRun: needs(WRITE, all_runs, self._turns.later(self._tell)),
            ListRuns: heavy(needs(LIST, all_runs, self._turns.spawned(self.list_runs))),
        }

    def close(self) -> None:
        self._turns.close()

    async def _tell(self, session: Session, call: TellRun) -> Answer:
        if call.state not in TOLD:
            raise NotAuthorized(f"a run does not say of itself that it is {call.state!r}")
        is_taken = await self._rows.tell(
            *(call.run, call.kind, call.what, call.state, call.done, call.total),
            *(call.is_proven, call.proof, call.why, session.rights.principal),
        )
        if not is_taken:
            raise NotAuthorized(f"the run {call.run} is another principal's, or has ended")
        self.told()
        return Done(call.call)

    async def list_runs(self, session: Session, call: ListRuns) -> Answer:  # noqa: ARG002
        found = await self._rows.list(call.before_us, call.count + 1)
        runs = [RunFacts(**row) for row in found[: call.count]]
        return RunsListed(call.call, runs, len(found) <= call.count)
