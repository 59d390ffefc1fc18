"""An operator under faults: makes a group, takes part in it, ends it, and knows what it was answered.

A call that failed must not take effect later, when a node that stood still goes on.
"""

import asyncio

import moorline
from chaos.history import GroupSeen, Operated, Outcome
from chaos.load import Actor, Load
from chaos.world import Node
from moorline.client.moor import Moor
from moorline.errors import NotFound

GROUP = "$shared/scratch/nothing/#"
PAUSE_S_MAX = 1.0
JOIN_CHANCE = 0.7


class Operator(Actor):
    """Only this one touches the group."""

    def __init__(self, load: Load) -> None:
        super().__init__(load, "operator")

    def node(self) -> Node | None:
        running = self.load.world.running()
        return self.random.choice(running) if running else None

    async def work(self, moor: Moor) -> None:
        """A few calls, then the next connection goes to another node perhaps."""
        for _ in range(3):
            async with self.load.making():
                await self._operate(moor, "create")
                if self.random.random() < JOIN_CHANCE:
                    # A member gives the group a Leader, on whichever node claims it.
                    subscription = await moor.subscribe(GROUP)
                    await subscription.close()
                if self.random.random() < 0.5:
                    await self._operate(moor, "delete")
            await asyncio.sleep(self.random.random() * PAUSE_S_MAX)

    async def _operate(self, moor: Moor, act: str) -> None:
        group = moor.group(GROUP)
        outcome = Outcome.UNKNOWN
        try:
            if act == "create":
                outcome, _ = await self.settled(group.create)
            else:
                outcome, _ = await self.settled(lambda: _deleted(moor))
        finally:
            self.note(Operated(GROUP, act, outcome))


async def _deleted(moor: Moor) -> bool:
    """A group that is not there is what a deletion wants."""
    try:
        await moor.group(GROUP).delete()
    except NotFound:
        return False
    return True


async def look(load: Load, address: str) -> None:
    """While nobody operates: whether the group is there."""
    async with moorline.connect(address, reconnect=False) as moor:
        names = {group.name for group in await moor.groups()}
    load.history.note(GroupSeen(GROUP, exists=GROUP in names))
