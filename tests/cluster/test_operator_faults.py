"""What operators ask of groups while nodes are stopped or away: done, or not done and never will be."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator

import pytest
from tests.cluster.running import (
    PATIENT,
    Got,
    Nodes,
    all_done,
    join,
    led_by,
    numbered,
    publish,
    stored_cursors,
)
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.core.stream import Shard
from moorline.errors import CallFailed, ConnectionLost, OutcomeUnknown
from moorline.limits import NODE_GONE_MS

pytestmark = [pytest.mark.process, pytest.mark.slow]

LEASE_S = 5
ONE_SHARD = PATIENT | {"streams.shards": 1}


def group_of(name: str) -> str:
    return f"$shared/{name}/{name}"


@contextlib.asynccontextmanager
async def stopped(nodes: Nodes, name: str) -> AsyncIterator[None]:
    nodes[name].signal(signal.SIGSTOP)
    try:
        yield
    finally:
        nodes[name].signal(signal.SIGCONT)


async def free(moor: Moor, *groups: str) -> None:
    """Waits until the leases of a Leader that says nothing are over."""

    async def are_free() -> bool:
        found = {one.name: one.leader for one in await moor.groups()}
        return all(found[group] != "a" for group in groups)

    await until(are_free, within_s=4 * LEASE_S, what="the leases are over")


@pytest.mark.long
async def test_what_was_answered_as_failed_has_no_effect_when_the_leader_wakes(
    nodes: Nodes,
) -> None:
    """A13: a call that is passed on and heard behind its deadline, in another epoch."""
    a, b = await nodes.start("a", "b", settings=ONE_SHARD)
    deleted, sought, kicked, changed, last = map(
        group_of, ("deleted", "sought", "kicked", "changed", "last")
    )
    got = Got()
    async with moorline.connect(b.address, reconnect=False) as moor:
        leading = [await join(a, one, got, "on a") for one in (deleted, sought, kicked, changed)]
        for one in (deleted, sought, kicked, changed):
            await led_by(b, one, "a")
        followers = [await join(b, one, got, "on b") for one in (sought, kicked)]
        old = numbered("old", 10)
        await publish(b, "sought", old)
        await got.has(old)
        await all_done(b, sought)
        member = await member_of(moor, kicked, "b/")

        async with stopped(nodes, "a"):
            answers = await asyncio.gather(
                moor.group(deleted).delete(),
                also(b.address, sought, "seek", "beginning"),
                also(b.address, kicked, "kick", member),
                also(b.address, changed, "change", 1),
                return_exceptions=True,
            )
            for answer in answers:
                assert isinstance(answer, CallFailed), answer
                assert not isinstance(answer, OutcomeUnknown)
                assert "nothing was done, and nothing will be" in str(answer)
            await free(moor, deleted, sought, kicked, changed)
            # The operator goes on with what is there: another group, another place.
            await moor.group(deleted).delete()
            assert await moor.group(deleted).create()
            await moor.group(sought).seek("now")
            await led_by(b, kicked, "b")
            assert await member_of(moor, kicked, "b/") == member, "it is a member as before"
            before = len(got.messages)

        # What was asked of the node while it was stopped is answered by the time that it has answered this.
        leading.append(await join(a, last, got, "on a"))
        await led_by(b, last, "a")
        await until(lambda: is_sought(moor, last), what="an answer of the node that was stopped")

        assert deleted in [one.name for one in await moor.groups()]
        assert (await moor.group(changed).info()).group.deliveries_max != 1
        new = numbered("new", 10)
        await publish(b, "sought", new)
        await got.has(new)
        assert set(got.bodies()[before:]) == set(new), "it was moved to now, not to the beginning"
        assert not followers[1].is_over
        assert await member_of(moor, kicked, "b/") == member
    for each in (*leading, *followers):
        await each.leave()


async def is_sought(moor: Moor, group: str) -> bool:
    """A link that was given up meanwhile is made anew in a moment."""
    try:
        await moor.group(group).seek("now")
    except CallFailed:
        return False
    return True


async def also(address: str, group: str, what: str, value: object) -> None:
    """The calls of one connection are answered in turn: each has its own."""
    async with moorline.connect(address, reconnect=False) as moor:
        named = moor.group(group)
        match what, value:
            case "seek", str():
                await named.seek(value)
            case "kick", str():
                await named.kick(value)
            case "change", int():
                await named.change(deliveries_max=value)


async def member_of(moor: Moor, group: str, prefix: str) -> str:
    """The member whose name begins so, when it is there."""
    found: list[str] = []

    async def is_there() -> bool:
        members = (await moor.group(group).info()).members
        found[:] = [one.member for one in members if one.member.startswith(prefix)]
        return bool(found)

    await until(is_there, what=f"a member {prefix}")
    return found[0]


async def test_a_seek_counts_for_a_node_that_is_away(nodes: Nodes) -> None:
    """It is back with all that it had, and every group is where its last seek said, or where it began."""
    a, b = await nodes.start("a", "b", settings=ONE_SHARD)
    topic = "orders/eu"
    names = {
        what: f"$shared/{what}/{topic}" for what in ("now", "beginning", "time", "offset", "last")
    }
    bodies = numbered("m", 10)
    async with moorline.connect(a.address, reconnect=False) as moor:
        for what in ("now", "time", "offset", "last"):
            await moor.group(names[what]).create()
        await publish(b, topic, bodies[:5])
        await asyncio.to_thread(next_microsecond)
        middle_us = time.time_ns() // 1_000
        await publish(b, topic, bodies[5:])
        await moor.group(names["beginning"]).create()
        b.kill()
        await until(
            lambda: "a node is gone" in a.errors,
            within_s=NODE_GONE_MS / 1_000 + 20,
            what="it is forgotten",
        )
        await moor.group(names["now"]).seek("now")
        await moor.group(names["beginning"]).seek("beginning")
        await moor.group(names["time"]).seek(f"time:{middle_us}")
        await moor.group(names["offset"]).seek("offset:7")
        await moor.group(names["last"]).seek("now")
        await moor.group(names["last"]).seek("beginning")
        await moor.group(names["last"]).seek("now")
        names["begins"] = f"$shared/begins/{topic}"
        await moor.group(names["begins"]).create(start="offset:4")
        for name in names.values():
            assert Shard("b", 0) not in await stored_cursors(nodes.dsn, name)
    (b,) = await nodes.start("b", settings=ONE_SHARD)
    await publish(b, topic, [b"after"])
    expected = {
        "now": [],
        "beginning": bodies,
        "time": bodies[5:],
        "offset": bodies[7:],
        "last": [],
        "begins": bodies[4:],
    }
    for what, name in names.items():
        got = Got()
        member = await join(a, name, got, "on a")
        await got.has([b"after"])
        await member.leave()
        assert got.bodies() == [*expected[what], b"after"], what


def next_microsecond() -> None:
    """Until the clock has moved: what is stored after it has another time."""
    begun = time.time_ns() // 1_000
    while time.time_ns() // 1_000 <= begun:
        pass


async def test_a_node_that_was_stopped_takes_up_nothing_of_a_client_that_has_gone(
    nodes: Nodes,
) -> None:
    (a,) = await nodes.start("a", settings=ONE_SHARD)
    name = group_of("gone")
    async with moorline.connect(a.address, reconnect=False) as moor:
        await moor.group(name).create()
        leaving = await moorline.connect(a.address, reconnect=False)
        async with stopped(nodes, "a"):
            asked = asyncio.create_task(leaving.group(name).delete())
            for _ in range(5):
                await asyncio.sleep(0)  # it is written within a few turns, and waits at the node
            assert leaving._caller._transport is not None
            leaving._caller._transport.close()
            with pytest.raises(ConnectionLost, match="may have been done or not"):
                await asked
        # Whatever it has heard before this one is done with.
        await moor.group(group_of("other")).create()
        await moor.group(group_of("other")).delete()
        assert name in [one.name for one in await moor.groups()]
