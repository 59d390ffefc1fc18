"""Durable sessions: their places outlive the client, the connection, and the node."""

import asyncio
from pathlib import Path

import asyncpg
import msgspec
import pytest
from tests.process.nodes import NodeProcess
from tests.topics.real_node import Connect
from tests.topics.scenes import (
    SMALL,
    Reader,
    described,
    die,
    each_once,
    is_shared_by,
    mistakes,
    numbered,
    publish_all,
)
from tests.waiting import until

import moorline

pytestmark = pytest.mark.process


async def rows(node: NodeProcess, query: str, *values: object) -> list[asyncpg.Record]:
    """What the node's catalog says."""
    catalog = await asyncpg.connect(
        host=str((node.data / "run").resolve()), user="postgres", database="postgres"
    )
    try:
        found: list[asyncpg.Record] = await catalog.fetch(query, *values)
        return found
    finally:
        await catalog.close()


async def done_by_reader(node: NodeProcess) -> list[int]:
    """How many messages each reader has done, as it is stored; of streams that begin at 0."""
    done: dict[int, int] = {}
    for row in await rows(node, "select reader, offset_low, acked from moorline.progress"):
        ranges = msgspec.msgpack.decode(row["acked"]) if row["acked"] else []
        count = row["offset_low"] + sum(upto - first for first, upto in ranges)
        done[row["reader"]] = done.get(row["reader"], 0) + count
    return list(done.values())


async def test_a_session_goes_on_where_it_was_when_its_client_died(
    connect: Connect, name: str
) -> None:
    moor, first = await connect(), await connect()
    assert await first.session(name) == []
    reader = Reader(await first.subscribe(f"{name}/#"), acks=False)
    await publish_all(moor, name, numbered(40))
    await until(lambda: len(reader.got) == 40)
    # Some in the middle are done, some are not.
    done = reader.got[::3]
    for message in done:
        await message.ack()
    await first.echo(b"")
    await die(first)
    await publish_all(moor, name, numbered(10, first=40))
    second = await connect()
    (resumed,) = await second.session(name)
    assert resumed.filter == f"{name}/#"
    again = Reader(resumed)
    rest = set(numbered(50)) - {message.body for message in done}
    await until(lambda: each_once([again], rest))
    await second.close()
    third = await connect()
    (nothing,) = await third.session(name)
    await moor.publish(f"{name}/0", b"new")
    new = await nothing.get(10)
    assert new is not None
    assert new.body == b"new"


async def test_a_second_connection_takes_the_session_over(connect: Connect, name: str) -> None:
    moor, first, second = await connect(), await connect(), await connect()
    await first.session(name)
    private = Reader(await first.subscribe(f"{name}/#"))
    shared = Reader(await first.subscribe(f"$shared/{name}/{name}/#"))
    await described(moor, f"$shared/{name}/{name}/#", is_shared_by(1))
    await publish_all(moor, name, numbered(20))
    await until(lambda: len(private.got) == len(shared.got) == 20)
    subscriptions = await second.session(name)
    assert {one.filter for one in subscriptions} == {f"{name}/#", f"$shared/{name}/{name}/#"}
    await until(lambda: private.ended == shared.ended == "TAKEN_OVER")
    readers = [Reader(subscription) for subscription in subscriptions]
    await described(moor, f"$shared/{name}/{name}/#", is_shared_by(1))
    await publish_all(moor, name, numbered(20, first=20))
    # What was acknowledged before is not delivered again, and nobody is to blame.
    for reader in readers:
        await reader.has(numbered(20, first=20))
        assert {message.deliveries for message in reader.got} == {1}
    with pytest.raises(moorline.ConnectionLost):
        await first.echo(b"")


async def test_handed_on_under_load_a_session_repeats_nothing_that_was_acknowledged(
    connect: Connect, name: str
) -> None:
    moor, first = await connect(), await connect()
    await first.session(name)
    await first.subscribe(f"{name}/#")
    bodies: list[bytes] = []
    is_over = asyncio.Event()

    async def publish() -> None:
        while not is_over.is_set():
            more = numbered(20, first=len(bodies))
            bodies.extend(more)
            await publish_all(moor, name, more)

    publishing = asyncio.create_task(publish())
    readers: list[Reader] = []
    for turn in range(12):
        holder = await connect()
        (subscription,) = await holder.session(name)
        readers.append(Reader(subscription))
        await readers[-1].until(lambda one: len(one.got) >= 20)
        await readers[-1].stop()
        # Its last acknowledgements are with the node; what the application has not taken is not its own.
        await holder.echo(b"")
        if turn % 3 == 1:
            await die(holder)
        elif turn % 3 == 2:
            await holder.close()
    last = await connect()
    (subscription,) = await last.session(name)
    readers.append(Reader(subscription))
    is_over.set()
    await publishing
    await until(lambda: each_once(readers, bodies))


