"""Room: queues. Writes into the catalog which queues of a node are not of the home that their ids say.

    found at the start  ──►  digest = the catalog's, and all written?  ──yes──►  nothing to do
                                          │ no
                                          └──►  slice by slice in the order of ids, each with how far it came

A store from before there were numbers has nothing but exceptions, perhaps a million of them. So this runs
beside the node: nobody waits for it, because a queue is looked for in the node's own store first. A start
in the middle of it goes on where the one before came to. What is deleted while the node runs stays written
until the next start: the home is right even so, and there the queue is not found.
"""

import asyncio
import logging

from moorline.catalog.homes import LAST_ID, Homes
from moorline.errors import IdentityTaken, MoorlineError
from moorline.journal.queues.home_exceptions import (
    HomeExceptions,
    Ids,
    cut,
    digest_of,
    place_behind,
)
from moorline.limits import HOME_EXCEPTIONS_PER_SLICE, HOME_EXCEPTIONS_RETRY_MS

log = logging.getLogger("moorline.queues")

SLICES_PER_LINE = 20
"""A line of the log for so many: of a million queues ten."""


class ExceptionWriter:
    """Brings the catalog to what a store has, once."""

    def __init__(
        self,
        homes: Homes,
        number: bytes,
        found: HomeExceptions,
        slice_ids: int = HOME_EXCEPTIONS_PER_SLICE,
    ) -> None:
        self._homes = homes
        self._number = number
        self._found = found
        self._slice_ids = slice_ids

    async def write_until_done(self) -> None:
        """Tries again for as long as the catalog does not take them."""
        ids = await asyncio.to_thread(self._found.find)
        digest = await asyncio.to_thread(digest_of, ids)
        while True:
            try:
                await self._write(ids, digest)
            except IdentityTaken:
                return  # the node ends; whoever has its identity writes its own
            except (MoorlineError, OSError, TimeoutError) as error:
                log.warning(
                    "the homes of queues were not written into the catalog: tried again",
                    extra={"error": str(error) or "no answer"},
                )
            except Exception:
                log.exception("the homes of queues were not written into the catalog: tried again")
            else:
                return
            await asyncio.sleep(HOME_EXCEPTIONS_RETRY_MS / 1_000)

    async def _write(self, ids: Ids, digest: bytes) -> None:
        state = await self._homes.exceptions_state(self._number)
        # What was begun for another set of queues is begun anew: it may lack some below where it came to.
        behind = state.upto if state.digest == digest else b""
        if behind == LAST_ID:
            return
        log.info(
            "queues whose ids name no home, or another one, are written into the catalog",
            extra={"queues": len(ids), "written_before": place_behind(ids, behind)},
        )
        slices = 0
        while behind != LAST_ID:
            behind = await self._write_slice(ids, digest, behind)
            slices += 1
            if slices % SLICES_PER_LINE == 0 and behind != LAST_ID:
                extra = {"queues": len(ids), "written": place_behind(ids, behind)}
                log.info("homes of queues are written into the catalog", extra=extra)
        log.info("the homes of all queues are in the catalog", extra={"queues": len(ids)})

    async def _write_slice(self, ids: Ids, digest: bytes, behind: bytes) -> bytes:
        first = place_behind(ids, behind)
        queue_ids = cut(ids[first : first + self._slice_ids])
        is_last = first + self._slice_ids >= len(ids)
        return await self._homes.write_exceptions(
            self._number,
            digest,
            behind=behind,
            upto=LAST_ID if is_last else queue_ids[-1],
            queue_ids=queue_ids,
            rows_max=2 * self._slice_ids,
        )
