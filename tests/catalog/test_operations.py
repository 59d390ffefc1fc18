"""Tickets of operators' calls in a real Postgres: taken with the effect, or withdrawn, never both."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.catalog.processes import WAIT_S_MAX

from moorline.catalog import Catalog
from moorline.catalog.groups import CursorRow, Groups
from moorline.catalog.operations import Taking, Ticket, Tickets
from moorline.core.topic import Mode, SharedName
from moorline.errors import OutcomeUnknown

pytestmark = pytest.mark.process

BILLING = SharedName(Mode.SHARED, "billing", "orders/#")
LONG_MS = 60_000


class Scene:
    """A group that alpha leads."""

    def __init__(self, catalog: Catalog, reader: int, epoch: int) -> None:
        self.groups = Groups(catalog)
        self.operations = Tickets(catalog)
        self.reader = reader
        self.epoch = epoch

    async def ticket(self, *, within_ms: int = LONG_MS, epoch: int | None = None) -> Ticket:
        number = await self.operations.open(
            self.reader, "work", asked_by="somebody", asked_at="beta", within_ms=within_ms
        )
        return Ticket(number, self.reader, self.epoch if epoch is None else epoch)


@pytest.fixture
async def scene(dsn: str) -> AsyncIterator[Scene]:
    async with Catalog.open(dsn) as catalog:
        groups = Groups(catalog)
        row, _ = await groups.declare(BILLING, deliveries_max=5, start_us=7)
        claim = await groups.claim(row.reader, "alpha", LONG_MS)
        assert claim is not None
        yield Scene(catalog, row.reader, claim.epoch)


async def test_a_ticket_is_taken_once_and_its_withdrawal_says_so(scene: Scene) -> None:
    ticket = await scene.ticket()
    assert await scene.operations.take(ticket) is Taking.TAKEN
    assert await scene.operations.take(ticket) is Taking.TOO_LATE
    assert await scene.operations.withdraw(ticket.number) is True
    assert await scene.operations.withdraw(ticket.number) is None


async def test_what_was_withdrawn_is_never_taken(scene: Scene) -> None:
    ticket = await scene.ticket()
    assert await scene.operations.withdraw(ticket.number) is False
    assert await scene.operations.take(ticket) is Taking.TOO_LATE
    assert await scene.operations.delete(ticket) is Taking.TOO_LATE
    assert await scene.groups.find(BILLING) is not None


async def test_a_ticket_has_an_end_by_the_clock_of_the_catalog(scene: Scene) -> None:
    """Whoever asked may be gone: then nobody withdraws it."""
    ticket = await scene.ticket(within_ms=0)
    assert await scene.operations.delete(ticket) is Taking.TOO_LATE
    assert await scene.operations.withdraw(ticket.number) is False


async def test_a_leader_that_was_replaced_takes_nothing(scene: Scene) -> None:
    newer = await scene.groups.claim(scene.reader, "alpha", LONG_MS)
    assert newer is not None
    ticket = await scene.ticket()
    assert await scene.operations.take(ticket) is Taking.FENCED
    assert await scene.operations.delete(ticket) is Taking.FENCED
    assert await scene.operations.change(ticket, deliveries_max=1) is Taking.FENCED
    seek = scene.operations.seek(ticket, start_us=1, start_offset=None, cursors=[])
    assert await seek is Taking.FENCED
    row = await scene.groups.find(BILLING)
    assert row is not None
    assert (row.deliveries_max, row.start_us, row.epoch) == (5, 7, newer.epoch)
    assert await scene.operations.withdraw(ticket.number) is False


async def test_a_ticket_is_for_one_group_and_not_for_the_next_of_its_name(scene: Scene) -> None:
    late = await scene.ticket()
    assert await scene.operations.delete(await scene.ticket()) is Taking.TAKEN
    row, is_created = await scene.groups.declare(BILLING, deliveries_max=5, start_us=7)
    assert is_created
    claim = await scene.groups.claim(row.reader, "alpha", LONG_MS)
    assert claim is not None
    assert await scene.operations.delete(late) is Taking.FENCED
    # Not even under the new epoch, or by the new number: the ticket is not for it.
    assert await scene.operations.delete(Ticket(late.number, scene.reader, claim.epoch)) is (
        Taking.FENCED
    )
    assert await scene.operations.delete(Ticket(late.number, row.reader, claim.epoch)) is (
        Taking.TOO_LATE
    )
    assert await scene.groups.find(BILLING) is not None


async def test_of_a_withdrawal_and_an_effect_at_once_one_is_first(scene: Scene) -> None:
    for _ in range(30):
        ticket = await scene.ticket()
        before = await scene.groups.of(scene.reader)
        assert before is not None
        wanted = before.deliveries_max + 1
        taking, is_taken = await asyncio.gather(
            scene.operations.change(ticket, deliveries_max=wanted),
            scene.operations.withdraw(ticket.number),
        )
        after = await scene.groups.of(scene.reader)
        assert after is not None
        assert is_taken is (taking is Taking.TAKEN)
        assert (after.deliveries_max == wanted) is is_taken


async def test_a_seek_leaves_the_given_places_and_no_others(scene: Scene) -> None:
    def place(node: str, offset: int) -> CursorRow:
        return CursorRow(node, 0, offset, b"", b"")

    groups = scene.groups
    assert await groups.commit(scene.reader, scene.epoch, [place("alpha", 50), place("away", 40)])
    ticket = await scene.ticket()
    taking = await scene.operations.seek(
        ticket, start_us=0, start_offset=3, cursors=[place("alpha", 10)]
    )
    assert taking is Taking.TAKEN
    assert await groups.cursors(scene.reader) == [place("alpha", 10)]
    row = await groups.find(BILLING)
    assert row is not None
    assert (row.start_us, row.start_offset, row.leader) == (0, 3, "")
    assert row.epoch > scene.epoch
    # What the Leader before has on its way is nothing any more, and the next one leads at once.
    assert not await groups.commit(scene.reader, scene.epoch, [place("alpha", 60)])
    assert not await groups.renew(scene.reader, scene.epoch, LONG_MS)
    assert await groups.claim(scene.reader, "beta", LONG_MS) is not None
    assert await groups.cursors(scene.reader) == [place("alpha", 10)]


async def test_commits_seeks_and_deletions_at_once_do_not_wait_in_a_circle(scene: Scene) -> None:
    async def lead(node: str) -> None:
        for turn in range(10):
            row, _ = await scene.groups.declare(BILLING, deliveries_max=5, start_us=7)
            claim = await scene.groups.claim(row.reader, node, LONG_MS)
            if claim is None:
                continue
            at = CursorRow(node, 0, turn, b"", b"")
            number = await scene.operations.open(
                row.reader, "work", asked_by="me", asked_at=node, within_ms=LONG_MS
            )
            ticket = Ticket(number, row.reader, claim.epoch)
            await asyncio.gather(
                scene.groups.commit(row.reader, claim.epoch, [at]),
                scene.operations.seek(ticket, start_us=turn, start_offset=None, cursors=[at])
                if turn % 2
                else scene.operations.delete(ticket),
            )

    await asyncio.gather(*(lead(f"node {number}") for number in range(6)))


async def test_a_write_that_postgres_did_not_answer_is_not_told_as_failed(dsn: str) -> None:
    name = SharedName(Mode.SHARED, "lost", "orders/#")
    async with Catalog.open(dsn) as catalog, Catalog.open(dsn) as other:
        connection = await asyncpg.connect(dsn)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("lock table moorline.shared_group in share mode")
        declaring = asyncio.create_task(Groups(catalog).declare(name, deliveries_max=5, start_us=7))
        waiting = (
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and wait_event_type = 'Lock'"
        )
        async with asyncio.timeout(WAIT_S_MAX):
            while not await other.fetchval(waiting):
                await asyncio.sleep(0.01)
        with pytest.raises(OutcomeUnknown, match="whether the group was made is not known"):
            await declaring
        await transaction.rollback()
        await connection.close()