async def test_a_connection_has_one_session(connect: Connect, name: str) -> None:
    moor = await connect()
    await moor.session(name)
    with pytest.raises(moorline.SessionTaken):
        await moor.session(f"{name}-2")
    plain = await connect()
    await plain.subscribe(f"{name}/#")
    with pytest.raises(moorline.SessionTaken):
        await plain.session(f"{name}-3")


async def test_many_open_one_session_at_once_and_one_has_it(connect: Connect, name: str) -> None:
    moor = await connect()
    rivals = [await connect() for _ in range(8)]
    await rivals[0].session(name)
    await rivals[0].subscribe(f"{name}/#")
    await asyncio.gather(*(rival.session(name) for rival in rivals[1:]), return_exceptions=True)
    last = await connect()
    (subscription,) = await last.session(name)
    reader = Reader(subscription)
    await publish_all(moor, name, numbered(20))
    await until(lambda: each_once([reader], numbered(20)))


async def test_unsubscribed_in_a_session_is_for_good(connect: Connect, name: str) -> None:
    moor, first = await connect(), await connect()
    await first.session(name)
    for filter_text in (f"{name}/a", f"{name}/b", f"$shared/{name}/{name}/#"):
        await first.subscribe(filter_text)
    again = await first.subscribe(f"{name}/a")
    await again.close()
    shared = await first.subscribe(f"$share/{name}/{name}/#")
    await shared.close()
    await first.close()
    second = await connect()
    (left,) = await second.session(name)
    assert left.filter == f"{name}/b"
    # What it subscribes to again is new to it.
    await moor.publish(f"{name}/a", b"old")
    back = await second.subscribe(f"{name}/a")
    await moor.publish(f"{name}/a", b"new")
    message = await back.get(10)
    assert message is not None
    assert message.body == b"new"


async def test_a_session_that_is_not_kept_ends_with_its_connection(
    connect: Connect, name: str
) -> None:
    first = await connect()
    await first.session(name, expiry_s=0)
    await first.subscribe(f"{name}/#")
    await first.close()
    second = await connect()
    assert await second.session(name, expiry_s=0) == []


async def test_a_session_expires_with_all_it_has(
    connect: Connect, node: NodeProcess, name: str
) -> None:
    kept, gone = await connect(), await connect()
    for moor, session in ((kept, f"{name}-kept"), (gone, f"{name}-gone")):
        await moor.session(session, expiry_s=3_600)
        await moor.subscribe(f"{name}/#")
    await gone.close()
    # As if both had not been seen for two hours; the one that is open says that it lives.
    await rows(
        node,
        "update moorline.session set seen_at = seen_at - interval '2 hours' where name = $1",
        f"{name}-gone",
    )
    query = "select name from moorline.session where name like $1"
    async with asyncio.timeout(15):
        while len(await rows(node, query, f"{name}-%")) > 1:
            await asyncio.sleep(0.05)
    left = await rows(node, query, f"{name}-%")
    assert [row["name"] for row in left] == [f"{name}-kept"]
    readers = await rows(
        node, "select session from moorline.reader where session like $1", f"{name}-%"
    )
    assert [row["session"] for row in readers] == [f"{name}-kept"]
    back = await connect()
    assert await back.session(f"{name}-gone") == []


async def test_a_deleted_group_is_gone_from_sessions_and_catalog(
    connect: Connect, node: NodeProcess, name: str
) -> None:
    group = f"$shared/{name}/{name}/#"
    moor, member = await connect(), await connect()
    await member.session(name)
    reader = Reader(await member.subscribe(group))
    await described(moor, group, is_shared_by(1))
    await publish_all(moor, name, numbered(20))
    await until(lambda: len(reader.got) == 20)
    before = await rows(
        node,
        "select count(*) from moorline.progress p join moorline.group_state g using (reader) "
        "where g.name = $1",
        name,
    )
    assert before[0]["count"] > 0
    readers = await rows(node, "select reader from moorline.group_state where name = $1", name)
    await moor.group(group).delete()
    await until(lambda: reader.ended == "DELETED")
    left = await rows(
        node, "select 1 from moorline.progress where reader = $1", readers[0]["reader"]
    )
    assert left == []
    assert await rows(node, "select 1 from moorline.group_state where name = $1", name) == []
    # The session comes back without it, and does not make it anew.
    await member.close()
    again = await connect()
    assert await again.session(name) == []
    assert group not in {facts.name for facts in await moor.groups()}


