"""Scenarios A10, A12, A13, A20, A22, A23, A24 and A28 with topics, sessions, groups and stages."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from pathlib import Path

import pytest
from tests.access.topic_server import NODES, TopicServer, row, topic_server
from tests.catalog.databases import new_database
from tests.staging.staged_writes import Rows, aborted, committed, published, staged
from tests.topics.scenes import Reader, described, is_done
from tests.waiting import until

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.catalog.groups import GroupRow
from moorline.catalog.operations import Tickets
from moorline.catalog.readers import CursorRow
from moorline.client.moor import Moor
from moorline.client.topic import record
from moorline.config.settings import Queues
from moorline.core.access.owner import owner_of
from moorline.core.delivery.progress import Cursor
from moorline.core.group.message import Disconnect, LeaderWanted, UpdateProgress
from moorline.core.topic import SharedName
from moorline.errors import CallFailed, Denied, NotAudited, NotFound
from moorline.ids import text_of
from moorline.journal.disk import Disk
from moorline.journal.staging.stage_file import Chunk, Stage
from moorline.limits import OPERATION_MS_MAX
from moorline.node.queues import open_queues
from moorline.wire.group import (
    AskLeader,
    ChangeGroup,
    CreateGroup,
    DescribeGroup,
    FindOffsets,
    FindRetained,
    ForLeader,
    GroupCreated,
    GroupDescribed,
    OffsetsFound,
    Originator,
    ReadStream,
    RetainedFound,
    SeekGroup,
    StreamRead,
    StreamsSeen,
    WatchStreams,
)
from moorline.wire.message import Answer, Call
from moorline.wire.queue import Done
from moorline.wire.staging import QUEUES, TOPICS, OpenStage, QueueRow, StageOpened
from moorline.wire.stream_file import (
    ClusterDescribed,
    DescribeCluster,
    DescribeShards,
    ReadStreamFile,
    ShardsDescribed,
    StreamFileRead,
)
from moorline.wire.topic import (
    ListTopics,
    Publish,
    Published,
    SubscribeTopic,
    TopicsListed,
    TopicSubscribed,
)

pytestmark = pytest.mark.slow

USUAL = (
    row("/topics/%u", "@authenticated", "slwp"),
    row("/groups/%u", "@authenticated", "slp"),
    row("/sessions", "@authenticated", "p"),
)
"""As a fresh catalog has them."""


@pytest.fixture
async def server(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[TopicServer]:
    async with topic_server(await new_database(postgres), tmp_path, *USUAL) as server:
        yield server


async def is_denied(asked: Awaitable[object]) -> str:
    with pytest.raises(Denied) as refused:
        await asked
    return str(refused.value)


# --- A20: each with and without its right ---------------------------------------------------------


async def test_what_somebody_may_do_with_topics_is_what_its_rows_say(server: TopicServer) -> None:
    """A20: publish, subscribe and list, with the right and without."""
    async with server.connected("alice") as alice:
        await alice.publish("alice/news", b"one", retain=True)
        reader = Reader(await alice.subscribe("alice/#", start="beginning"))
        await reader.has([b"one", b"one"])
        assert await alice.topics("alice/#") == [("alice/news", 1)]
        await is_denied(alice.publish("bob/news", b"two"))
        await is_denied(alice.publish("alicent", b"two"))
        await is_denied(alice.subscribe("bob/#"))
        await is_denied(alice.topics("#"))
        await is_denied(alice.streams())
        await is_denied(alice.groups())
        # Beside what is granted, in one call: all of it or nothing.
        some = [record("alice/news", b"three"), record("bob/news", b"four")]
        await is_denied(alice.publish_all(some))
        await reader.stop()
    async with server.connected() as operator:
        assert await operator.topics("#") == [("alice/news", 1)]
        assert await operator.streams() is not None
        assert await operator.groups() == []
    assert ("alice", "Publish", "/topics/bob/news", "DENIED") in server.refusals


@pytest.mark.parametrize("topic", ["$SYS/audit/login", "$SYS", "$dead/group/orders", "$dead"])
async def test_nobody_but_a_node_publishes_to_what_is_reserved(
    server: TopicServer, topic: str
) -> None:
    """A20: also who may do everything, also once the topic is there, also among others, also by stages."""
    async with server.connected() as operator:
        await is_denied(operator.publish(topic, b"forged"))
        async with server.connected(NODES) as node:
            await node.publish(topic, b"true")
        await is_denied(operator.publish(topic, b"forged"))
        await is_denied(operator.publish(topic, b"forged", producer="p", sequence=1))
        await operator.publish("orders", b"order")
        await is_denied(
            operator.publish_all([record("orders", b"order"), record(topic, b"forged")])
        )
        await is_denied(staged(operator, "q", 1, 0, [[record(topic, b"forged")]]))
        stage = await staged(operator, "q", 1, 0, [[record("orders", b"staged")]])
        await is_denied(committed(operator, "q", 1, [stage], aside=topic))
        assert await published(operator, topic) == [(None, b"true")]
        assert await published(operator, "orders") == [(None, b"order")]


async def test_groups_want_rights_to_them_and_to_what_they_read(server: TopicServer) -> None:
    """A20, A28: create, seek, change and delete; another hears nothing of what exists."""
    async with server.connected("alice") as alice, server.connected("bob") as bob:
        await alice.group("$shared/alice/alice/#").create()
        await alice.group("$shared/alice/alice/#").info()
        # Its owner's: seek, change and delete need no row.
        await alice.group("$shared/alice/alice/#").seek("beginning")
        await alice.group("$shared/alice/alice/#").change(deliveries_max=3)
        await is_denied(alice.group("$shared/alice/bob/#").create())
        await is_denied(alice.group("$shared/others/alice/#").create())
        await is_denied(alice.subscribe("$shared/others/alice/#"))
        # The same words for one that is there and for one that is not.
        for name in ("$shared/alice/alice/#", "$shared/alice/none/#"):
            group = bob.group(name)
            for asked in (
                group.info(),
                group.seek("now"),
                group.change(deliveries_max=1),
                group.kick("x"),
                group.delete(),
            ):
                assert (await is_denied(asked)).endswith("is not granted at /groups/alice")
        await alice.group("$shared/alice/alice/#").delete()
        with pytest.raises(Denied):
            await alice.group("$shared/alice/alice/#").seek(
                "now"
            )  # nobody's: `a` is not in its row
    async with server.connected() as operator:
        with pytest.raises(NotFound):
            await operator.group("$shared/alice/alice/#").info()


async def test_one_who_may_read_a_groups_topics_still_cannot_join_it(server: TopicServer) -> None:
    """A20, A28: to join is a right of its own."""
    await server.change(row("/topics", "@authenticated", "slw"))
    async with server.connected("alice") as alice, server.connected("bob") as bob:
        await alice.group("$queue/alice/alice/#").create(start="beginning")
        there = await is_denied(bob.subscribe("$queue/alice/alice/#"))
        assert there == await is_denied(bob.subscribe("$queue/alice/not-there/#"))
        await server.change(row("/groups/alice", "bob", "s"))
        reader = Reader(await bob.subscribe("$queue/alice/alice/#"))
        await alice.publish("alice/orders", b"1")
        await reader.has([b"1"])
        await is_denied(bob.group("$queue/alice/alice/#").delete())
        await reader.stop()


# --- A22, A23: filters ----------------------------------------------------------------------------


async def test_a_filter_is_granted_only_if_all_that_it_matches_is(server: TopicServer) -> None:
    """A22: to subscribe and to list."""
    await server.change(
        row("/topics/orders", "alice", "sl"), row("/topics/orders/secret", "alice", "", "sl")
    )
    async with server.connected("alice") as alice:
        for filter_text in ("#", "+/x", "orders/#", "orders/+", "+/#", "$SYS/#", "$dead/#"):
            await is_denied(alice.subscribe(filter_text))
            await is_denied(alice.topics(filter_text))
        await (await alice.subscribe("orders/open/#")).close()


async def test_a_denial_below_a_filter_that_runs_ends_it(server: TopicServer) -> None:
    """A23, T15: and one beside it goes on."""
    given = row("/topics/orders", "alice", "s")
    await server.change(given)
    async with server.connected("alice") as alice, server.connected() as operator:
        reader = Reader(await alice.subscribe("orders/#"))
        other = Reader(await alice.subscribe("orders/open/#"))
        await operator.publish("orders/open/1", b"1")
        await reader.has([b"1"])
        await server.change(row("/topics/orders/secret", "alice", "", "s"))
        await operator.publish("orders/secret", b"2")
        await operator.publish("orders/open/1", b"3")
        await reader.until(lambda one: one.ended == "DENIED")
        await other.has([b"1", b"3"])
        assert reader.bodies == [b"1"]
        await other.stop()


# --- A24: a right that is taken away --------------------------------------------------------------


async def test_a_member_of_a_group_that_may_not_read_any_more_leaves_it(
    server: TopicServer,
) -> None:
    """A24: the others get what it had."""
    topics, group = row("/topics/orders", "@authenticated", "s"), row("/groups/g", "alice", "sp")
    await server.change(topics, group, row("/groups/g", "bob", "s"))
    name = "$shared/g/orders/#"
    async with (
        server.connected() as operator,
        server.connected("alice") as alice,
        server.connected("bob") as bob,
    ):
        await operator.group(name).create()
        denied, staying = (
            Reader(await alice.subscribe(name), acks=False),
            Reader(await bob.subscribe(name)),
        )
        await described(operator, name, lambda found: len(found.members) == 2)
        await server.change(removed=(group,))
        await denied.until(lambda one: one.ended == "DENIED")
        await described(operator, name, lambda found: len(found.members) == 1)
        bodies = [b"%d" % number for number in range(40)]
        await operator.publish_all([record(f"orders/{body.decode()}", body) for body in bodies])
        await staying.has(bodies)
        await described(operator, name, is_done)
        assert denied.got == []
        await staying.stop()


async def test_a_durable_session_is_judged_when_it_is_opened_again(server: TopicServer) -> None:
    """A24: offline it keeps its place, and gets nothing."""
    given = row("/topics/orders", "alice", "s")
    await server.change(given)
    async with server.connected("alice") as alice:
        await alice.session("s1")
        await alice.subscribe("orders/#")
        await alice.subscribe("alice/#")
    async with server.connected() as operator:
        await operator.publish("orders/1", b"1")
    await server.change(removed=(given,))
    async with server.connected("alice") as alice:
        opened = await alice.session("s1")
        assert [one.filter for one in opened] == ["alice/#"]
    # Its place is kept: it goes on where it was once it may.
    await server.change(given)
    async with server.connected("alice") as alice:
        opened = await alice.session("s1")
        (orders,) = [one for one in opened if one.filter == "orders/#"]
        reader = Reader(orders)
        await reader.has([b"1"])
        await server.change(removed=(given,))
        await reader.until(lambda one: one.ended == "DENIED")


@pytest.mark.parametrize("filter_text", ["orders/#", "$shared/alice/orders/#"])
async def test_a_right_that_is_taken_while_a_session_opens_leaves_one_subscription_out(
    server: TopicServer, monkeypatch: pytest.MonkeyPatch, filter_text: str
) -> None:
    """A24: the catalog is asked for the place of the one, and for the group of the other."""
    given = row("/topics/orders", "alice", "s")
    await server.change(given)
    async with server.connected("alice") as alice:
        await alice.session("s1")
        await alice.subscribe(filter_text)
        await alice.subscribe("alice/#")
    groups = server.topics.leaders.groups
    cursors_of, find = groups.cursors, groups.find

    async def take() -> None:
        monkeypatch.undo()  # once is enough
        await server.change(removed=(given,))
        await until(lambda: not server.topics.sessions._judging.is_at_work)

    async def cursors(reader: int) -> list[CursorRow]:
        await take()
        return await cursors_of(reader)

    async def found(name: SharedName) -> GroupRow | None:
        await take()
        return await find(name)

    if filter_text.startswith("$"):
        monkeypatch.setattr(groups, "find", found)
    else:
        monkeypatch.setattr(groups, "cursors", cursors)
    async with server.connected("alice") as alice:
        assert [one.filter for one in await alice.session("s1")] == ["alice/#"]
        (own,) = server.topics.sessions.sessions
        assert [one.filter for one in own.subscriptions.values()] == ["alice/#"]
    assert server.refusals == [("alice", "SubscribeTopic", "/topics/orders/#", "DENIED")]


async def test_a_stage_whose_right_is_taken_away_is_neither_filled_nor_published(
    server: TopicServer,
) -> None:
    """A24: a stage under way."""
    given = row("/topics/orders", "alice", "w")
    await server.change(given)
    async with server.connected("alice") as alice, server.connected() as operator:
        rows = [record("alice/a", b"1"), record("orders/1", b"2")]
        stage = await staged(alice, "q", 1, 0, [rows])
        await server.change(removed=(given,))
        await is_denied(committed(alice, "q", 1, [stage]))
        await is_denied(staged(alice, "q", 1, 1, [rows]))
        assert await operator.topics("#") == []
        await server.change(given)
        assert (await committed(alice, "q", 1, [stage])).published == 2
        assert await published(operator, "orders/1") == [(None, b"2")]


async def test_a_commit_that_is_denied_reads_its_stages_once_and_leaves_no_file_open(
    server: TopicServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, reads = row("/topics/orders", "alice", "w"), list[str]()
    await server.change(given)
    chunks_of = Stage.chunks

    def chunks(stage: Stage, disk: Disk, first_row: int) -> Generator[Chunk, None, None]:
        reads.append(stage.path)
        return chunks_of(stage, disk, first_row)

    async with server.connected("alice") as alice:
        rows: list[Rows] = [[record(f"orders/{n}", b"1")] for n in range(10)]
        stages = [await staged(alice, "q", 1, partition, rows) for partition in range(2)]
        await server.change(removed=(given,))
        monkeypatch.setattr(Stage, "chunks", chunks)
        await is_denied(committed(alice, "q", 1, stages))
        assert len(reads) == 2
        open_before = server.topics.staging._commits._disk.open_handles
        # The same for who gives up in the middle of publishing.
        commits, (name, _, _) = server.topics.staging._commits, stages[0]
        async with commits._chunks(name, 0) as chunks_read:
            async for _ in chunks_read:
                break
        await commits.in_thread(lambda: None)  # behind what was left to the thread
        assert commits._disk.open_handles == open_before
        await server.change(given)
        assert (await committed(alice, "q", 1, stages)).published == 20


async def test_staged_rows_for_queues_need_what_a_send_needs(
    server: TopicServer, tmp_path: Path
) -> None:
    async with open_queues(tmp_path / "queues", Queues(sync="process")) as queues:
        server.topics.staging.serve_queues(queues)
        mine, theirs = (queues.store.create(owner_of(who)).id for who in ("alice", "bob"))
        closed = row(f"/queues/{text_of(theirs)}", "@everyone", "", "w")

        async def sent(moor: Moor, batch: int, *ids: bytes, aside: str = "") -> int:
            rows: Rows = [QueueRow(one, b"1") for one in ids]
            stage = await staged(moor, "q", batch, 0, [rows], target=QUEUES)
            return (await committed(moor, "q", batch, [stage], aside)).published

        async with server.connected("alice") as alice, server.connected("bob") as bob:
            # Whoever knows a queue's id may send to it, until a row says otherwise.
            assert await sent(alice, 1, mine, theirs) == 2
            await server.change(closed)
            await is_denied(sent(alice, 2, mine, theirs))
            await is_denied(sent(alice, 2, mine, theirs, aside="alice/aside"))
            denied = "alice", "StageRows", f"/queues/{text_of(theirs)}", "DENIED"
            assert server.refusals == [denied] * 2, "before anything is stored"
            assert await sent(alice, 2, mine) == 1
            assert await sent(bob, 1, theirs) == 1
            await server.change(row("/queues", "@everyone", "", "w"))
            assert await sent(alice, 3, mine) == 1
            await is_denied(sent(bob, 2, mine))


async def test_who_may_write_nowhere_opens_no_stage(server: TopicServer, tmp_path: Path) -> None:
    """A20: a right below is enough, of queues that not all sending is denied, or to have one."""
    nowhere = row("/topics/%u", "@authenticated", "slp")
    async with open_queues(tmp_path / "queues", Queues(sync="process")) as queues:
        server.topics.staging.serve_queues(queues)
        async with server.connected("alice") as alice, server.connected("bob") as bob:
            await opened(alice, TOPICS)
            await server.change(nowhere)
            await is_denied(opened(alice, TOPICS))
            assert server.refusals == [("alice", "OpenStage", "/topics", "DENIED")]
            await server.change(row("/topics/orders/eu", "alice", "w"))
            await opened(alice, TOPICS)
            await is_denied(opened(bob, TOPICS))
            await opened(bob, QUEUES)
            await server.change(row("/queues", "@everyone", "", "w"))
            await is_denied(opened(bob, QUEUES))
            assert server.refusals[-1] == ("bob", "OpenStage", "/queues", "DENIED")
            theirs = queues.store.create(owner_of("alice")).id
            await opened(alice, QUEUES)
            await is_denied(opened(bob, QUEUES))
            await server.change(row(f"/queues/{text_of(theirs)}", "bob", "w"))
            await opened(bob, QUEUES)


async def opened(moor: Moor, target: int) -> StageOpened:
    return await moor._caller.call(lambda n: OpenStage(n, "q", 1, 0, 0, target), StageOpened)


async def test_what_was_staged_for_a_queue_is_judged_again_at_the_commit(
    server: TopicServer, tmp_path: Path
) -> None:
    """By a row, or by its owner who closes it."""
    async with open_queues(tmp_path / "queues", Queues(sync="process")) as queues:
        server.topics.staging.serve_queues(queues)
        theirs = queues.store.create(owner_of("bob"))
        path = f"/queues/{text_of(theirs.id)}"
        async with server.connected("alice") as alice, server.connected("bob") as bob:
            stage = await staged(alice, "q", 1, 0, [[QueueRow(theirs.id, b"1")]], target=QUEUES)
            queues.store.close_to_strangers(theirs, closed=True)
            await is_denied(committed(alice, "q", 1, [stage]))
            assert server.refusals == [("alice", "CommitStaged", path, "DENIED")]
            await is_denied(staged(alice, "q", 2, 0, [[QueueRow(theirs.id, b"2")]], target=QUEUES))
            assert server.refusals[1:] == [("alice", "StageRows", path, "DENIED")]
            own = await staged(bob, "q", 1, 0, [[QueueRow(theirs.id, b"3")]], target=QUEUES)
            assert (await committed(bob, "q", 1, [own])).published == 1
            queues.store.close_to_strangers(theirs, closed=False)
            assert (await committed(alice, "q", 1, [stage])).published == 1
            denying = row(path, "@everyone", "", "w")
            later = await staged(alice, "q", 3, 0, [[QueueRow(theirs.id, b"4")]], target=QUEUES)
            await server.change(denying)
            await is_denied(committed(alice, "q", 3, [later]))


def waiting_read(server: TopicServer, moor: Moor) -> "asyncio.Task[StreamRead]":
    """Of what comes next into the first shard."""
    extent = server.topics.streams.store.extents()[0]
    shard, generation = extent.stream.shard_number, extent.stream.generation

    async def read() -> StreamRead:
        return await moor._caller.call(
            lambda n: ReadStream(n, shard, generation, extent.end, 1_000, 30_000), StreamRead
        )

    return asyncio.create_task(read())


async def is_waiting(server: TopicServer, count: int) -> None:
    await until(lambda: len(server.topics.broker._reads._waiting) == count)


async def test_a_read_that_waits_ends_when_its_right_is_taken_away(server: TopicServer) -> None:
    """A24: as a query of Spark waits."""
    given = row("/topics", "alice", "s")
    await server.change(given)
    async with (
        server.connected("alice") as alice,
        server.connected(NODES) as node,
        server.connected() as operator,
    ):
        await operator.publish("orders", b"before")
        mine, theirs = waiting_read(server, alice), waiting_read(server, node)
        await is_waiting(server, 2)
        await server.change(row("/topics/else", "bob", "s"))  # which is about somebody else
        await server.change(removed=(given,))
        async with asyncio.timeout(10):
            await is_denied(mine)
        await is_waiting(server, 1)
        assert not theirs.done()
        assert ("alice", "ReadStream", "/topics", "DENIED") in server.refusals
        theirs.cancel()


async def test_a_read_that_waited_gives_nothing_to_whom_may_not_read_any_more(
    server: TopicServer,
) -> None:
    """A24: also where news come before it is judged again."""
    given = row("/topics", "alice", "s")
    await server.change(given)
    async with server.connected("alice") as alice, server.connected() as operator:
        await operator.publish("orders", b"before")
        read = waiting_read(server, alice)
        await is_waiting(server, 1)
        server.world.source.remove(given)
        await server.world.table.refresh()
        await operator.publish_all([record(f"orders/{n}", b"after") for n in range(64)])
        async with asyncio.timeout(10):
            await is_denied(read)


async def test_what_is_judged_again_while_rights_are_unknown_ends_as_unavailable(
    server: TopicServer,
) -> None:
    async with server.connected("alice") as alice:
        reader = Reader(await alice.subscribe("alice/#"))
        server.world.source.is_away = True
        server.world.pass_ms(61_000)
        server.topics.judge_soon()
        await reader.until(lambda one: one.ended == "UNAVAILABLE")


# --- A28: another's names -------------------------------------------------------------------------


async def test_anothers_producer_name_makes_no_duplicates(server: TopicServer) -> None:
    """A28: also forged with a principal inside."""
    await server.change(row("/topics/shared", "@authenticated", "slw"))
    async with (
        server.connected("alice") as alice,
        server.connected("bob") as bob,
        server.connected() as nobody,
    ):
        # One shard for all: that is where duplicates are found.
        for who, body in ((bob, b"bob"), (nobody, b"nobody"), (alice, b"alice")):
            await who.publish("shared/1", body, producer="p", sequence=100)
        for forged in ("alice\0p", "p"):
            await bob.publish("shared/1", b"more", producer=forged, sequence=200)
            await nobody.publish("shared/1", b"more", producer=forged, sequence=200)
        await alice.publish("shared/1", b"alice again", producer="p", sequence=100)
        await alice.publish("shared/1", b"alice next", producer="p", sequence=101)
        bodies = [body for _, body in await published(alice, "shared/1")]
        assert [one for one in bodies if one != b"more"] == [
            b"bob",
            b"nobody",
            b"alice",
            b"alice next",
        ]


async def test_anothers_query_name_swallows_no_batch(server: TopicServer) -> None:
    """A28: nor removes who knows the id of a stage anything."""
    await server.change(row("/topics/shared", "@authenticated", "slw"))
    async with (
        server.connected("alice") as alice,
        server.connected("bob") as bob,
        server.connected() as nobody,
    ):
        for who, body in ((bob, b"bob"), (nobody, b"nobody")):
            stage = await staged(who, "query", 7, 0, [[record("shared/1", body)]])
            assert (await committed(who, "query", 7, [stage])).published == 1
        mine = await staged(alice, "query", 1, 0, [[record("shared/1", b"alice")]])
        # Whoever knows the stage's id neither removes nor publishes it.
        assert await aborted(bob, "query", 1, [mine]) == 0
        with pytest.raises(CallFailed) as refused:
            await committed(bob, "query", 8, [mine])
        assert "alice" not in str(refused.value)
        found = await committed(alice, "query", 1, [mine])
        assert (found.published, found.already) == (1, False)
        again = await committed(alice, "query", 1, [mine])
        assert (again.already, again.last) == (True, 1)
        for forged in ("\0alice\0query", "\0"):
            with pytest.raises(moorline.MoorlineError):
                await staged(nobody, forged, 9, 0, [[record("shared/1", b"forged")]])
        bodies = [body for _, body in await published(alice, "shared/1")]
        assert sorted(bodies) == [b"alice", b"bob", b"nobody"]


async def test_anothers_session_is_refused_and_goes_on(server: TopicServer) -> None:
    """A28: in the words of a right that is not there."""
    async with (
        server.connected("alice") as alice,
        server.connected("bob") as bob,
        server.connected() as nobody,
    ):
        await alice.session("s1")
        reader = Reader(await alice.subscribe("alice/#"))
        text = await is_denied(bob.session("s1"))
        assert text == "the right p (publish) is not granted at /sessions/s1"
        assert await is_denied(nobody.session("s1")) == text
        await alice.publish("alice/1", b"1")
        await reader.has([b"1"])
        assert reader.ended == ""
        await reader.stop()
    async with server.connected("alice") as alice:
        (found,) = await alice.session("s1")
        assert found.filter == "alice/#"


# --- A10, A12, A13: what nodes say to each other --------------------------------------------------


async def test_what_nodes_ask_each_other_is_refused_to_others(server: TopicServer) -> None:
    """A10: also to whoever may do everything with its own topics, and nothing else."""
    calls: list[tuple[Callable[[int], Call], type[Answer]]] = [
        (WatchStreams, StreamsSeen),
        (lambda n: ReadStream(n, 0, 0, 0, 100), StreamRead),
        (lambda n: FindOffsets(n, 0), OffsetsFound),
        (lambda n: FindRetained(n, "#"), RetainedFound),
        (lambda n: ReadStreamFile(n, 0, 0, "segment", 0, 100), StreamFileRead),
        (lambda n: DescribeShards(n, []), ShardsDescribed),
        (DescribeCluster, ClusterDescribed),
    ]
    async with server.connected("alice") as alice, server.connected(NODES) as node:
        await alice.publish("alice/1", b"1")
        for make, answer in calls:
            await is_denied(alice._caller.call(make, answer))
            await node._caller.call(make, answer)


async def test_a_forged_word_to_a_leader_moves_nobodys_cursor(server: TopicServer) -> None:
    """A10: each is refused and told to the audit."""
    name = "$shared/g/orders/#"
    async with server.connected() as operator, server.connected("mallory") as mallory:
        await operator.group(name).create(start="beginning")
        await operator.publish_all([record(f"orders/{n}", b"%d" % n) for n in range(20)])
        reader = Reader(await operator.subscribe(name), acks=False)
        await reader.until(lambda one: len(one.got) == 20)
        before = await operator.group(name).info()
        (reader_number,) = server.topics.leaders.led
        host = server.topics.leaders.led[reader_number]
        (borrower,) = host.leader.borrowers
        epoch = host.leader.epoch
        for lease in range(4):
            forged = UpdateProgress(borrower, epoch, 99, lease, Cursor(20), 20, final=True)
            mallory._caller.send(ForLeader(reader_number, forged))
        mallory._caller.send(ForLeader(reader_number, LeaderWanted("forged", "mallory", 10)))
        mallory._caller.send(ForLeader(reader_number, Disconnect(borrower, epoch, ())))
        # Behind them on the same link: they were heard.
        await is_denied(mallory.group(name).info())
        after = await operator.group(name).info()
        assert [one.borrower for one in after.members] == [one.borrower for one in before.members]
        assert [(one.shard, one.offset, one.lag) for one in after.cursors] == [
            (one.shard, one.offset, one.lag) for one in before.cursors
        ]
        acts = [act for who, act, _, _ in server.refusals if who == "mallory"]
        assert acts.count("ForLeader") == 6
        await reader.stop()


class Forwarding:
    """A node that passes calls on to the one that leads a group."""

    def __init__(self, server: TopicServer, node: Moor, reader: int) -> None:
        self._server = server
        self._node = node
        self._reader = reader
        self._tickets = Tickets(server.catalog)

    async def ask(
        self, originator: Originator, *, within_ms: int = OPERATION_MS_MAX, epoch: int | None = None
    ) -> Done:
        ticket = await self._tickets.open(
            self._reader, "ChangeGroup", asked_by="x", asked_at="n2", within_ms=within_ms
        )
        led = self._server.topics.leaders.led[self._reader].leader.epoch
        work = ChangeGroup(0, "$shared/g/orders/#", 77)
        return await self._node._caller.call(
            lambda n: AskLeader(
                n, self._reader, led if epoch is None else epoch, ticket, "x", work, originator
            ),
            Done,
        )

    async def deliveries_max(self) -> int:
        row_found = await self._server.topics.leaders.groups.of(self._reader)
        assert row_found is not None
        return row_found.deliveries_max


@pytest.fixture
async def forwarding(server: TopicServer) -> AsyncIterator[Forwarding]:
    await server.change(row("/groups/g", "boss", "ls"))
    name = "$shared/g/orders/#"
    async with server.connected() as operator, server.connected(NODES) as node:
        await operator.group(name).create(deliveries_max=5)
        reader = Reader(await operator.subscribe(name))
        await until(lambda: bool(server.topics.leaders.led))
        (number,) = server.topics.leaders.led
        yield Forwarding(server, node, number)
        await reader.stop()


async def test_a_call_that_is_passed_on_is_judged_as_its_originators(
    server: TopicServer, forwarding: Forwarding
) -> None:
    """A12: and never as the node's."""
    boss = Originator("boss", "password")
    nobodies = [
        boss,
        Originator(),
        Originator("$node/n2", "node"),
        Originator("boss", "no such proof"),
        Originator("anonymous", "nothing", is_local=False),
    ]
    for originator in nobodies:
        await is_denied(forwarding.ask(originator))
    assert await forwarding.deliveries_max() == 5
    await server.change(row("/groups/g", "boss", "lsa"))
    await forwarding.ask(boss)
    assert await forwarding.deliveries_max() == 77
    await forwarding.ask(Originator("anonymous", "nothing", is_local=True))


