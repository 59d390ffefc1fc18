"""Room: topics. What the streams of a node need besides: generations end, are sealed, and dropped in time.

It also looks whether their files are still there, and tells of what is damaged.
"""

import asyncio
import logging
from collections.abc import Iterable

from moorline.journal.streams.dropped import Dropped
from moorline.journal.streams.inspection import StreamProblem
from moorline.limits import (
    DAMAGE_LINES_MAX,
    FILES_LOOK_MS,
    STREAM_SEALS_PER_LOOK,
    STREAM_UPKEEP_MS,
)
from moorline.topics.streams import LocalStreams

log = logging.getLogger("moorline.groups")


class StreamUpkeep:
    """Looks after the streams of one node, until it is cancelled."""

    def __init__(self, streams: LocalStreams) -> None:
        self._streams = streams
        self._store = streams.store
        self._loop = asyncio.get_running_loop()
        self._files_looked_s = self._loop.time()

    async def keep_up_forever(self) -> None:
        """Rolls what is too old, seals what was rolled, drops what retention says."""
        while True:
            async with self._streams.files_at_rest:
                await self._keep_up()
            await asyncio.sleep(STREAM_UPKEEP_MS / 1_000)

    async def _keep_up(self) -> None:
        for step in (self._roll, self._drop, self._seal, self._look_at_files, self._log_damage):
            try:
                done = step()
                if done is not None:
                    await done
            except Exception:
                # Neither the other steps nor the next round may depend on it: without them nothing would be
                # sealed or dropped any more, until the disk is full.
                what = {"step": step.__name__.strip("_")}
                log.exception("the upkeep of streams was interrupted", extra=what)

    async def _look_at_files(self) -> None:
        """A file that somebody removes is held by its name alone: nothing else would tell until a start."""
        if self._loop.time() < self._files_looked_s + FILES_LOOK_MS / 1_000:
            return
        self._files_looked_s = self._loop.time()
        problems = await asyncio.to_thread(self._store.upkeep.look_at_files)
        log_problems(problems, self._streams.node)
        if problems:
            self._streams.commits.changed()  # where the newest of a shard is gone, a new one begins
            self._streams.tell_reshaped(sorted({one.shard for one in problems}))

    def _log_damage(self) -> None:
        """Once for each place, however it was found: by a reader, a seal or the start."""
        found = self._store.new_damage()
        for stream, gap in found[:DAMAGE_LINES_MAX]:
            log.error(
                "messages of a stream are damaged or gone",
                extra={
                    "stream": str(stream),
                    "first": gap.first,
                    "upto": gap.upto,
                    "messages": gap.upto - gap.first,
                },
            )
        rest = found[DAMAGE_LINES_MAX:]
        if rest:
            # Each is told to whoever reads there; a log of a hundred thousand lines tells nobody anything.
            messages = sum(gap.upto - gap.first for _, gap in rest)
            extra = {
                "places": len(rest),
                "messages": messages,
                "streams": len({str(s) for s, _ in rest}),
            }
            log.error("messages of streams are damaged or gone in more places", extra=extra)

    def _roll(self) -> None:
        if self._store.upkeep.roll(self._streams.clock.expiry_us()):
            # A commit begins the new generations, also where nobody publishes.
            self._streams.commits.changed()

    async def _seal(self) -> None:
        troubled: set[int] = set()
        # A start may find thousands: what else there is to look after comes in between.
        for shard, generation in self._store.upkeep.unsealed()[:STREAM_SEALS_PER_LOOK]:
            if shard in troubled:
                continue  # the older one first
            try:
                seal = await asyncio.to_thread(self._store.upkeep.seal(shard, generation))
            except Exception as error:
                # One bad file must not keep the other shards from being sealed, and so from being dropped.
                troubled.add(shard)
                what = {"shard": shard, "generation": generation, "error": str(error)}
                is_ours = not isinstance(error, OSError)
                log.error("a generation cannot be sealed now", extra=what, exc_info=is_ours)
                continue
            self._store.upkeep.sealed(shard, generation, seal)
            log.info("sealed", extra={"shard": shard, "generation": generation})

    async def _drop(self) -> None:
        # One after the other, each with its note synced: there may be thousands, and others have their turn.
        while (drop := self._store.upkeep.next_drop(self._streams.clock.expiry_us())) is not None:
            await asyncio.to_thread(drop.note)
            drop.take_effect()
            self._dropped(drop.gone)
            await asyncio.to_thread(drop.remove)

    def _dropped(self, one: Dropped) -> None:
        self._streams.dropped_messages += one.count
        log.warning(
            "retention dropped messages",
            extra={
                "stream": f"{self._streams.node}/{one.shard}/{one.generation}",
                "messages": one.count,
                "first": one.first,
                "upto": one.upto,
                "reason": one.reason,
            },
        )
        self._streams.tell_reshaped([one.shard])


def log_problems(problems: Iterable[StreamProblem], node: str) -> None:
    """What is not as it was left: the first by their names, and how many more."""
    found = list(problems)
    for one in found[:DAMAGE_LINES_MAX]:
        log.error(
            "a file of the streams is not as it was left",
            extra={
                "kind": one.kind,
                "stream": f"{node}/{one.shard}/{one.generation}",
                "what": one.text,
                "messages": one.lost,
            },
        )
    rest = found[DAMAGE_LINES_MAX:]
    if rest:
        extra = {"files": len(rest), "messages": sum(one.lost for one in rest)}
        log.error("more files of the streams are not as they were left", extra=extra)
