"""Scenario A30 with topics: at the bound a typed error, below it again, and others notice nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import xxhash
from tests.access.topic_server import NODES, TopicServer, row, topic_server
from tests.catalog.databases import new_database
from tests.staging.staged_writes import committed, encoded_rows, staged
from tests.topics.scenes import Reader

from moorline.catalog import EmbeddedPostgres
from moorline.client.moor import Moor
from moorline.client.topic import record
from moorline.core.access.quota import Bounds
from moorline.errors import OverQuota
from moorline.wire.staging import (
    CloseStage,
    OpenStage,
    RowsStaged,
    StageClosed,
    StageOpened,
    StageRows,
)


@pytest.fixture
async def server(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[TopicServer]:
    rows = (row("/topics", "@authenticated", "slw"), row("/groups", "@authenticated", "slp"))
    sessions = row("/sessions", "@authenticated", "p")
    async with topic_server(await new_database(postgres), tmp_path, *rows, sessions) as server:
        yield server


async def test_subscriptions_are_bounded_and_come_back(server: TopicServer) -> None:
    """A30: subscriptions, private and of groups."""
    server.bound("alice", Bounds(subscriptions=2))
    async with server.connected("bob") as bob:
        async with server.connected("alice") as alice, server.connected("alice") as other:
            await alice.session("s1")
            one = await alice.subscribe("a/#")
            await other.subscribe("$shared/g/b/#")
            for moor in (alice, other):
                for filter_text in ("c/#", "$shared/g/c/#"):
                    with pytest.raises(OverQuota, match="the quota subscriptions is 2"):
                        await moor.subscribe(filter_text)
            for filter_text in ("a/#", "b/#", "c/#"):
                await bob.subscribe(filter_text)
            # A second time is the same one, and what was closed is free again.
            await alice.subscribe("a/#")
            await one.close()
            reader = Reader(await alice.subscribe("d/#"))
            await bob.publish("d/1", b"1")
            await reader.has([b"1"])
            await reader.stop()
        # So is what a connection had that is gone; a session did not keep what was refused.
        async with server.connected("alice") as alice:
            opened = await alice.session("s1")
            assert [one.filter for one in opened] in (["d/#"], [])
            await alice.subscribe("e/#")
    await _is_free(server, "alice")


async def _is_free(server: TopicServer, principal: str) -> None:
    server.bound(principal, Bounds(subscriptions=1))
    async with asyncio.timeout(10), server.connected(principal) as moor:
        while True:
            try:
                await moor.subscribe("free/#")
            except OverQuota:
                await asyncio.sleep(0.01)  # its connection before is just ending
            else:
                return


async def opened_stage(moor: Moor, partition: int) -> bytes:
    make = lambda n: OpenStage(n, "q", 1, partition, 0)  # noqa: E731
    return (await moor._caller.call(make, StageOpened)).stage


async def test_stages_that_are_open_are_bounded_and_come_back(server: TopicServer) -> None:
    """A30: stages, of all connections of a principal."""
    server.bound("alice", Bounds(stages=2))
    async with server.connected("alice") as other:
        async with server.connected("alice") as alice:
            await opened_stage(alice, 0)
            await opened_stage(alice, 1)
            with pytest.raises(OverQuota, match="the quota stages is 2"):
                await opened_stage(other, 2)
        async with asyncio.timeout(10):
            while True:
                try:
                    stage = await staged(other, "q", 1, 2, [[record("a", b"1")]])
                except OverQuota:
                    await asyncio.sleep(0.01)  # the other connection is just ending
                else:
                    break
        # One that is closed is not open any more.
        await opened_stage(other, 3)
        await opened_stage(other, 4)
        with pytest.raises(OverQuota):
            await opened_stage(other, 5)
        assert (await committed(other, "q", 1, [stage])).published == 1


async def test_messages_and_bytes_a_second_are_bounded(server: TopicServer) -> None:
    """A30: rates, and others have their own."""
    server.bound("alice", Bounds(messages_per_s=10, bytes_per_s=1_000))
    async with (
        server.connected("alice") as alice,
        server.connected("bob") as bob,
        server.connected(NODES) as node,
    ):
        with pytest.raises(OverQuota, match=r"messages_per_s is 10.*ask for less"):
            await alice.publish_all([record("a", b"") for _ in range(11)])
        with pytest.raises(OverQuota, match=r"bytes_per_s is 1,000.*ask for less"):
            await alice.publish("a", b"x" * 1_001)
        assert await bob.topics("#") == []
        await alice.publish_all([record("a", b"1") for _ in range(10)])
        with pytest.raises(OverQuota, match="come again in"):
            await alice.publish_all([record("a", b"2") for _ in range(10)])
        for moor in (bob, node):
            await moor.publish_all([record("a", b"x" * 200) for _ in range(100)])
        # Other bounds hold at once, without a new connection.
        server.bound("alice", Bounds())
        await alice.publish_all([record("a", b"3") for _ in range(100)])
        assert await bob.topics("#") == [("a", 310)]


async def test_staged_rows_count_as_published_when_they_are_staged(server: TopicServer) -> None:
    """A30: rates and topics, by the way of staged writes; a stage that was refused rows goes on."""
    server.bound("alice", Bounds(messages_per_s=10, topics=2))
    async with server.connected("alice") as alice, server.connected("bob") as bob:
        call = alice._caller.call
        with pytest.raises(OverQuota, match=r"messages_per_s is 10.*ask for less"):
            await staged(alice, "q", 1, 0, [[record("a", b"x") for _ in range(11)]])
        name = await opened_stage(alice, 1)
        shards = 2
        first = encoded_rows([record("a", b"1") for _ in range(10)], shards)
        second = encoded_rows([record("b", b"2") for _ in range(10)], shards)
        await call(lambda n: StageRows(n, name, first), RowsStaged)
        with pytest.raises(OverQuota) as over:
            await call(lambda n: StageRows(n, name, second), RowsStaged)
        assert over.value.retry_after_ms is not None
        await staged(bob, "q", 1, 0, [[record("a", b"x") for _ in range(100)]])
        server.bound("alice", Bounds(topics=2))
        await call(lambda n: StageRows(n, name, second), RowsStaged)
        third = encoded_rows([record("c", b"3")], shards)
        with pytest.raises(OverQuota, match="topics is 2"):
            await call(lambda n: StageRows(n, name, third), RowsStaged)
        server.bound("alice", Bounds(messages_per_s=1))
        # What is staged was paid for: a commit is not refused by a rate.
        stage = name, 20, xxhash.xxh3_128_digest(first + second)
        await call(lambda n: CloseStage(n, *stage), StageClosed)
        assert (await committed(alice, "q", 1, [stage])).published == 20
    assert ("alice", "StageRows", "/quotas/messages_per_s", "OVER_QUOTA") in server.heard.refusals


async def test_bytes_in_topics_are_bounded_and_others_notice_nothing(server: TopicServer) -> None:
    """A30: bytes stored in topics, published or staged, with a producer and without."""
    server.bound("alice", Bounds(topic_bytes=10_000))
    stored = server.topics.streams.store.stored_bytes
    async with (
        server.connected("alice") as alice,
        server.connected("alice") as other,
        server.connected("bob") as bob,
    ):
        stage = await staged(alice, "q", 1, 0, [[record("a", b"x" * 1_000) for _ in range(4)]])
        assert stored.of("alice") == 0
        assert (await committed(alice, "q", 1, [stage])).published == 4
        assert 4_000 < stored.of("alice") < 5_000
        await alice.publish_all([record("a", b"x" * 1_000, key=b"k") for _ in range(3)])
        await other.publish_all([record("a", b"x" * 1_000) for _ in range(3)])
        assert stored.of("alice") > 10_000
        for moor in (alice, other):
            with pytest.raises(OverQuota, match=r"topic_bytes is 10,000.*retention") as over:
                await moor.publish("a", b"x")
            assert (over.value.quota, over.value.bound) == ("topic_bytes", 10_000)
        with pytest.raises(OverQuota, match="topic_bytes"):
            await staged(alice, "q", 2, 0, [[record("a", b"x")]])
        await bob.publish_all([record("a", b"x" * 1_000) for _ in range(100)])
        assert await bob.topics("#") == [("a", 110)]
        # Another bound holds at once, without a new connection.
        server.bound("alice", Bounds(topic_bytes=1_000_000))
        await alice.publish("a", b"x")
    refused = {(who, act, path) for who, act, path, _ in server.heard.refusals}
    assert {
        ("alice", "Publish", "/quotas/topic_bytes"),
        ("alice", "StageRows", "/quotas/topic_bytes"),
    } <= refused