async def test_a_call_that_is_passed_on_too_late_or_to_another_epoch_is_refused(
    server: TopicServer, forwarding: Forwarding
) -> None:
    """A13: and takes no effect."""
    await server.change(row("/groups/g", "boss", "lsa"))
    boss = Originator("boss", "password")
    with pytest.raises(CallFailed, match="given up"):
        await forwarding.ask(boss, within_ms=0)
    with pytest.raises(CallFailed, match="another Leader"):
        await forwarding.ask(boss, epoch=1 << 40)
    assert await forwarding.deliveries_max() == 5


async def test_only_nodes_pass_calls_on_and_an_originator_of_others_means_nothing(
    server: TopicServer, forwarding: Forwarding
) -> None:
    """A10, A12: an originator is a node's word."""
    name, operator = "$shared/g/orders/#", Originator("anonymous", "nothing", is_local=True)
    async with server.connected("mallory") as mallory, server.connected(NODES) as node:
        work = SeekGroup(0, name, "now")
        await is_denied(
            mallory._caller.call(lambda n: AskLeader(n, 1, 1, 1, "x", work, operator), Done)
        )

        def describe(n: int) -> DescribeGroup:
            return DescribeGroup(n, name, originator=operator)

        await is_denied(mallory._caller.call(describe, GroupDescribed))
        await node._caller.call(describe, GroupDescribed)
        await is_denied(
            node._caller.call(
                lambda n: DescribeGroup(n, name, originator=Originator("mallory", "password")),
                GroupDescribed,
            )
        )
    assert await forwarding.deliveries_max() == 5


