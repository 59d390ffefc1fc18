"""Groups as a whole, from seeds: the invariants I1 to I14 hold after every step, and all ends well.

`make sim` runs the same for minutes.
"""

from typing import Any

import pytest
from tests.core.group.group_member import Leave
from tests.core.group.group_simulation import (
    GroupSimulation,
    fair,
    fair_queue,
    queue,
    rough,
    uneven,
    uneven_rough,
)

from moorline.core.group.events import Kick
from moorline.core.group.message import (
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    Revoke,
    Revoked,
    RevokeFinished,
    UpdateProgress,
)
from moorline.core.group.queue_leader import QueueLeader
from moorline.testing import Chaos, UnreliableNet


def long_run(seed: int) -> GroupSimulation:
    """Eight members, 64 streams, everything that can go wrong, and one Leader after another."""
    simulation = GroupSimulation(
        seed,
        members=8,
        shards=64,
        chaos=Chaos(
            crash=0.003,
            pause=0.003,
            cut=0.003,
            restart_after_ms=(1, 500),
            resume_after_ms=(1, 1_500),
            heal_after_ms=(1, 800),
        ),
        loss=0.05,
        repeat=0.1,
        delay_ms=(1, 40),
        replay=long_run,
    )
    simulation.join()
    simulation.run(30_000, churn=0.01, retention=0.001, depose=0.002, kick=0.001)
    simulation.settle()
    return simulation


@pytest.mark.slow
def test_thirty_thousand_steps_of_mishaps() -> None:
    simulation = long_run(1)
    assert simulation.simulator.steps >= 30_000
    assert simulation.world.epoch > 5, "one Leader after another"
    assert simulation.world.processed.total() > 500


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 24))]
)
def test_shared_streams(seed: int) -> None:
    rough(seed, steps=1_000)


@pytest.mark.parametrize(
    "seed", [*range(1), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))]
)
def test_a_shared_queue(seed: int) -> None:
    queue(seed, steps=700)


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 16))]
)
def test_i2_i6_nothing_is_held_or_delivered_twice_while_nobody_fails(seed: int) -> None:
    simulation = fair(seed, steps=1_000)
    assert simulation.world.duplicates() == 0
    assert simulation.world.epoch == 1


@pytest.mark.parametrize(
    "seed", [*range(1), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))]
)
def test_i6_no_message_of_a_queue_is_delivered_twice_while_nobody_fails(seed: int) -> None:
    simulation = fair_queue(seed, steps=700)
    assert simulation.world.duplicates() == 0


@pytest.mark.slow
def test_x21_poison_is_delivered_so_often_and_then_buried() -> None:
    for simulation in (fair(0), fair(1, mode=QueueLeader)):
        world = simulation.world
        poison = [offset for offset in world.buried if world.is_poison(offset)]
        assert poison
        assert {world.rejected[offset] for offset in poison} == {world.options.deliveries_max}


# --- streams that carry more than others ----------------------------------------------------------


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 12))]
)
def test_x1_streams_are_exchanged_until_members_carry_about_the_same(seed: int) -> None:
    simulation = uneven(seed)
    check_near(simulation)
    assert simulation.world.exchanged <= len(simulation.world.shards)
    assert simulation.world.duplicates() == 0


def check_near(simulation: GroupSimulation) -> None:
    leader, world = simulation.leader(), simulation.world
    assert leader is not None
    weights = dict(zip(world.shards, world.weights, strict=True))
    held = leader.lending.sharing.held()
    carried = [sum(weights[shard] for shard in shards) for shards in held.values()]
    mean = sum(carried) / len(carried)
    # What was measured is not quite what was meant: so a little more than X1 says.
    is_near = max(carried) <= 1.5 * mean
    assert is_near or max(carried) - min(carried) <= 1.5 * max(world.weights), carried


def test_x1_by_number_alone_members_carry_what_comes() -> None:
    """What the test above would find, were nothing exchanged."""
    simulation = uneven(2, load_ms=0)
    assert simulation.world.exchanged == 0
    with pytest.raises(AssertionError):
        check_near(simulation)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (3, 4, 9, 10, 11))]
)
def test_streams_are_exchanged_while_everything_goes_wrong(seed: int) -> None:
    assert uneven_rough(seed).world.exchanged > 0


# --- each message lost once -----------------------------------------------------------------------


class Forgetful(UnreliableNet):
    """Loses the first message of one kind from each to each, and nothing else."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.kind: type = type(None)
        self.forgotten: set[tuple[str, str]] = set()

    def send(self, source: str, target: str, message: Any, now_ms: int) -> int:
        if isinstance(message, self.kind) and (source, target) not in self.forgotten:
            self.forgotten.add((source, target))
            return 0
        return super().send(source, target, message, now_ms)


@pytest.mark.parametrize(
    "kind",
    [
        LeaderWanted,
        LeaderConnectResponse,
        Grant,
        Revoke,
        Revoked,
        RevokeFinished,
        Invalidate,
        UpdateProgress,
        Ping,
        PingResponse,
        Disconnect,
    ],
)
def test_x9_each_message_lost_once(kind: type) -> None:
    simulation = GroupSimulation(1, members=4, shards=8, net=Forgetful)
    net = simulation.simulator.net
    assert isinstance(net, Forgetful)
    net.kind = kind
    for name in simulation.members:
        simulation.join(name)
        simulation.run(300)
    simulation.simulator.post("m0", Leave())
    for name in simulation.nodes:
        simulation.simulator.post(name, Kick("m1"))
    simulation.run(300)
    simulation.settle()
    assert net.forgotten


# --- seeds that found a mistake -------------------------------------------------------------------


@pytest.mark.slow
def test_seed_14_a_lost_report_is_made_again() -> None:
    """The last report of a stream was lost, and the group's place stayed behind for ever."""
    rough(14)


@pytest.mark.slow
def test_seed_1_of_a_queue_what_one_member_rejected_goes_to_another() -> None:
    """The member with most room was the one that had rejected the message, and nobody else was asked."""
    queue(1)
    fair_queue(1)


@pytest.mark.slow
def test_seed_4_a_revoke_that_meets_its_grant_is_no_disagreement() -> None:
    """A lease that was revoked before its grant came was taken for one that the Borrower must have."""
    fair(4)


def test_seed_2_a_late_grant_of_a_lease_that_is_over_begins_nothing() -> None:
    """A grant that came again after its lease was over made two owners of one stream."""
    fair(2)


def test_two_runs_of_a_seed_are_the_same() -> None:
    first, second = rough(3, steps=500), rough(3, steps=500)
    assert first.simulator.transcript.digest() == second.simulator.transcript.digest()
