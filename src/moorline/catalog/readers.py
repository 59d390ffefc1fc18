"""Room: catalog. Readers: whoever keeps a place in the streams, a group or a subscription of a session.

A reader is a number and an epoch. The epoch rises whenever somebody else takes the reader over, and a commit
that knows an older one changes nothing: what the new holder has read of the places stays true.
"""

from collections.abc import Sequence

import msgspec

from moorline.catalog.catalog import Catalog
from moorline.catalog.statements import statement

CURSORS = statement("reader_cursors")
COMMIT = statement("reader_commit")
FLOORS = statement("reader_floors")


class CursorRow(msgspec.Struct, frozen=True):
    """How far a reader is in a shard. The two texts of bytes are the reader's own."""

    home: str
    shard: int
    offset: int
    """Everything below it is done."""
    acked: bytes
    """What is done above it."""
    failures: bytes


class Readers:
    """The part of the catalog that knows places. Groups and sessions build on it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def cursors(self, reader: int) -> list[CursorRow]:
        """By home and shard. After a claim or an opening nobody else can change them."""
        return [CursorRow(**row) for row in await self._catalog.fetch(CURSORS, reader)]

    async def floors(self, home: str) -> dict[int, int]:
        """The furthest place that any reader has in each shard of a home."""
        return {row["shard"]: row["offset"] for row in await self._catalog.fetch(FLOORS, home)}

    async def commit(self, reader: int, epoch: int, cursors: Sequence[CursorRow]) -> bool:
        """Stores places, all or none; False if the reader has another epoch or is gone.

        A place whose offset is below the stored one is passed over. The holder of a reader commits one
        after the other: of two at once with the same offset the later one stays.
        """
        return not await self.commit_all([(reader, epoch, cursors)])

    async def commit_all(self, commits: Sequence[tuple[int, int, Sequence[CursorRow]]]) -> set[int]:
        """Commits (reader, epoch, places) of many readers at once; the readers that are fenced.

        A reader that is fenced does not spoil the others.
        """
        if not commits:
            return set()
        readers = {reader for reader, _, _ in commits}
        rows = [(reader, cursor) for reader, _, cursors in commits for cursor in cursors]
        assert len(readers) == len(commits), "a reader is named once in a commit"
        assert len({(reader, cursor.home, cursor.shard) for reader, cursor in rows}) == len(rows), (
            "a shard is named once in the cursors of a reader"
        )
        held = await self._catalog.fetch(
            COMMIT,
            [reader for reader, _, _ in commits],
            [epoch for _, epoch, _ in commits],
            [reader for reader, _ in rows],
            [cursor.home for _, cursor in rows],
            [cursor.shard for _, cursor in rows],
            [cursor.offset for _, cursor in rows],
            [cursor.acked for _, cursor in rows],
            [cursor.failures for _, cursor in rows],
        )
        return readers - {row["number"] for row in held}
