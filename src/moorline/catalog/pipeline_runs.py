"""Room: catalog. What runs of the pipeline said of themselves: the newest few hundred."""

from typing import Any

from moorline.catalog.catalog import Catalog
from moorline.catalog.outcome import HARMLESS, unsure
from moorline.catalog.statements import statement
from moorline.limits import PIPELINE_RUN_SILENT_MS, PIPELINE_RUNS_KEPT

FORGET = statement("pipeline_run_forget")
LIST = statement("pipeline_runs")
TELL = statement("pipeline_run_tell")


class RunRows:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def tell(self, *row: object) -> bool:
        """In the order of the statement; False where the run is another's, or has ended otherwise."""
        with unsure("what the run said was kept", HARMLESS):
            is_new = await self._catalog.fetchval(TELL, *row)
            if is_new:
                # Those that began long ago make room for it.
                await self._catalog.fetch(FORGET, PIPELINE_RUNS_KEPT - 1)
        return is_new is not None

    async def list(self, before_us: int, count: int) -> list[Any]:
        return await self._catalog.fetch(LIST, before_us, count, PIPELINE_RUN_SILENT_MS)