@pytest.mark.parametrize(
    "text",
    ["a#", "a/#/b", "+a/b", "$share", "$share//a", "$queue/g", "/", "//", "a" * 1_000, "#/#"],
)
async def test_what_is_no_filter_is_refused_and_the_connection_stays(
    server: TopicServer, text: str
) -> None:
    async with server.connected("alice") as alice:
        for make, answer in (
            (lambda n: SubscribeTopic(n, text), TopicSubscribed),
            (lambda n: ListTopics(n, text), TopicsListed),
            (lambda n: CreateGroup(n, text), GroupCreated),
        ):
            with pytest.raises(CallFailed):
                await alice._caller.call(make, answer)
        await is_denied(alice._caller.call(lambda n: Publish(n, [record(text, b"")]), Published))
        await alice.publish("alice/1", b"1")


# --- A40: what the audit hears --------------------------------------------------------------------


async def test_what_a_handler_refuses_is_told_to_the_audit(server: TopicServer) -> None:
    """A40: the guard knows nothing of these: the catalog, the disk or the topic itself says who may."""
    name, path = "$shared/g/alice/#", "/groups/g"
    await server.change(row("/topics", "@authenticated", "w"))
    async with server.connected() as operator, server.connected("alice") as alice:
        await operator.group(name).create()
        group = alice.group(name)
        asked: dict[str, Callable[[], Awaitable[object]]] = {
            "DescribeGroup": group.info,
            "SeekGroup": lambda: group.seek("now"),
            "ChangeGroup": lambda: group.change(deliveries_max=1),
            "KickMember": lambda: group.kick("x"),
            "DeleteGroup": group.delete,
            "CreateGroup": group.create,
            "SubscribeTopic": lambda: alice.subscribe(name),
        }
        for ask in asked.values():
            await is_denied(ask())
        await is_denied(alice.publish("$SYS/x", b"forged"))
        await operator.session("theirs")
        await is_denied(alice.session("theirs"))
        stage = await staged(alice, "q", 1, 0, [[record("orders", b"1")]])
        await server.change(removed=(row("/topics", "@authenticated"),))
        await is_denied(staged(alice, "q", 1, 1, [[record("orders", b"2")]]))
        await is_denied(committed(alice, "q", 1, [stage]))
    assert server.refusals == [
        *(("alice", act, path, "DENIED") for act in asked),
        ("alice", "Publish", "/topics/$SYS/x", "DENIED"),
        ("alice", "OpenSession", "/sessions/theirs", "DENIED"),
        ("alice", "StageRows", "/topics/orders", "DENIED"),
        ("alice", "CommitStaged", "/topics/orders", "DENIED"),
    ]
    assert server.heard.acts == []


async def test_an_operators_act_on_a_group_is_written_down_before_it_is_done(
    server: TopicServer,
) -> None:
    """A40: and is not done where it cannot be."""
    name, given = "$shared/alice/alice/#", row("/groups/alice", "boss", "a")
    await server.change(given)
    async with server.connected("alice") as alice, server.connected("boss") as boss:
        await alice.group(name).create(deliveries_max=5)
        await alice.group(name).seek("beginning")
        assert server.heard.acts == []
        await boss.group(name).seek("now")
        await boss.group(name).change(deliveries_max=7)
        with pytest.raises(NotFound):
            await boss.group(name).kick("nobody")

        async def unwritable() -> None:
            raise NotAudited("the disk is full")

        server.heard.writing = unwritable
        with pytest.raises(NotAudited):
            await boss.group(name).delete()
        server.heard.writing = lambda: server.change(removed=(given,))
        await is_denied(boss.group(name).delete())
        assert (await alice.group(name).info()).group.deliveries_max == 7
    acts = ("SeekGroup", "ChangeGroup", "KickMember", "DeleteGroup")
    assert server.heard.acts == [("boss", act, "/groups/alice") for act in acts]
    assert server.refusals == [("boss", "DeleteGroup", "/groups/alice", "DENIED")]
