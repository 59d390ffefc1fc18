"""A whole group in one process: a catalog, nodes that lead, members that read, over a bad net.

`rough(seed)` and `queue(seed)` draw everything from the seed, `fair(seed)` is a net that only delays,
reorders and repeats. The invariants (docs/design/groups.md) are checked after every step, for whoever did
something in it: here those across machines and across steps, while each machine looks at its own state
(`check`).
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import msgspec
from tests.core.group.group_member import Goodbye, Join, Leave, MemberNode
from tests.core.group.group_world import (
    CATALOG,
    OPTIONS,
    CatalogNode,
    LeadingNode,
    World,
)

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Event, TimerFired
from moorline.core.group.events import Kick, LeaderOptions
from moorline.core.group.leader import Leader
from moorline.core.group.queue_leader import QueueLeader
from moorline.core.group.stream_lease import STATUS_MOVES, Status
from moorline.core.stream import Shard, Stream
from moorline.testing import Chaos, MemoryDisk, Simulator, UnreliableNet

SETTLE_STEPS_MAX = 40_000


class GroupSimulation:
    """With `fair` the failure detector is right: then nothing may be held or delivered twice."""

    world_kind: ClassVar[type[World]] = World
    catalog_kind: ClassVar[type[CatalogNode]] = CatalogNode
    node_kind: ClassVar[type[LeadingNode]] = LeadingNode

    def __init__(
        self,
        seed: int,
        *,
        members: int,
        shards: int,
        nodes: int = 3,
        mode: type[Leader] = Leader,
        chaos: Chaos | None = None,
        loss: float = 0.0,
        repeat: float = 0.0,
        delay_ms: tuple[int, int] = (1, 1),
        options: LeaderOptions = OPTIONS,
        fair: bool = False,
        net: type[UnreliableNet] = UnreliableNet,
        replay: Callable[[int], object] | str = "",
    ) -> None:
        self.world = self.world_kind(
            [Shard(f"node{n % nodes}", n) for n in range(shards)], mode, options
        )
        self.chance = random.Random(f"{seed} world")
        self.members = [f"m{n}" for n in range(members)]
        self.nodes = [f"node{n}" for n in range(nodes)]
        self.fair = fair
        self.checked: dict[Shard, int] = defaultdict(int)
        self.statuses: dict[tuple[int, int], Status] = {}
        self.holders: dict[str, set[Stream]] = {}
        self.simulator = Simulator(
            seed,
            net=partial(net, loss=loss, repeat=repeat, delay_ms=delay_ms),
            chaos=chaos,
            check=self.check,
            replay=replay,
            tell_crashes=False,
        )
        self.simulator.add(CATALOG, lambda _disk, _chance: (self.catalog_kind(self.world), []))
        for name in self.nodes:
            self.simulator.add(name, partial(self._node, name))
        for place, name in enumerate(self.members):
            self.simulator.add(name, partial(self._member, name, self.nodes[place % nodes]))

    def _node(
        self, name: str, _disk: MemoryDisk, _chance: random.Random
    ) -> tuple[LeadingNode, Sequence[Event]]:
        return self.node_kind(name, self.world), [TimerFired("look")]

    def _member(
        self, name: str, home: str, _disk: MemoryDisk, chance: random.Random
    ) -> tuple[MemberNode, Sequence[Event]]:
        return MemberNode(name, home, self.world, chance), [TimerFired("pump")]

    # --- driving it -------------------------------------------------------------------------------

    def join(self, *names: str) -> None:
        for name in names or self.members:
            self.simulator.post(name, Join())

    def run(
        self,
        steps: int,
        *,
        publish: float = 0.2,
        churn: float = 0.0,
        retention: float = 0.0,
        depose: float = 0.0,
        kick: float = 0.0,
    ) -> None:
        """Each is the chance that it happens before a step."""
        chance, world = self.chance, self.world
        for _ in range(steps):
            if chance.random() < publish:
                world.publish(chance)
            if chance.random() < churn:
                event = chance.choice((Join(), Join(), Leave(), Goodbye()))
                self.simulator.post(chance.choice(self.members), event)
            if chance.random() < retention:
                world.drop_oldest(chance)
            if chance.random() < depose:
                world.lease_until_ms = 0  # whoever asks leads, and the Leader does not know it
            if chance.random() < kick:
                self.simulator.post(chance.choice(self.nodes), Kick(chance.choice(self.members)))
            self.simulator.step()

    def settle(self, steps_max: int = SETTLE_STEPS_MAX) -> None:
        """No more mishaps: everything must be processed, and shared out evenly."""
        self.simulator.calm()
        self.world.is_calm = True
        for _ in range(8):  # a member that is still saying goodbye does not hear the first
            self.join()
            self.simulator.run(200)
            if self.is_done():
                break
        self.simulator.run_until(lambda _: self.is_done(), steps_max)
        leader = self.leader()
        assert leader is not None
        leader.check()
        assert leader.lending.replan(self.simulator.now_ms()) == [], (
            "I9: a plan of a quiet group is empty"
        )
        self._check_losses()

    def is_done(self) -> bool:
        return not self.world.missing and self.is_balanced() and self.is_committed()

    def leaders(self) -> list[Leader]:
        return [leader for name in self.nodes if (leader := self._leader_at(name)) is not None]

    def _leader_at(self, name: str) -> Leader | None:
        if not self.simulator.is_up(name):
            return None
        node = self.simulator.machine(name)
        assert isinstance(node, LeadingNode)
        return node.leader

    def leader(self) -> Leader | None:
        """The one that the catalog knows."""
        return next((one for one in self.leaders() if one.epoch == self.world.epoch), None)

    def is_committed(self) -> bool:
        cursors = self.world.cursors
        return all(
            shard in cursors and cursors[shard].offset == self.world.ends[shard]
            for shard in self.world.shards
        )

    def is_balanced(self) -> bool:
        """I8: the members' streams differ by one at most, and everything unfinished is assigned."""
        leader = self.leader()
        if leader is None or len(leader.borrowers) != len(self.members):
            return False
        if self.world.mode is not Leader:
            return not leader.leases
        counts = [len(view.leases) for view in leader.borrowers.values()]
        return (
            max(counts) - min(counts) <= 1
            and sum(counts) == len(self.world.shards)
            and all(lease.status is Status.GRANTED for lease in leader.leases.values())
        )

    # --- the invariants ---------------------------------------------------------------------------

    def check(self, _: Simulator) -> None:
        world = self.world
        for name in world.touched:
            if name in self.nodes:
                leader = self._leader_at(name)
                if leader is not None:
                    self._check_leader(leader)
            elif self.fair:
                self._check_holders(name)
        epochs = [leader.epoch for leader in self.leaders()]
        assert len(set(epochs)) == len(epochs), "I12: two Leaders have one epoch"
        assert all(epoch <= world.epoch for epoch in epochs), "I12: a Leader made up its epoch"
        for shard in world.stored:
            self._check_cursor(shard, world.cursors[shard])
        world.touched.clear()
        world.stored.clear()
        if self.fair:
            assert world.processed.total() == len(world.processed), "I6: delivered twice"

    def _check_leader(self, leader: Leader) -> None:
        for number, lease in leader.leases.items():
            self._check_status((leader.epoch, number), lease.status)

    def _check_status(self, key: tuple[int, int], status: Status) -> None:
        # A step may make two moves at once: one that is finished goes back by itself.
        before = self.statuses.get(key, Status.GRANTING)
        if status is not before:
            reached = {before} | STATUS_MOVES[before]
            reached |= {after for step in reached for after in STATUS_MOVES[step]}
            reached |= {after for step in reached for after in STATUS_MOVES[step]}
            assert status in reached, f"I1: {before} became {status}"
            self.statuses[key] = status

    def _check_holders(self, name: str) -> None:
        self.holders[name] = {
            held.stream
            for member in self._member_node(name).shared._agent.members.values()
            for held in member.borrower.leases.values()
        }
        if self.world.mode is Leader:
            for other, streams in self.holders.items():
                if other != name:
                    both = streams & self.holders[name]
                    assert not both, f"I2: {name} and {other} hold {both}"

    def _member_node(self, name: str) -> MemberNode:
        machine = self.simulator.machine(name)
        assert isinstance(machine, MemberNode)
        return machine

    def _check_losses(self) -> None:
        """I18: every message that was dropped before it was done was told, and no other one."""
        world = self.world
        counted = sum(cursor.lost for cursor in world.cursors.values())
        if self.fair:
            done = world.processed.keys() | world.buried.keys()
            assert not world.told.keys() & done, "I18: acknowledged, and told to be lost"
            assert world.told.total() == len(world.told) == counted, "I18: told or counted twice"
        else:
            # One that a member had acknowledged when it died may be told to the next one.
            assert counted <= len(world.told), "I18: counted, and nobody was told"

    def _check_cursor(self, shard: Shard, cursor: Cursor) -> None:
        low = self.checked[shard]
        assert cursor.offset >= low, f"I4: {shard} went back to {cursor.offset}"
        for first, upto in [(low, cursor.offset), *cursor.acked]:
            for number in range(first, upto):
                assert self.world.is_done((shard, number)), (
                    f"I5: {shard} at {number} is committed and nobody acknowledged it"
                )
        self.checked[shard] = cursor.offset


