"""Operators ask things of a group while nodes stop, crash and lose each other at any step of a call.

`operated(seed)` draws everything from the seed. What must hold is in docs/design/groups.md: I15, I16, I17,
and with them what holds for every group.
"""

import random

from tests.core.group.group_simulation import GroupSimulation
from tests.core.group.group_world import CATALOG, LEASE_MS
from tests.core.group.operator_world import Asked, OperatedNode, OperatorWorld, TicketCatalog, Work

from moorline.core.group.leader import Leader
from moorline.core.group.queue_leader import QueueLeader
from moorline.testing import Chaos, Simulator

KINDS = ("delete", "seek", "seek", "seek", "kick", "change")


class OperatorSimulation(GroupSimulation):
    world_kind = OperatorWorld
    catalog_kind = TicketCatalog
    node_kind = OperatedNode

    @property
    def operators(self) -> OperatorWorld:
        assert isinstance(self.world, OperatorWorld)
        return self.world

    def operate(self, steps: int, *, asked: float, away: float, churn: float) -> None:
        """Each is the chance that it happens before a step."""
        calls = 0
        for _ in range(steps):
            if self.chance.random() < asked:
                calls += 1
                work = self._work()
                self.simulator.post(self.chance.choice(self.nodes), Asked(calls, work))
            if self.chance.random() < away:
                self.operators.come_and_go(self.chance, self.nodes)
            self.run(1, churn=churn)

    def _work(self) -> Work:
        chance = self.chance
        kind = chance.choice(KINDS)
        offset = chance.choice((None, None, 0, chance.randrange(40))) if kind == "seek" else None
        return Work(kind, offset, chance.choice(self.members), chance.randint(3, 6))

    def settle(self, steps_max: int = 60_000) -> None:
        self.operators.away.clear()
        self.operators.version += 1
        super().settle(steps_max)

    def check(self, simulator: Simulator) -> None:
        world = self.operators
        world.now_ms = simulator.now_ms()
        if world.is_moved:
            world.is_moved = False
            world.stored.clear()
            self.checked.update(world.floors)
        super().check(simulator)
        leader = self.leader()
        if leader is not None:
            for shard, view in leader.shards.items():
                floor = world.floors.get(shard, 0)
                assert view.progress.low >= floor, (
                    f"I17: {shard} is at {view.progress.low}, and was moved to {floor}"
                )


def operated(seed: int, *, mode: type[Leader] = Leader, steps: int = 1_200) -> OperatorSimulation:
    """Everything goes wrong, to a measure that the seed draws; then a calm in which it must end well."""
    draw = random.Random(f"{seed} operated")
    chaos = Chaos(
        crash=draw.choice((0, 0.002)),
        pause=draw.choice((0.002, 0.005)),
        cut=draw.choice((0, 0.005)),
        restart_after_ms=(1, 500),
        # Longer than a lease and than the time of a ticket, and shorter than both.
        resume_after_ms=(1, 2_500),
        heal_after_ms=(1, 800),
    )
    simulation = OperatorSimulation(
        seed,
        members=draw.randint(1, 4),
        shards=draw.choice((3, 6, 12)),
        mode=mode,
        chaos=chaos,
        loss=draw.choice((0, 0, 0.05)),
        repeat=draw.choice((0, 0.2)),
        delay_ms=draw.choice(((1, 1), (1, 40))),
        replay=operated_queue if mode is QueueLeader else operated,
    )
    # Where it is short, a Leader that slept may lead on, and only the ticket says that it is too late.
    simulation.operators.within_ms = draw.choice((LEASE_MS // 4, LEASE_MS))
    simulation.join()
    simulation.operate(
        steps,
        asked=draw.choice((0.02, 0.05)),
        away=draw.choice((0, 0.01)),
        churn=0.01,
    )
    simulation.settle()
    return simulation


def operated_queue(seed: int, *, steps: int = 1_200) -> OperatorSimulation:
    return operated(seed, mode=QueueLeader, steps=steps)


def stopped(seed: int, *, kind: str, who: str, after: int) -> OperatorSimulation:
    """One call at a node that does not lead; so many steps later a node stops, for longer than a lease.

    `who` is the node that leads, the one that was asked, or the catalog. The operator goes on elsewhere.
    """
    simulation = OperatorSimulation(
        seed,
        members=2,
        shards=3,
        delay_ms=(1, 20),
        replay=f"stopped({seed}, kind={kind!r}, who={who!r}, after={after})",
    )
    simulator = simulation.simulator
    simulation.join()
    simulation.run(150)
    simulator.run_until(lambda _: simulation.leader() is not None, 2_000)
    leader = simulation.leader()
    assert leader is not None
    asked, other = [name for name in simulation.nodes if name != leader.node][:2]
    offset = simulation.chance.choice((None, 0)) if kind == "seek" else None
    simulator.post(asked, Asked(1, Work(kind, offset, simulation.members[0], 3)))
    simulation.run(after)
    stopping = {"leader": leader.node, "asked": asked, "catalog": CATALOG}[who]
    simulator.pause(stopping)
    simulation.operators.come_and_go(simulation.chance, [stopping])
    until_ms = simulator.now_ms() + 3 * LEASE_MS
    simulator.run_until(lambda _: simulator.now_ms() > until_ms - LEASE_MS, 20_000)
    for call, again in enumerate((kind, "seek", "delete"), 2):
        simulator.post(other, Asked(call, Work(again, None, simulation.members[0], 4)))
    simulator.run_until(lambda _: simulator.now_ms() > until_ms, 20_000)
    simulator.resume(stopping)
    simulation.run(200)
    simulation.settle()
    return simulation


def stopped_somewhere(seed: int) -> OperatorSimulation:
    """The same, with everything drawn from the seed."""
    draw = random.Random(f"{seed} stopped")
    return stopped(
        seed,
        kind=draw.choice(KINDS),
        who=draw.choice(("leader", "asked", "catalog")),
        after=draw.randrange(40),
    )
