"""Room: catalog. What MQTT knows of durable sessions, and wills that are to be published.

Rows of `mqtt_session` belong to a session and go with it; nothing of them changes with an older epoch.
"""

from collections.abc import Sequence
from typing import NamedTuple

from moorline.catalog.catalog import Catalog
from moorline.catalog.statements import statement
from moorline.limits import (
    MQTT_WILL_CLAIM_MS,
    MQTT_WILLS_PER_LOOK_MAX,
    SESSION_EXPIRY_S_MIN,
)

LOAD = statement("mqtt_session_load")
SUBSCRIPTIONS = statement("mqtt_session_subscriptions")
EXCHANGES = statement("mqtt_session_exchanges")
EXPIRY = statement("mqtt_session_expiry")
REFERENCES = statement("mqtt_references")
OWNER = statement("mqtt_session_owner")
FIND = statement("mqtt_session_find")
REMOVE = statement("session_remove")
LIST = statement("mqtt_session_list")
WILL_KEEP = statement("mqtt_will_keep")
WILL_END = statement("mqtt_will_end")
WILL_FORGET = statement("mqtt_will_forget")
WILL_CLAIM = statement("mqtt_will_claim")
WILL_WAIT = statement("mqtt_will_wait")
WILL_TAKE_BACK = statement("mqtt_will_take_back")
WILL_TAKE_DUE = statement("mqtt_will_take_due")
WILL_PUBLISHED = statement("mqtt_will_published")
WILL_ORPHANS = statement("mqtt_will_orphans")


class KeptWill(NamedTuple):
    name: str
    principal: str
    proof: str
    is_local: bool
    will: bytes


class ListedSession(NamedTuple):
    name: str
    owner: str
    node: str
    expiry_s: int
    seen_us: int
    created_us: int
    subscriptions: bytes


class MqttSessions:
    """The part of the catalog that knows clients of MQTT."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def load(self, name: str) -> tuple[bytes, bytes]:
        """Subscriptions and exchanges of a session that is there."""
        row = await self._catalog.fetchrow(LOAD, name)
        return (row["subscriptions"], row["exchanges"]) if row is not None else (b"", b"")

    async def save_subscriptions(self, name: str, epoch: int, encoded: bytes) -> bool:
        """False if the session is another's by now, or gone."""
        return bool(await self._catalog.fetchval(SUBSCRIPTIONS, name, epoch, encoded))

    async def save_exchanges(self, given: Sequence[tuple[str, int, bytes]]) -> set[str]:
        """Of many sessions, each once, as (name, epoch, encoded); the names of those that are still ours."""
        names, epochs, encoded = (list(column) for column in zip(*given, strict=True))
        return {row["name"] for row in await self._catalog.fetch(EXCHANGES, names, epochs, encoded)}

    async def owner_of(self, name: str) -> str | None:
        """Of a session; None if there is none."""
        owner: str | None = await self._catalog.fetchval(OWNER, name)
        return owner

    async def set_expiry(self, name: str, epoch: int, expiry_s: int) -> None:
        await self._catalog.execute(EXPIRY, name, epoch, max(expiry_s, SESSION_EXPIRY_S_MIN))

    async def page(self, after: str, count: int, *, at: bool = False) -> list[ListedSession]:
        """A page of them behind that name; or the one of that name."""
        if at:
            return [ListedSession(**row) for row in await self._catalog.fetch(FIND, after)]
        return [ListedSession(**row) for row in await self._catalog.fetch(LIST, after, count)]

    async def references(self, own: str, silent_ms: int) -> dict[str, str]:
        """Where clients are sent to reach other nodes that live, by their homes."""
        rows = await self._catalog.fetch(REFERENCES, own, silent_ms)
        return {row["home"]: row["mqtt_reference"] for row in rows}

    async def remove(self, name: str) -> bool:
        """With its filters and places; False if there is none."""
        return bool(await self._catalog.fetchval(REMOVE, name))

    # --- wills ------------------------------------------------------------------------------------

    async def keep_will(self, node: str, kept: KeptWill, delay_s: int) -> None:
        """Of a client that is connected to that node now."""
        name, principal, proof, is_local, will = kept
        await self._catalog.execute(
            WILL_KEEP, name, node, principal, proof, is_local, will, delay_s
        )

    async def wait_with_will(self, name: str, node: str, due_in_ms: int) -> None:
        """One that is that node's is due then."""
        await self._catalog.execute(WILL_WAIT, name, node, due_in_ms)

    async def forget_will(self, name: str, node: str) -> None:
        """One that is that node's."""
        await self._catalog.execute(WILL_FORGET, name, node)

    async def claim_will(self, name: str, node: str) -> bool:
        """Whether it is that node's to publish; then `forget_will` when that is durable."""
        return bool(await self._catalog.fetchval(WILL_CLAIM, name, node, MQTT_WILL_CLAIM_MS))

    async def end_will(self, name: str, node: str) -> None:
        """One that is that node's is due now."""
        await self._catalog.execute(WILL_END, name, node)

    async def take_back_will(
        self, name: str, node: str, *, ends_session: bool, is_known: bool
    ) -> bool:
        """Of a client that has come to that node; whether there is one that is due now. One of the node
        itself is left alone if it `is_known` there."""
        return bool(
            await self._catalog.fetchval(WILL_TAKE_BACK, name, ends_session, node, not is_known)
        )

    async def adopt_orphans(self, own: str, *, is_start: bool, silent_s: int) -> None:
        """Wills of connections that no node has any more are due from now on; at a start those of this
        node too, which had been connected to the process before it."""
        await self._catalog.execute(WILL_ORPHANS, own if is_start else "", silent_s, own)

    async def take_due(self, node: str) -> list[KeptWill]:
        """They are that node's to publish for a while, and nobody else finds them."""
        rows = await self._catalog.fetch(
            WILL_TAKE_DUE, MQTT_WILLS_PER_LOOK_MAX, node, MQTT_WILL_CLAIM_MS
        )
        return [KeptWill(**row) for row in rows]

    async def published_wills(self, names: Sequence[str], node: str) -> None:
        """They are stored: none of them is due any more."""
        await self._catalog.execute(WILL_PUBLISHED, list(names), node)
