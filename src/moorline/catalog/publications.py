"""Room: catalog. Tables that feed a topic: where each publication is, and the batch that is being published.

A publication belongs to a home, and every change of it is made under the identity of that node: a process
that lost it stores nothing and takes nothing away. docs/decisions/0088-a-publication-stays-at-home.md says
why.
"""

from typing import Any

import msgspec

from moorline.catalog.catalog import Catalog
from moorline.catalog.outcome import HARMLESS, unsure
from moorline.catalog.statements import statement

ADD = statement("publication_add")
DONE = statement("publication_done")
FIND = statement("publications")
KEEP = statement("publication_keep")
NAMES = statement("publication_names")
REMOVE = statement("publication_remove")
ROUND = statement("publication_round")
STORE = statement("publication_store")
TELL = statement("publication_tell")


class StoredBatch(msgspec.Struct, frozen=True):
    """It may be in the streams, or a part of it, or nothing."""

    sequence: int
    """Of the last message before it."""
    shards: int
    """How many the home had when it was stored."""
    body: bytes


class Publication(msgspec.Struct, frozen=True):
    number: int
    name: str
    """That of the table."""
    topic: str
    home: str
    owner: str
    """The principal that made it."""
    is_local: bool
    """Whether it had the rights of somebody on the node's machine."""
    sequence: int
    round: int
    snapshot: str | None
    """Where the table was behind the last batch; None: the state begins anew."""
    described: str
    problem: str
    batch: StoredBatch | None


class PublicationState(msgspec.Struct, frozen=True):
    """Where a publication stands behind a batch."""

    sequence: int
    round: int
    snapshot: str | None
    described: str


class Publications:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def add(
        self, name: str, topic: str, home: str, owner: str, *, is_local: bool
    ) -> Publication:
        """The one of that table: a new one, or that which is there, as it is."""
        with unsure("the table is published", HARMLESS):
            number = await self._catalog.fetchval(
                ADD, name, topic, home, owner, *self._catalog.acting_as, is_local
            )
            found = await self.find(name)
        if found is None or (number is not None and found.number != number):
            raise self._catalog.identity_taken()
        return found

    async def find(self, name: str) -> Publication | None:
        return _one(await self._catalog.fetch(FIND, None, None, name))

    async def load(self, number: int) -> Publication | None:
        """None if it was stopped."""
        return _one(await self._catalog.fetch(FIND, None, number, None))

    async def of_home(self, home: str) -> list[Publication]:
        return [_publication(row) for row in await self._catalog.fetch(FIND, home, None, None)]

    async def draw_round(self) -> int:
        return int(await self._catalog.fetchval(ROUND))

    async def store(
        self, number: int, since: int, to: PublicationState, shards: int, body: bytes
    ) -> bool:
        """Before it is published. False if it is not ours to publish any more."""
        stored = await self._catalog.fetchval(
            STORE,
            number,
            since,
            to.sequence,
            to.round,
            to.snapshot,
            to.described,
            shards,
            body,
            *self._catalog.acting_as,
        )
        return stored is not None

    async def done(self, number: int, sequence: int) -> bool:
        """The batch behind that sequence is in the streams."""
        found = await self._catalog.fetchval(DONE, number, sequence, *self._catalog.acting_as)
        return found is not None

    async def keep(self, number: int, at: PublicationState, *, drops_batch: bool = False) -> bool:
        """A later snapshot without a change, or none: then the state begins anew."""
        found = await self._catalog.fetchval(
            KEEP,
            number,
            at.sequence,
            at.snapshot,
            at.described,
            drops_batch,
            *self._catalog.acting_as,
        )
        return found is not None

    async def tell(self, number: int, problem: str) -> None:
        """Why it does not go on, for those who list it; empty if it does."""
        await self._catalog.execute(TELL, number, problem)

    async def remove(self, number: int) -> bool:
        with unsure("the publication is stopped", HARMLESS):
            return await self._catalog.fetchval(REMOVE, number) is not None


def _one(rows: list[Any]) -> Publication | None:
    return _publication(rows[0]) if rows else None


def _publication(row: Any) -> Publication:
    batch = None
    if row["batch_sequence"] is not None:
        batch = StoredBatch(row["batch_sequence"], row["batch_shards"], bytes(row["batch_body"]))
    return Publication(
        number=row["number"],
        name=row["name"],
        topic=row["topic"],
        home=row["home"],
        owner=row["owner"],
        is_local=row["is_local"],
        sequence=row["sequence"],
        round=row["round"],
        snapshot=row["snapshot"],
        described=row["described"],
        problem=row["problem"],
        batch=batch,
    )
