"""Room: client. What an operator does to a cluster: nodes that are drained."""

from functools import partial

from moorline.client.queue_homes import QueueCallers
from moorline.errors import Elsewhere
from moorline.limits import DRAIN_PER_S
from moorline.net.caller import Calls
from moorline.wire import cluster as wire


class Cluster:
    """`Moor.cluster`: each call is led to the node that it is about."""

    def __init__(self, callers: QueueCallers, calls: Calls) -> None:
        self._callers, self._calls = callers, calls

    async def drain(
        self, home: str = "", *, per_s: int = DRAIN_PER_S, is_over: bool = False
    ) -> wire.NodeDrained:
        """The node of that home, or else the one that is asked, sends away whoever can be elsewhere, so many
        a second. Ask again to hear how far it is; `is_over` ends it."""
        make = partial(wire.DrainNode, home=home, per_s=per_s, is_over=is_over)
        try:
            return await self._calls.call(make, wire.NodeDrained)
        except Elsewhere as told:
            caller = await self._callers.at_home(told)
            return await caller.call(make, wire.NodeDrained)

    async def back_up(self, cut: str = "", *, is_over: bool = False) -> wire.NodeHeld:
        """The node that is asked holds its files for a copy; asked with that cut it tells how far it is."""
        make = partial(wire.BackUpNode, cut=cut, is_over=is_over)
        return await self._calls.call(make, wire.NodeHeld)
