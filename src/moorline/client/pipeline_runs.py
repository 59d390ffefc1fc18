"""Room: client. Runs of the pipeline, as the nodes of a cluster were told of them."""

from functools import partial

from moorline.net.caller import Calls
from moorline.wire.pipeline_run import ListRuns, RunFacts, RunsListed, TellRun
from moorline.wire.queue import Done


class PipelineRuns:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def newest(self, count: int, *, before_us: int = 0) -> list[RunFacts]:
        """Those that began last, or before that time."""
        asked = partial(ListRuns, before_us=before_us, count=count)
        return (await self._calls.call(asked, RunsListed)).runs

    async def tell(self, told: TellRun) -> None:
        """How a run of ours is."""
        await self._calls.call(lambda call: _numbered(told, call), Done)


def _numbered(told: TellRun, call: int) -> TellRun:
    return TellRun(call, *(getattr(told, name) for name in told.__struct_fields__[1:]))