async def test_everything_goes_on_after_the_node_was_killed(tmp_path: Path) -> None:
    flags = [*SMALL, "--node=n1"]
    with NodeProcess(tmp_path / "data", *flags) as node:
        moor = await moorline.connect(node.address, reconnect=False)
        durable = await moorline.connect(node.address, reconnect=False)
        await durable.session("reader")
        private = Reader(await durable.subscribe("a/#"), acks=False)
        shared = Reader(await durable.subscribe("$shared/g/a/#"), acks=False)
        queue = Reader(await durable.subscribe("$queue/g/a/#"), acks=False)
        await moor.publish("a/kept", b"kept", retain=True)
        await moor.publish("a/gone", b"gone", retain=True)
        await moor.publish("a/gone", b"", retain=True)
        first = await moor.publish("a/dedup", b"once", producer="p", sequence=7)
        await publish_all(moor, "a", numbered(30))
        await until(lambda: len(private.got) == len(shared.got) == len(queue.got) == 34)
        done: dict[Reader, set[bytes]] = {}
        for reader in (private, shared, queue):
            for message in reader.got[::2]:
                await message.ack()
            done[reader] = {message.body for message in reader.got[::2]}
        groups = ("$shared/g/a/#", "$queue/g/a/#")
        for group in groups:
            await described(moor, group, lambda found: sum(one.lag for one in found.cursors) == 17)
        # Now the Leaders know it; a moment later the catalog does.
        async with asyncio.timeout(10):
            while await done_by_reader(node) != [17, 17, 17]:
                await asyncio.sleep(0.01)
        node.kill()
    with NodeProcess(tmp_path / "data", *flags) as node:
        moor = await moorline.connect(node.address, reconnect=False)
        again = await moorline.connect(node.address, reconnect=False)
        resumed = {one.filter: Reader(one) for one in await again.session("reader")}
        for reader, filter_text in ((private, "a/#"), (shared, groups[0]), (queue, groups[1])):
            rest = {message.body for message in reader.got} - done[reader]
            back = resumed[filter_text]
            # Exactly the others: every acknowledgement had reached the catalog.
            await back.has(rest)
        retained = Reader(await moor.subscribe("a/+"))
        await until(lambda: bool(retained.got))
        assert retained.bodies == [b"kept"]
        twice = await moor.publish("a/dedup", b"once", producer="p", sequence=7)
        assert (twice.stored, twice.duplicates) == (0, 1)
        more = await moor.publish("a/dedup", b"more", producer="p", sequence=8)
        assert (more.stored, more.shard, more.offset > first.offset) == (1, first.shard, True)
        for reader in resumed.values():
            await reader.until(lambda one: b"more" in one.bodies)
            assert reader.bodies.count(b"more") == 1
        assert mistakes(node) == []
        await moor.close()
        await again.close()


async def test_a_clean_stop_of_the_node_keeps_every_acknowledgement(tmp_path: Path) -> None:
    flags = [*SMALL, "--node=n1"]
    with NodeProcess(tmp_path / "data", *flags) as node:
        moor = await moorline.connect(node.address, reconnect=False)
        durable = await moorline.connect(node.address, reconnect=False)
        await durable.session("reader")
        readers = [
            Reader(await durable.subscribe(filter_text))
            for filter_text in ("a/#", "$shared/g/a/#", "$queue/g/a/#")
        ]
        await publish_all(moor, "a", numbered(100))
        for reader in readers:
            await reader.has(numbered(100))
        await durable.echo(b"")
        assert node.stop() == 0
        await until(lambda: all(reader.ended for reader in readers))
        assert mistakes(node) == []
    with NodeProcess(tmp_path / "data", *flags) as node:
        moor = await moorline.connect(node.address, reconnect=False)
        durable = await moorline.connect(node.address, reconnect=False)
        resumed = [Reader(one) for one in await durable.session("reader")]
        await publish_all(moor, "a", numbered(10, first=100))
        for reader in resumed:
            await reader.has(numbered(10, first=100))
        await moor.close()
        await durable.close()