# --- runs drawn from a seed -----------------------------------------------------------------------


def rough(seed: int, *, mode: type[Leader] = Leader, steps: int = 1_500) -> GroupSimulation:
    """All that can go wrong, to a measure that the seed draws; then a calm in which it must end well."""
    draw = random.Random(f"{seed} rough")
    chaos = Chaos(
        crash=draw.choice((0, 0.002, 0.01)),
        pause=draw.choice((0, 0.002, 0.01)),
        cut=draw.choice((0, 0.005)),
        restart_after_ms=(1, 500),
        resume_after_ms=(1, 1_500),
        heal_after_ms=(1, 800),
    )
    simulation = GroupSimulation(
        seed,
        members=draw.randint(1, 8),
        shards=draw.choice((1, 3, 8, 16, 64)),
        mode=mode,
        chaos=chaos,
        loss=draw.choice((0, 0.05, 0.2)),
        repeat=draw.choice((0, 0.2)),
        delay_ms=draw.choice(((1, 1), (1, 40))),
        replay=queue if mode is QueueLeader else rough,
    )
    simulation.world.weights = weights_of(seed, len(simulation.world.shards))
    simulation.join()
    simulation.run(
        steps,
        churn=draw.choice((0, 0.01, 0.05)),
        retention=draw.choice((0, 0, 0.01)),
        depose=draw.choice((0, 0, 0.005)),
        kick=draw.choice((0, 0, 0.005)),
    )
    simulation.settle()
    return simulation


