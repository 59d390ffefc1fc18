"""Durable sessions in a real Postgres: taken over, fenced, expired, and gone without a trace."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.catalog.one_connection import OneConnection
from tests.catalog.test_groups import TABLES, cursor, is_waiting
from tests.waiting import until

from moorline.catalog import Catalog
from moorline.catalog.groups import Groups
from moorline.catalog.operations import Taking, Ticket, Tickets
from moorline.catalog.sessions import SessionRow, Sessions, SubscriptionRow
from moorline.errors import BadTopic, NotAuthorized

pytestmark = pytest.mark.process

DAY_S = 86_400


@pytest.fixture
async def catalog(dsn: str) -> AsyncIterator[Catalog]:
    async with Catalog.open(dsn) as catalog:
        yield catalog


@pytest.fixture
async def sessions(catalog: Catalog) -> Sessions:
    return Sessions(catalog)


async def opened(sessions: Sessions, name: str = "till", *, expiry_s: int = DAY_S) -> SessionRow:
    return await sessions.open(name, "shop", "alpha", expiry_s)


async def subscribed(sessions: Sessions, session: SessionRow, text: str) -> SubscriptionRow:
    row = await sessions.subscribe(session.name, session.epoch, text, 1)
    assert row is not None
    return row


async def reader_of(sessions: Sessions, session: SessionRow, text: str) -> int:
    row = await subscribed(sessions, session, text)
    assert row.reader is not None
    return row.reader


async def row_counts(catalog: Catalog) -> list[int]:
    return [await catalog.fetchval(f"select count(*) from {table}") for table in TABLES]


# --- opening --------------------------------------------------------------------------------------


async def test_session_is_made_and_opened_again(sessions: Sessions) -> None:
    first = await sessions.open("till", "shop", "alpha", DAY_S)
    assert (first.name, first.owner, first.node, first.expiry_s) == ("till", "shop", "alpha", DAY_S)
    assert first.is_new
    assert first.subscriptions == []
    second = await sessions.open("till", "shop", "beta", 2 * DAY_S)
    assert (second.node, second.expiry_s, second.is_new) == ("beta", 2 * DAY_S, False)
    assert second.epoch > first.epoch
    assert second.created_us == first.created_us
    assert second.seen_us > first.seen_us
    assert await sessions.list() == [second]


async def test_session_of_another_owner(sessions: Sessions) -> None:
    mine = await opened(sessions)
    with pytest.raises(NotAuthorized, match="'till' is another owner's"):
        await sessions.open("till", "thief", "beta", DAY_S)
    assert await sessions.list() == [mine]
    assert await sessions.seen("till", mine.epoch)


async def test_opening_fences_the_older_one(sessions: Sessions) -> None:
    older = await opened(sessions)
    readers = [await reader_of(sessions, older, text) for text in ("orders/#", "+")]
    assert (
        await sessions.commit_all([(reader, older.epoch, [cursor(5)]) for reader in readers])
        == set()
    )
    newer = await opened(sessions)
    assert [row.reader for row in newer.subscriptions] == readers[::-1]
    assert await sessions.commit_all(
        [(reader, older.epoch, [cursor(9)]) for reader in readers]
    ) == set(readers)
    assert not await sessions.seen("till", older.epoch)
    assert await sessions.subscribe("till", older.epoch, "late", 0) is None
    assert not await sessions.unsubscribe("till", older.epoch, "orders/#")
    assert await sessions.list() == [newer]
    for reader in readers:
        assert await sessions.cursors(reader) == [cursor(5)]
        assert await sessions.commit(reader, newer.epoch, [cursor(6)])


async def test_session_made_again_does_not_know_an_older_epoch(sessions: Sessions) -> None:
    older = await opened(sessions)
    assert await sessions.remove("till")
    assert not await sessions.seen("till", older.epoch)
    newer = await opened(sessions)
    assert newer.is_new
    assert newer.epoch > older.epoch
    assert not await sessions.seen("till", older.epoch)
    assert await sessions.subscribe("till", older.epoch, "orders/#", 0) is None


async def test_of_many_that_open_at_once_one_is_left(sessions: Sessions) -> None:
    rows = await asyncio.gather(*(opened(sessions) for _ in range(20)))
    epochs = [row.epoch for row in rows]
    assert len(set(epochs)) == 20
    assert [row.epoch for row in rows if row.is_new] == [min(epochs)]
    held = [epoch for epoch in epochs if await sessions.seen("till", epoch)]
    assert held == [max(epochs)]


async def test_openings_amid_subscriptions_fence_every_reader(sessions: Sessions) -> None:
    """A reader that is added while somebody opens the session has the newest epoch, or is not there."""

    async def take_over(number: int) -> None:
        for turn in range(10):
            session = await opened(sessions)
            row = await sessions.subscribe("till", session.epoch, f"topic/{number}/{turn}", 0)
            if row is not None and row.reader is not None:
                await sessions.commit(row.reader, session.epoch, [cursor(1)])

    await asyncio.gather(*(take_over(number) for number in range(6)))
    last = await opened(sessions)
    readers = [row.reader for row in last.subscriptions if row.reader is not None]
    assert len(readers) == len(last.subscriptions) > 0
    assert await sessions.commit_all([(one, last.epoch, [cursor(2)]) for one in readers]) == set()
    assert await sessions.commit_all(
        [(one, last.epoch - 1, [cursor(3)]) for one in readers]
    ) == set(readers)


# --- subscriptions --------------------------------------------------------------------------------


async def test_subscribing_again_keeps_the_reader(sessions: Sessions) -> None:
    session = await opened(sessions)
    first = await sessions.subscribe("till", session.epoch, "orders/#", 0)
    assert first is not None
    assert first.start_us >= session.created_us
    assert await sessions.subscribe("till", session.epoch, "orders/#", 0, start_us=5) == first
    second = await sessions.subscribe("till", session.epoch, "orders/#", 2)
    assert second == SubscriptionRow("orders/#", 2, first.reader, first.start_us)
    chosen = await sessions.subscribe("till", session.epoch, "news", 1, start_us=5)
    assert chosen is not None
    assert chosen.start_us == 5
    assert (await opened(sessions)).subscriptions == [chosen, second]


async def test_subscription_with_a_group_has_no_reader(
    catalog: Catalog, sessions: Sessions
) -> None:
    session = await opened(sessions)
    shared = await subscribed(sessions, session, "$share/billing/orders/#")
    assert (shared.filter, shared.reader) == ("$shared/billing/orders/#", None)
    assert await subscribed(sessions, session, "$shared/billing/orders/#") == shared
    queue = await subscribed(sessions, session, "$queue/billing/orders/#")
    assert (await opened(sessions)).subscriptions == [queue, shared]
    assert await catalog.fetchval("select count(*) from reader") == 0
    session = await opened(sessions)
    assert await sessions.unsubscribe("till", session.epoch, "$share/billing/orders/#")
    assert (await opened(sessions)).subscriptions == [queue]
    with pytest.raises(BadTopic):
        await sessions.subscribe("till", session.epoch, "$share/billing", 0)


async def test_unsubscribing_takes_the_place_away(catalog: Catalog, sessions: Sessions) -> None:
    session = await opened(sessions)
    gone = await reader_of(sessions, session, "orders/#")
    kept = await reader_of(sessions, session, "news")
    both = [(reader, session.epoch, [cursor(5)]) for reader in (gone, kept)]
    assert await sessions.commit_all(both) == set()
    assert await sessions.unsubscribe("till", session.epoch, "orders/#")
    assert await sessions.unsubscribe("till", session.epoch, "orders/#"), "there or not, it is ours"
    assert await row_counts(catalog) == [0, 1, 1, 1, 1]
    assert await sessions.commit_all(both) == {gone}
    again = await reader_of(sessions, session, "orders/#")
    assert again != gone
    assert await sessions.cursors(again) == []


async def test_readers_of_groups_and_sessions_commit_together(
    catalog: Catalog, sessions: Sessions
) -> None:
    """A session's reader has no Leader, and cannot be claimed or removed as a group's."""
    session = await opened(sessions)
    reader = await reader_of(sessions, session, "orders/#")
    groups = Groups(catalog)
    assert await groups.claim(reader, "alpha", 1_000) is None
    assert await groups.leader(reader) is None
    assert not await groups.renew(reader, session.epoch, 1_000)
    operations = Tickets(catalog)
    number = await operations.open(
        reader, "work", asked_by="me", asked_at="alpha", within_ms=60_000
    )
    assert await operations.delete(Ticket(number, reader, session.epoch)) is Taking.FENCED
    assert await groups.list() == []
    assert await groups.commit_all([(reader, session.epoch, [cursor(5)])]) == set()
    assert await sessions.cursors(reader) == [cursor(5)]


# --- the end --------------------------------------------------------------------------------------


async def test_removed_session_leaves_nothing(catalog: Catalog, sessions: Sessions) -> None:
    session = await opened(sessions)
    readers = [await reader_of(sessions, session, text) for text in ("orders/#", "news")]
    await subscribed(sessions, session, "$share/billing/orders/#")
    commits = [
        (reader, session.epoch, [cursor(1, shard=shard) for shard in range(4)])
        for reader in readers
    ]
    assert await sessions.commit_all(commits) == set()
    assert await row_counts(catalog) == [0, 1, 3, 2, 8]
    assert await sessions.remove("till")
    assert await row_counts(catalog) == [0] * 5
    assert not await sessions.remove("till")
    assert await sessions.commit_all(commits) == set(readers)


async def test_removals_amid_commits_and_subscriptions(
    catalog: Catalog, sessions: Sessions
) -> None:
    """Nobody waits in a circle, and nothing stays without an owner."""

    async def use(number: int) -> None:
        for turn in range(10):
            session = await opened(sessions, f"till {number % 2}", expiry_s=0)
            readers = []
            for text in ("orders/#", "news", f"topic/{turn}"):
                row = await sessions.subscribe(session.name, session.epoch, text, 0)
                if row is not None and row.reader is not None:
                    readers.append(row.reader)
            await sessions.commit_all(
                [(reader, session.epoch, [cursor(turn)]) for reader in readers[::-1]]
            )
            if turn % 3 == 2:
                await sessions.remove(session.name)

    async def expire() -> None:
        for _ in range(20):
            await sessions.remove_expired()

    await asyncio.gather(*(use(number) for number in range(6)), expire(), expire())
    for name in ("till 0", "till 1"):
        await sessions.remove(name)
    assert await row_counts(catalog) == [0] * 5


async def test_removal_and_commit_take_readers_in_the_same_order(
    dsn: str, catalog: Catalog, sessions: Sessions
) -> None:
    """The commit holds the first reader and wants the second one; the removal must not hold it."""
    early, late = [await opened(sessions, name, expiry_s=0) for name in ("early", "late")]
    first = await reader_of(sessions, late, "orders/#")
    second = await reader_of(sessions, early, "orders/#")
    async with Catalog.open(dsn) as other, other._pool.acquire() as connection:
        committing = Sessions(OneConnection(dsn, connection))
        async with connection.transaction():
            assert await committing.commit(first, late.epoch, [cursor(1)])
            removal = asyncio.create_task(sessions.remove_expired())
            await until(lambda: is_waiting(connection))
            assert await committing.commit(second, early.epoch, [cursor(1)])
            assert not removal.done()
    assert await removal == ["early", "late"]
    assert await row_counts(catalog) == [0] * 5


async def test_session_expires_after_it_was_last_seen(catalog: Catalog, sessions: Sessions) -> None:
    old, used, kept = [
        await opened(sessions, name, expiry_s=expiry_s)
        for name, expiry_s in (("old", 60), ("used", 60), ("kept", DAY_S))
    ]
    await reader_of(sessions, old, "orders/#")
    assert await sessions.remove_expired() == []
    # An hour goes by.
    await catalog.execute("update session set seen_at = seen_at - interval '1 hour'")
    assert await sessions.seen_all([("used", used.epoch), ("old", 0), ("none", 1)]) == {"used"}
    assert await sessions.remove_expired() == ["old"]
    assert [row.name for row in await sessions.list()] == ["kept", "used"]
    assert await row_counts(catalog) == [0, 2, 0, 0, 0]
    assert not await sessions.seen("old", old.epoch)
    assert await sessions.seen("kept", kept.epoch)


async def test_session_of_no_expiry_ends_and_the_longest_stays(sessions: Sessions) -> None:
    await opened(sessions, "short", expiry_s=0)
    await opened(sessions, "long", expiry_s=(1 << 32) - 1)
    removed: list[str] = []

    async def is_removed() -> bool:
        removed.extend(await sessions.remove_expired())
        return bool(removed)

    await until(is_removed)
    assert removed == ["short"]
    assert [row.name for row in await sessions.list()] == ["long"]
