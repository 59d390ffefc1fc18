"""Room: client. What an operator does to a cluster: nodes that are drained, homes that move."""

from functools import partial

from moorline.client.queue_homes import QueueCallers
from moorline.errors import Elsewhere
from moorline.limits import DRAIN_PER_S
from moorline.net.caller import Calls
from moorline.wire import cluster as wire
from moorline.wire import home_move


class Cluster:
    """`Moor.cluster`: each call is led to the node that it is about."""

    def __init__(self, callers: QueueCallers, calls: Calls) -> None:
        self._callers, self._calls = callers, calls

    async def drain(
        self,
        home: str = "",
        *,
        per_s: int = DRAIN_PER_S,
        is_over: bool = False,
        is_look: bool = False,
    ) -> wire.NodeDrained:
        """The node of that home, or else the one that is asked, sends away whoever can be elsewhere, so many
        a second. `is_look` only tells how far it is, and `is_over` ends it."""
        make = partial(wire.DrainNode, home=home, per_s=per_s, is_over=is_over, is_look=is_look)
        try:
            return await self._calls.call(make, wire.NodeDrained)
        except Elsewhere as told:
            caller = await self._callers.at_home(told)
            return await caller.call(make, wire.NodeDrained)

    async def back_up(self, cut: str = "", *, is_over: bool = False) -> wire.NodeHeld:
        """The node that is asked holds its files for a copy; asked with that cut it tells how far it is."""
        make = partial(wire.BackUpNode, cut=cut, is_over=is_over)
        return await self._calls.call(make, wire.NodeHeld)

    async def homes(self) -> list[home_move.HomeFacts]:
        """All homes, those whose nodes are away included, each with its last move."""
        found: list[home_move.HomeFacts] = []
        while True:
            after = found[-1].name if found else ""
            page = await self._calls.call(
                partial(home_move.ListHomes, after=after), home_move.HomesListed
            )
            found += page.homes
            if page.is_last or not page.homes:
                return found

    async def move_home(
        self, home: str, to: str = "", *, is_over: bool = False
    ) -> home_move.HomeMoving:
        """The home is to go to that node; `homes` tells how far it is. `is_over` gives it up."""
        make = partial(home_move.MoveHome, home=home, to=to, is_over=is_over)
        return await self._calls.call(make, home_move.HomeMoving)
