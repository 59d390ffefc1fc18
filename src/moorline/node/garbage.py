"""Room: node. Python's garbage collector in a process that is a node: it looks at little at a time.

What nobody refers to goes at once, by its count of references; the collector is for rings of objects only. A
whole collection walks over all objects there are while it holds the interpreter: 150 ms with 100,000 queues
at work, and Python begins one whenever a quarter has been added, over and over in a checkpoint.
So what has lived through one is set apart (`gc.freeze`), and the next one walks over what came since:

    700 new objects       ─► the newest are looked at                            (as Python does it)
    10 times that         ─► and those that were left of them                    (as Python does it)
    2 times that          ─► and all that is not set apart; if much is left, it is set apart now

What is set apart still goes by its count of references, and nearly all does. A ring that forms of it stays,
until all is looked at: when nobody uses the node, or on one that is never idle when there are twice as many
objects as at the last look, or a day later.
"""

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Callable, Iterator
from typing import Literal

from moorline.limits import (
    GARBAGE_APART_MAX,
    GARBAGE_KEPT_MAX,
    GARBAGE_LOOK_MS,
    GARBAGE_ROUNDS,
    GARBAGE_WAIT_MS_MAX,
    IDLE_CPU_SHARE,
)
from moorline.net.clock import monotonic_ms

log = logging.getLogger("moorline.node")

_WHOLE = 2
"""The generation of Python's that is all objects which are not set apart."""


class Garbage:
    """Sets apart what lives long; of a process, as the collector is. `cpu_s` is what the process has used."""

    def __init__(self, cpu_s: Callable[[], float] = time.process_time) -> None:
        self.apart = 0
        """Objects that were set apart since all were looked at; most of them are gone by now."""
        self._cpu_s = cpu_s
        self._looked_cpu_s = cpu_s()
        self._looked_ms = monotonic_ms()
        self._due_ms = 0
        self._kept = 0
        """Objects that were there behind the last look at all."""
        self._count_from = GARBAGE_APART_MAX
        """With so many set apart it is counted how many of them are there still: a walk over them, too."""

    @contextlib.contextmanager
    def kept_small(self) -> Iterator["Garbage"]:
        """Until the end of the block; then all is as Python has it."""
        thresholds = gc.get_threshold()
        # As it is: what was imported stays, and to look at it first would hold up each start of a node.
        self._set_apart()
        # Not Python's 10: two rounds of what is new are a slice, together with what is kept.
        gc.set_threshold(*thresholds[:2], GARBAGE_ROUNDS)
        gc.callbacks.append(self._collected)
        try:
            yield self
        finally:
            gc.callbacks.remove(self._collected)
            gc.set_threshold(*thresholds)
            gc.unfreeze()

    async def look_at_all_when_idle(self) -> None:
        """For as long as the node runs."""
        while True:
            await asyncio.sleep(GARBAGE_LOOK_MS / 1_000)
            if self.is_time(monotonic_ms()):
                began_ms = monotonic_ms()
                found = self.look_at_all()
                extra = {"objects": found, "in_ms": monotonic_ms() - began_ms}
                log.info("all objects were looked at for garbage", extra=extra)

    def is_time(self, now_ms: int) -> bool:
        """Whether to look at all now: much was set apart, and nobody uses the node, or it cannot wait."""
        cpu_s, elapsed_s = self._cpu_s(), (now_ms - self._looked_ms) / 1_000
        is_idle = cpu_s - self._looked_cpu_s <= IDLE_CPU_SHARE * elapsed_s
        self._looked_cpu_s, self._looked_ms = cpu_s, now_ms
        if self.apart < GARBAGE_APART_MAX:
            self._due_ms = 0
            return False
        self._due_ms = self._due_ms or now_ms
        return is_idle or now_ms - self._due_ms >= GARBAGE_WAIT_MS_MAX or self._has_doubled()

    def _has_doubled(self) -> bool:
        """So that a node that is never idle has no more garbage than it has objects in use."""
        if self.apart < self._count_from:
            return False
        self._count_from = self.apart + GARBAGE_APART_MAX
        return gc.get_freeze_count() > 2 * self._kept + GARBAGE_APART_MAX

    def look_at_all(self) -> int:
        """Holds the interpreter for some 0.2 µs for each object; how many were garbage."""
        gc.unfreeze()
        found = gc.collect()
        self._set_apart()
        return found

    def _set_apart(self) -> None:
        gc.freeze()
        # Of nothing: Python waits for a quarter of what the last one left, and that was all there is.
        gc.collect()
        self.apart = self._due_ms = 0
        self._kept, self._count_from = gc.get_freeze_count(), GARBAGE_APART_MAX

    def _collected(self, phase: Literal["start", "stop"], info: dict[str, int]) -> None:
        """In whatever thread it was that made an object too many, at the end of a collection."""
        if phase == "stop" and info["generation"] == _WHOLE:
            left = len(gc.get_objects(generation=_WHOLE))
            if left > GARBAGE_KEPT_MAX:
                gc.freeze()
                self.apart += left
