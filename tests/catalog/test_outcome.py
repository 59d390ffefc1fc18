"""What is said of a change when Postgres goes: failed only where nothing can have been changed."""

from collections.abc import Awaitable, Callable

import asyncpg
import pytest
from tests.catalog.losing import lost_at

from moorline.catalog import Catalog
from moorline.catalog.groups import Groups
from moorline.catalog.outcome import HARMLESS, unsure
from moorline.catalog.sessions import Sessions
from moorline.core.topic import Mode, SharedName
from moorline.errors import CatalogUnreachable, OutcomeUnknown

pytestmark = pytest.mark.process


async def test_a_change_that_was_lost_on_the_way_may_be_done(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog, lost_at(dsn, "session"):
        with (
            pytest.raises(OutcomeUnknown, match=f"whether it is there is not known: .*{HARMLESS}"),
            unsure("it is there", HARMLESS),
        ):
            await Sessions(catalog).open("lost", "me", "node", 60)


async def test_a_change_that_could_not_be_asked_for_is_not_done(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        catalog._pool.terminate()
        with pytest.raises(CatalogUnreachable), unsure("it is there"):
            await Sessions(catalog).open("lost", "me", "node", 60)


async def changed_and_lost(catalog: Catalog, rest: Callable[[], Awaitable[object]]) -> None:
    await Sessions(catalog).open("kept", "me", "node", 60)
    catalog._pool.terminate()
    await rest()


async def test_what_was_changed_stays_whatever_becomes_of_the_rest(dsn: str) -> None:
    """The change is answered, and then there is no connection for what comes behind it."""
    async with Catalog.open(dsn) as catalog:
        with pytest.raises(OutcomeUnknown), unsure("it is there"):
            await changed_and_lost(catalog, Sessions(catalog).list)
    connection = await asyncpg.connect(dsn)
    assert await connection.fetchval("select count(*) from moorline.session") == 1
    await connection.close()


async def test_a_change_within_another_counts_what_that_one_has_sent(dsn: str) -> None:
    name = SharedName(Mode.SHARED, "lost", "orders/#")
    async with Catalog.open(dsn) as catalog:
        with pytest.raises(OutcomeUnknown, match="whether all is there"), unsure("all is there"):
            await changed_and_lost(
                catalog, lambda: Groups(catalog).declare(name, deliveries_max=5, start_us=7)
            )


async def test_one_change_says_nothing_of_the_next(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        with unsure("the first is there"):
            await Sessions(catalog).open("kept", "me", "node", 60)
        catalog._pool.terminate()
        with pytest.raises(CatalogUnreachable), unsure("the second is there"):
            await Sessions(catalog).open("lost", "me", "node", 60)
