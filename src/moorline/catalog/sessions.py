"""Room: catalog. Durable sessions and what they are subscribed to.

A session belongs to whoever opened it last: each opening draws a new epoch, and with an older one nothing
can be changed any more. The readers of its private subscriptions have the epoch of the session.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from moorline.catalog.readers import Readers
from moorline.catalog.statements import statement
from moorline.core.topic import shared_name
from moorline.errors import NotAuthorized
from moorline.limits import SESSIONS_EXPIRED_PER_CALL_MAX

OPEN = statement("session_open")
ROOM = statement("session_room")
LIST = statement("session_list")
PAGE = statement("session_page")
SUBSCRIBE = statement("session_subscribe")
UNSUBSCRIBE = statement("session_unsubscribe")
SEEN = statement("session_seen")
REMOVE = statement("session_remove")
REMOVE_EXPIRED = statement("session_remove_expired")


class SubscriptionRow(msgspec.Struct, frozen=True):
    filter: str
    qos: int
    reader: int | None
    """None for a subscription with a group: the group's reader keeps the place."""
    start_us: int
    """Where to begin in a shard that the reader has no place in."""


class SessionRow(msgspec.Struct, frozen=True):
    name: str
    owner: str
    epoch: int
    is_new: bool
    """It was never opened before this epoch."""
    expiry_s: int
    node: str
    seen_us: int
    created_us: int
    subscriptions: list[SubscriptionRow]


class Sessions(Readers):
    """The part of the catalog that knows sessions."""

    async def open(self, name: str, owner: str, node: str, expiry_s: int) -> SessionRow:
        """Makes a session or takes it over, with the subscriptions that it has."""
        rows = await self._catalog.fetch(
            OPEN, name, owner, node, expiry_s, *self._catalog.acting_as
        )
        if not rows:
            if not await self._catalog.is_ours():
                raise self._catalog.identity_taken()
            raise NotAuthorized(f"the session {name!r} is another owner's: choose another name.")
        (session,) = _sessions(rows)
        return session

    async def held(self, name: str, owner: str, count_max: int) -> int | None:
        """How many sessions somebody has, counted up to a bound; None if that one is there already."""
        row = await self._catalog.fetchrow(ROOM, name, owner, count_max)
        assert row is not None
        return None if row["is_there"] else int(row["held"])

    async def subscribe(
        self, name: str, epoch: int, filter_text: str, qos: int, *, start_us: int | None = None
    ) -> SubscriptionRow | None:
        """Adds a subscription; None if the session was opened again since, or is gone.

        It begins at `start_us`, or else now. One that is there keeps its start and its reader, and takes
        the new qos.
        """
        has_reader = shared_name(filter_text) is None
        row = await self._catalog.fetchrow(
            SUBSCRIBE, name, epoch, _stored(filter_text), qos, start_us, has_reader
        )
        return None if row is None else SubscriptionRow(**row)

    async def unsubscribe(self, name: str, epoch: int, filter_text: str) -> bool:
        """Removes a subscription with its place, if there is one; False if the session is not ours."""
        return bool(await self._catalog.fetchval(UNSUBSCRIBE, name, epoch, _stored(filter_text)))

    async def seen(self, name: str, epoch: int) -> bool:
        """Says that the session is in use; False if it was opened again since, or is gone.

        Whoever has it open says so more often than every `expiry_s`.
        """
        return bool(await self.seen_all([(name, epoch)]))

    async def seen_all(self, held: Sequence[tuple[str, int]]) -> set[str]:
        """The same for many (name, epoch) at once; the names of those that are still ours."""
        names, epochs = [name for name, _ in held], [epoch for _, epoch in held]
        return {row["name"] for row in await self._catalog.fetch(SEEN, names, epochs)}

    async def remove(self, name: str) -> bool:
        """Removes a session with all its subscriptions and places; False if there is none."""
        return bool(await self._catalog.fetchval(REMOVE, name))

    async def remove_expired(self) -> list[str]:
        """Removes sessions that were last seen `expiry_s` ago, some at a time; their names.

        The rule is the function `remove_expired_sessions` of SQL (`migrations/0003_group.sql`).
        """
        names: list[str] = await self._catalog.fetchval(
            REMOVE_EXPIRED, SESSIONS_EXPIRED_PER_CALL_MAX
        )
        return names

    async def page(self, after: str, count: int) -> Sequence[Any]:
        """Rows of sessions behind that name, by name, with how many filters each has."""
        return await self._catalog.fetch(PAGE, after, count)

    async def list(self) -> list[SessionRow]:
        """All sessions, by name."""
        return _sessions(await self._catalog.fetch(LIST))


def _stored(filter_text: str) -> str:
    """`$share/…` and `$shared/…` are one subscription."""
    shared = shared_name(filter_text)
    return filter_text if shared is None else str(shared)


def _sessions(rows: Iterable[Any]) -> list[SessionRow]:
    """Of rows that are ordered by the session's name."""
    return [_session(list(group)) for _, group in groupby(rows, itemgetter("name"))]


def _session(rows: list[Any]) -> SessionRow:
    first = rows[0]
    return SessionRow(
        name=first["name"],
        owner=first["owner"],
        epoch=first["epoch"],
        is_new=first["is_new"],
        expiry_s=first["expiry_s"],
        node=first["node"],
        seen_us=first["seen_us"],
        created_us=first["created_us"],
        subscriptions=[
            SubscriptionRow(row["filter"], row["qos"], row["reader"], row["start_us"])
            for row in rows
            if row["filter"] is not None
        ],
    )
