"""Cursors on their way into the catalog: together, in order, and one that is refused harms no other."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from moorline.core.delivery.progress import Cursor
from moorline.core.stream import Shard
from moorline.errors import CatalogUnreachable
from moorline.groups.cursor_commits import CursorCommits

SHARD = Shard("n1", 0)
AT_TEN = [(SHARD, Cursor(10, (), (), 0))]


class Catalog:
    """Takes the statements of the commits, as the catalog's part of groups does."""

    def __init__(self) -> None:
        self.statements: list[list[int]] = []
        self.refused: set[int] = set()
        self.fenced: set[int] = set()
        self.lost = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def commit_all(self, commits: Sequence[tuple[int, int, list[Any]]]) -> set[int]:
        readers = [reader for reader, _, _ in commits]
        self.statements.append(readers)
        await self.gate.wait()
        if self.lost:
            raise CatalogUnreachable("it is away")
        if self.refused & set(readers):
            raise ValueError("a value that Postgres does not take")
        return self.fenced & set(readers)


@pytest.fixture
def catalog() -> Catalog:
    return Catalog()


@pytest.fixture
def commits(catalog: Catalog) -> CursorCommits:
    return CursorCommits(catalog)  # type: ignore[arg-type]


async def _together(commits: CursorCommits, *readers: int) -> list[bool | BaseException]:
    works = [commits.commit(reader, 1, AT_TEN) for reader in readers]
    return await asyncio.gather(*works, return_exceptions=True)


async def test_all_readers_go_with_one_statement(commits: CursorCommits, catalog: Catalog) -> None:
    catalog.fenced = {2}
    assert await _together(commits, 1, 2, 3) == [True, False, True]
    assert catalog.statements == [[1, 2, 3]]


async def test_a_reader_is_named_once_in_a_statement(
    commits: CursorCommits, catalog: Catalog
) -> None:
    assert await _together(commits, 1, 2, 1) == [True, True, True]
    assert catalog.statements == [[1, 2], [1]]


async def test_what_comes_meanwhile_goes_with_the_next_one(
    commits: CursorCommits, catalog: Catalog
) -> None:
    catalog.gate.clear()
    first = asyncio.create_task(commits.commit(1, 1, AT_TEN))
    while not catalog.statements:
        await asyncio.sleep(0)
    others = asyncio.create_task(_together(commits, 2, 3))
    await asyncio.sleep(0)
    catalog.gate.set()
    assert await first
    assert await others == [True, True]
    assert catalog.statements == [[1], [2, 3]]


async def test_one_that_the_catalog_refuses_harms_no_other(
    commits: CursorCommits, catalog: Catalog
) -> None:
    catalog.refused = {2}
    first, second, third = await _together(commits, 1, 2, 3)
    assert (first, third) == (True, True)
    assert isinstance(second, ValueError)
    assert catalog.statements == [[1, 2, 3], [1], [2], [3]]


async def test_all_are_told_that_the_catalog_is_away_and_may_try_again(
    commits: CursorCommits, catalog: Catalog
) -> None:
    catalog.lost = True
    found = await _together(commits, 1, 2)
    assert [type(one) for one in found] == [CatalogUnreachable, CatalogUnreachable]
    assert catalog.statements == [[1, 2]], "nobody is asked alone while it is away"
    catalog.lost = False
    assert await _together(commits, 1) == [True]