def uneven(seed: int, *, steps: int = 3_000, load_ms: int = 60) -> GroupSimulation:
    """Some streams carry far more than others, and nobody fails: it ends in shares that are near."""
    simulation = _uneven(seed, None, uneven, load_ms)
    simulation.run(steps, publish=1.0)
    return simulation


def uneven_rough(seed: int, *, steps: int = 2_500) -> GroupSimulation:
    """Members exchange streams all the time, and are killed, cut off, kicked and come again meanwhile."""
    chaos = Chaos(
        crash=0.002,
        pause=0.002,
        cut=0.002,
        restart_after_ms=(1, 200),
        resume_after_ms=(1, 800),
        heal_after_ms=(1, 400),
    )
    simulation = _uneven(seed, chaos, uneven_rough, load_ms=10)
    simulation.run(steps, publish=0.5, churn=0.002, retention=0.002, depose=0.001, kick=0.001)
    simulation.settle()
    return simulation


def _uneven(
    seed: int, chaos: Chaos | None, replay: Callable[[int], object], load_ms: int
) -> GroupSimulation:
    draw = random.Random(f"{seed} uneven")
    shards = draw.choice((8, 16, 32))
    simulation = GroupSimulation(
        seed,
        members=draw.randint(2, 5),
        shards=shards,
        chaos=chaos,
        loss=0.02 if chaos else 0,
        repeat=draw.choice((0, 0.3)),
        delay_ms=draw.choice(((1, 1), (1, 20))),
        options=msgspec.structs.replace(OPTIONS, load_ms=load_ms),
        fair=chaos is None,
        replay=replay,
    )
    simulation.world.weights = weights_of(seed, shards)
    simulation.join()
    return simulation


def weights_of(seed: int, shards: int) -> list[int]:
    """How much more is published to some shards than to others."""
    draw = random.Random(f"{seed} weights")
    return [draw.choice((1, 1, 1, 5, 20)) for _ in range(shards)]


def queue(seed: int, *, steps: int = 1_500) -> GroupSimulation:
    return rough(seed, mode=QueueLeader, steps=steps)


def fair(seed: int, *, mode: type[Leader] = Leader, steps: int = 1_500) -> GroupSimulation:
    """Nobody crashes and nothing is lost; messages are late, overtake each other and come twice."""
    draw = random.Random(f"{seed} fair")
    simulation = GroupSimulation(
        seed,
        members=draw.randint(2, 8),
        shards=draw.choice((1, 3, 8, 16, 64)),
        mode=mode,
        repeat=draw.choice((0, 0.3)),
        delay_ms=draw.choice(((1, 1), (1, 20), (1, 40))),
        fair=True,
        replay=fair_queue if mode is QueueLeader else fair,
    )
    simulation.world.weights = weights_of(seed, len(simulation.world.shards))
    simulation.join()
    simulation.run(steps, churn=draw.choice((0.01, 0.05)), retention=draw.choice((0, 0.01, 0.05)))
    simulation.settle()
    return simulation


def fair_queue(seed: int, *, steps: int = 1_500) -> GroupSimulation:
    return fair(seed, mode=QueueLeader, steps=steps)
