"""Several nodes without faults: members, publishers and operators anywhere, nodes that come later."""

import asyncio

import pytest
from tests.cluster.running import (
    PATIENT,
    Got,
    Nodes,
    all_done,
    join,
    lag_of,
    led_by,
    members,
    numbered,
    publish,
)
from tests.waiting import until

import moorline
from moorline.errors import NotFound

pytestmark = pytest.mark.process


WITHIN_S = 120
"""For what takes a few seconds on a machine that has nothing else to do."""


def group_of(topic: str) -> str:
    """The group of a test that publishes to that topic."""
    return f"$shared/billing/{topic}"


async def test_f12_members_on_two_nodes_and_publishers_on_a_third(calm: Nodes) -> None:
    a, b, c = calm["a"], calm["b"], calm["c"]
    name = group_of("f12/members")
    got = Got()
    async with members(join(a, name, got, "on a"), join(b, name, got, "on b")):
        first = numbered("first", 500)
        await publish(c, "f12/members", first)
        await got.has(first)
        await all_done(c, name)
        async with moorline.connect(c.address, reconnect=False) as moor:
            info = await moor.group(name).info()
        assert sorted(member.streams for member in info.members) == [6, 6]
    got.is_exactly(first)


async def test_streams_of_a_node_that_comes_later_are_found_and_granted(nodes: Nodes) -> None:
    (a,) = await nodes.start("a", settings=PATIENT)
    name = group_of("orders/eu")
    got = Got()
    async with members(join(a, name, got, "on a")):
        await publish(a, "orders/eu", numbered("a", 50))
        (b,) = await nodes.start("b", settings=PATIENT)
        await publish(b, "orders/eu", numbered("b", 50))
        everything = numbered("a", 50) + numbered("b", 50)
        await got.has(everything)
        async with moorline.connect(b.address, reconnect=False) as moor:
            info = await moor.group(name).info()
        assert {cursor.node for cursor in info.cursors} == {"a", "b"}
        assert {cursor.status for cursor in info.cursors} == {"granted"}
    got.is_exactly(everything)


async def test_a_large_backlog_of_a_remote_stream_is_read_whole(calm: Nodes) -> None:
    a, b = calm["a"], calm["b"]
    name = group_of("remote/streams/#")
    count = 60_000
    async with (
        moorline.connect(a.address, reconnect=False) as reader,
        moorline.connect(b.address, reconnect=False) as writer,
    ):
        subscription = await reader.subscribe(name, window=16_384)
        records = [moorline.record(f"remote/streams/{n % 50}", b"x" * 100) for n in range(count)]
        await writer.publish_all(records)
        seen = 0
        async with asyncio.timeout(WITHIN_S):
            async for batch in subscription.batches():
                seen += len(batch.messages)
                await batch.ack()
                if seen >= count:
                    break
    assert seen == count
    await all_done(b, name)


async def test_long_polls_bring_single_messages(calm: Nodes) -> None:
    a, b = calm["a"], calm["b"]
    name = group_of("long/polls")
    got = Got()
    async with (
        members(join(a, name, got, "on a")),
        moorline.connect(b.address, reconnect=False) as moor,
    ):
        await moor.publish("long/polls", b"warm")
        await got.has([b"warm"])
        for number in range(20):
            body = b"%d" % number
            await moor.publish("long/polls", body)
            await got.has([body])


async def test_operators_may_speak_to_any_node(calm: Nodes) -> None:
    a, b = calm["a"], calm["b"]
    name = group_of("operators/may")
    got = Got()
    member = await join(a, name, got, "on a")
    await led_by(b, name, "a")
    sent = numbered("m", 20)
    await publish(b, "operators/may", sent)
    await got.has(sent)
    await all_done(b, name)
    async with moorline.connect(b.address, reconnect=False) as moor:
        group = moor.group(name)
        info = await group.info()
        assert (info.group.leader, len(info.members)) == ("a", 1)
        await group.change(deliveries_max=9)
        assert (await group.info()).group.deliveries_max == 9
        await group.seek("beginning")
        await until(lambda: len(got.messages) == 40, what="everything again")
        with pytest.raises(NotFound, match="no member"):
            await group.kick("nobody")
        await group.kick(info.members[0].member)
        await until(lambda: member.is_over, what="the member is told")
        await group.delete()
        with pytest.raises(NotFound):
            await group.info()
        assert name not in [group.name for group in await moor.groups()]
    await member.leave()


async def test_members_elsewhere_hear_that_their_group_is_deleted(calm: Nodes) -> None:
    a, b, c = calm["a"], calm["b"], calm["c"]
    name = group_of("members/elsewhere")
    got = Got()
    async with members(
        join(a, name, got, "on a"), join(b, name, got, "on b"), join(c, name, got, "on c")
    ) as joined:
        async with moorline.connect(c.address, reconnect=False) as moor:
            await moor.group(name).delete()
        await until(lambda: all(one.is_over for one in joined), what="all are told")
    async with moorline.connect(a.address, reconnect=False) as moor:
        assert name not in [group.name for group in await moor.groups()]


async def test_i14_groups_do_not_affect_each_other(calm: Nodes) -> None:
    a, b = calm["a"], calm["b"]
    name = group_of("i14/groups")
    other = "$shared/audit/i14/groups"
    got, quiet = Got(), Got()
    async with members(join(a, other, quiet, "calm on a"), join(b, other, quiet, "calm on b")):
        noisy = await join(b, name, got, "noisy", acks=False, window=4)
        sent: list[bytes] = []
        for round_number in range(6):
            bodies = numbered(f"round{round_number}", 50)
            await publish(a, "i14/groups", bodies)
            sent += bodies
            async with moorline.connect(a.address, reconnect=False) as moor:
                group = moor.group(name)
                match round_number:
                    case 1:
                        await group.seek("beginning")
                    case 2:
                        noisy.moor._caller.abort()
                    case 3:
                        await noisy.leave()
                        noisy = await join(a, name, got, "noisy again")
                    case 4:
                        await group.delete()
        await quiet.has(sent)
        await all_done(b, other)
        await noisy.leave()
    quiet.is_exactly(sent)


async def test_x18_200_members_join_and_leave(calm: Nodes) -> None:
    a, b, c = calm["a"], calm["b"], calm["c"]
    name = group_of("x18/200")
    got = Got()
    async with members(join(a, name, got, "steady", window=1_000)) as (steady,):
        before = numbered("before", 200)
        await publish(b, "x18/200", before)

        async def visit(number: int) -> None:
            async with moorline.connect((a, b, c)[number % 3].address, reconnect=False) as moor:
                await moor.subscribe(name)

        await asyncio.gather(*(visit(number) for number in range(200)))
        after = numbered("after", 200)
        await publish(c, "x18/200", after)
        # Well before anybody's silence is noticed: all who came have said that they go.
        await got.has(before + after)
        await all_done(b, name)

        async def is_alone() -> bool:
            info = await steady.moor.group(name).info()
            held = [cursor for cursor in info.cursors if cursor.status == "granted"]
            return len(info.members) == 1 and len(held) == 12

        await until(is_alone, what="the steady member has all streams")
        assert await lag_of(c, name) == 0
    got.is_exactly(before + after)
