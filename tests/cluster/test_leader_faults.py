"""Leaders that die, hang or are cut off: another one leads, nothing is lost, nothing stored is taken back."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator

import pytest
from tests.cluster.proxy import CatalogProxy
from tests.cluster.running import (
    LEASE_MS,
    SMALL,
    Got,
    Nodes,
    Publisher,
    all_done,
    all_stored,
    in_order,
    is_stored,
    join,
    leader_of,
    led_by,
    members,
    metric,
    numbered,
    publish,
    stored_cursors,
)
from tests.process.nodes import NodeProcess
from tests.waiting import until

import moorline

pytestmark = pytest.mark.process

GROUP = "$shared/billing/orders/#"
WINDOW = 16
STEADY = SMALL | {"groups.lease_ms": 1_500, "groups.member_timeout_ms": 5_000}
"""For bounds on what comes twice: only what the test does is a fault, and not a machine that is busy."""


@pytest.fixture
async def proxy(nodes: Nodes) -> AsyncIterator[CatalogProxy]:
    async with CatalogProxy(nodes.dsn) as proxy:
        yield proxy


async def test_the_cluster_loses_nothing_when_a_node_dies_in_mid_flow(nodes: Nodes) -> None:
    """Members and publishers on three nodes; the one that leads is killed, and comes back later."""
    await nodes.start("a", "b", "c", settings=STEADY)
    got = Got()
    doomed = [await join(nodes["b"], GROUP, got, f"b{n}", window=WINDOW) for n in range(2)]
    await led_by(nodes["a"], GROUP, "b")
    steady = [
        await join(nodes[name], GROUP, got, f"{name}{n}", window=WINDOW)
        for name in ("a", "c")
        for n in range(2)
    ]
    publishers = [Publisher(f"from-{name}", "orders/eu") for name in ("a", "b", "c")]
    publishing = [
        asyncio.create_task(one.run(lambda name=name: nodes.alive()[name].address))  # type: ignore[misc]
        for one, name in zip(publishers, ("a", "b", "c"), strict=True)
    ]
    await until(lambda: len(got.messages) > 500, what="a flow")

    nodes["b"].kill()
    # Nobody can claim the group before the lease is over: this is what the next Leader begins with.
    stored = await stored_cursors(nodes.dsn, GROUP)
    before = [message for _, message in got.messages]
    await led_by(nodes["a"], GROUP, "a", "c")
    reached = len(got.messages)
    await until(lambda: len(got.messages) > reached + 300, what="a flow without the node")

    await nodes.start("b", settings=STEADY)
    again = [await join(nodes["b"], GROUP, got, f"b{n} again", window=WINDOW) for n in range(2)]
    await until(lambda: bool(got.of("b0 again") + got.of("b1 again")), what="a part for those back")
    came_back = len(publishers[1].sent)
    await until(lambda: len(publishers[1].sent) > came_back + 50, what="its publisher goes on")
    for one in publishers:
        one.stop()
    await asyncio.gather(*publishing)
    sent = [body for one in publishers for body in one.sent]
    await got.has(sent)
    await all_done(nodes["a"], GROUP)
    for member in (*doomed, *steady, *again):
        await member.leave()

    # A publish that the kill left without an answer is tried again: it is stored once.
    assert set(got.bodies()) == set(sent)
    in_order(got.bodies())
    repeated = got.repeated(len(before))
    assert not [message for message in repeated if is_stored(stored, message)]
    # In flight at the kill: what a member had in its window, and what was acknowledged and not stored yet.
    unstored = [message for message in before if not is_stored(stored, message)]
    bound = len(unstored) + (len(doomed) + len(steady)) * WINDOW
    assert len(repeated) <= bound, f"{len(repeated)} deliveries again, {bound} were in flight"


async def test_x3_another_node_leads_when_the_lease_of_one_that_was_killed_is_over(
    nodes: Nodes,
) -> None:
    await nodes.start("a", "b")
    got = Got()
    doomed = await join(nodes["a"], GROUP, got, "on a")
    await led_by(nodes["b"], GROUP, "a")
    async with members(join(nodes["b"], GROUP, got, "on b")):
        first, second = numbered("first", 100), numbered("second", 100)
        await publish(nodes["b"], "orders/eu", first)
        await got.has(first)
        await all_stored(nodes.dsn, GROUP, got)
        nodes["a"].kill()
        # Two seconds on a quiet machine: the lease is 0.6 s. A busy one may take its time.
        await led_by(nodes["b"], GROUP, "b")
        await publish(nodes["b"], "orders/eu", second)
        await got.has(second)
    got.is_all(first + second, once=first)
    await doomed.leave()


async def test_x4_a_leader_killed_before_it_first_committed(nodes: Nodes) -> None:
    await nodes.start("a", "b")
    got = Got()
    sent = numbered("m", 40)
    async with moorline.connect(nodes["b"].address, reconnect=False) as moor:
        await moor.group(GROUP).create()
    await publish(nodes["b"], "orders/eu", sent)
    doomed = await join(nodes["a"], GROUP, got, "on a", acks=False)
    await until(lambda: len(got.messages) > 0, what="a Leader that has granted")
    nodes["a"].kill()
    cursors = await stored_cursors(nodes.dsn, GROUP)
    assert not [message for _, message in got.messages if is_stored(cursors, message)]
    later = Got()
    async with members(join(nodes["b"], GROUP, later, "on b")):
        await later.has(sent)
        await all_done(nodes["b"], GROUP)
    assert set(later.bodies()) == set(sent)
    # What is done never comes again, whoever leads.
    more, fresh = numbered("more", 8), Got()
    async with members(join(nodes["b"], GROUP, fresh, "fresh")):
        await publish(nodes["b"], "orders/eu", more)
        await fresh.has(more)
    assert set(fresh.bodies()) == set(more)
    await doomed.leave()


async def test_x5_the_leaders_node_and_half_of_the_members_are_lost_together(nodes: Nodes) -> None:
    await nodes.start("a", "b", "c", settings=STEADY)
    got = Got()
    doomed = [await join(nodes["a"], GROUP, got, f"a{n}", window=WINDOW) for n in range(3)]
    await led_by(nodes["b"], GROUP, "a")
    async with members(*(join(nodes["b"], GROUP, got, f"b{n}", window=WINDOW) for n in range(3))):
        publisher = Publisher("steady", "orders/eu", keys=12)
        publishing = asyncio.create_task(publisher.run(lambda: nodes["c"].address))
        await until(lambda: len(got.messages) > 200, what="flow")
        nodes["a"].kill()
        stored = await stored_cursors(nodes.dsn, GROUP)
        before = [message for _, message in got.messages]
        await led_by(nodes["c"], GROUP, "b", "c")
        count = len(publisher.sent)
        await until(lambda: len(publisher.sent) > count + 100, what="more flow")
        publisher.stop()
        await publishing
        await got.has(publisher.sent)
        await all_done(nodes["c"], GROUP)
    in_order(got.bodies())
    assert set(got.bodies()) == set(publisher.sent)
    repeated = got.repeated(len(before))
    assert not [message for message in repeated if is_stored(stored, message)]
    unstored = [message for message in before if not is_stored(stored, message)]
    assert len(repeated) <= len(unstored) + 6 * WINDOW
    for member in doomed:
        await member.leave()


async def test_x6_the_late_commit_of_a_leader_that_was_cut_off_is_refused(
    nodes: Nodes, proxy: CatalogProxy
) -> None:
    """Its statement is on its way while another node claims, and comes to the catalog after that."""
    await nodes.start("a", dsn=proxy.dsn)
    await nodes.start("b", "c")
    got, later = Got(), Got()
    holder = await join(nodes["a"], GROUP, got, "on a", acks=False)
    await led_by(nodes["b"], GROUP, "a")
    sent = numbered("m", 40)
    await publish(nodes["c"], "orders/eu", sent)
    await got.has(sent)

    proxy.hold()
    await holder.ack_all()
    await until(lambda: proxy.held_bytes > 0, what="the commit is on its way")
    async with members(join(nodes["b"], GROUP, later, "on b", acks=False)) as (successor,):
        await led_by(nodes["c"], GROUP, "b")
        await later.has(sent)
        proxy.release()
        await until(
            lambda: (
                metric(nodes["a"], "group_fenced_total") + metric(nodes["a"], "group_lapsed_total")
                > 0
            ),
            what="the first Leader has ended",
        )
        # Whatever it had sent has been answered by now.
        await until(lambda: proxy.is_drained, what="the late commit was answered")
        stored = await stored_cursors(nodes.dsn, GROUP)
        assert not [message for _, message in got.messages if is_stored(stored, message)]
        assert await leader_of(nodes["c"], GROUP) == "b"
        await successor.ack_all()
        await holder.leave()
        await all_done(nodes["c"], GROUP)
    assert set(later.bodies()) | set(got.bodies()) == set(sent)


def ended(node: NodeProcess) -> float:
    """How often this node has led, and leads no more."""
    return metric(node, "group_fenced_total") + metric(node, "group_lapsed_total")


async def test_x7_a_leader_that_was_stopped_resumes_and_ends(nodes: Nodes) -> None:
    await nodes.start("a", "b", "c")
    got = Got()
    frozen = await join(nodes["a"], GROUP, got, "on a", window=WINDOW)
    await led_by(nodes["b"], GROUP, "a")
    async with members(join(nodes["b"], GROUP, got, "on b", window=WINDOW)):
        publisher = Publisher("steady", "orders/eu", keys=8)
        publishing = asyncio.create_task(publisher.run(lambda: nodes["c"].address))
        await until(lambda: len(got.messages) > 100, what="flow")
        # On a busy machine it may have lost its lease of 0.6 s before, and got it again.
        before = ended(nodes["a"])
        nodes["a"].signal(signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            await led_by(nodes["c"], GROUP, "b", "c")
            count = len(got.messages)
            await until(lambda: len(got.messages) > count + 100, what="flow without it")
            await until(lambda: time.monotonic() - stopped > 2 * LEASE_MS / 1_000)
        finally:
            nodes["a"].signal(signal.SIGCONT)
        await until(lambda: ended(nodes["a"]) > before, what="it is fenced and ends")
        assert "leads no more" in nodes["a"].errors
        assert await leader_of(nodes["c"], GROUP) in ("b", "c")
        publisher.stop()
        await publishing
        await got.has(publisher.sent)
        await all_done(nodes["c"], GROUP)
    in_order(got.bodies())
    assert set(got.bodies()) == set(publisher.sent)
    await frozen.leave()


async def test_x7_a_leader_that_was_stopped_alone_leads_again(nodes: Nodes) -> None:
    (a,) = await nodes.start("a")
    got = Got()
    async with members(join(a, GROUP, got, "on a", window=WINDOW)):
        first, second = numbered("first", 50), numbered("second", 50)
        await publish(a, "orders/eu", first)
        await all_stored_and_got(nodes, got, first)
        for _ in range(2):
            a.signal(signal.SIGSTOP)
            stopped = time.monotonic()
            await until(lambda since=stopped: time.monotonic() - since > 2 * LEASE_MS / 1_000)  # type: ignore[misc]
            a.signal(signal.SIGCONT)
        await publish(a, "orders/eu", second)
        await all_stored_and_got(nodes, got, second)
    got.is_all(first + second, once=first)


async def all_stored_and_got(nodes: Nodes, got: Got, bodies: list[bytes]) -> None:
    await got.has(bodies)
    await all_stored(nodes.dsn, GROUP, got)


async def test_a_node_stops_in_time_and_its_groups_go_on_elsewhere_at_once(nodes: Nodes) -> None:
    settings = {"groups.lease_ms": 600_000, "groups.rebalance_ms": 10}
    await nodes.start("a", "b", settings=settings)
    got = Got()
    leaving = await join(nodes["a"], GROUP, got, "on a")
    await led_by(nodes["b"], GROUP, "a")
    async with members(join(nodes["b"], GROUP, got, "on b")):
        first, second = numbered("first", 50), numbered("second", 50)
        await publish(nodes["b"], "orders/eu", first)
        await got.has(first)
        await all_done(nodes["b"], GROUP)
        assert await asyncio.to_thread(nodes["a"].stop) == 0
        # Its lease of ten minutes does not stand in the way: it was given up.
        await led_by(nodes["b"], GROUP, "b")
        await publish(nodes["b"], "orders/eu", second)
        await got.has(second)
        await all_done(nodes["b"], GROUP)
    got.is_exactly(first + second)
    await leaving.leave()
