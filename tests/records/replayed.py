"""A consumer of the topic that a table feeds: it knows the messages, and what the docs say of them."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import moorline
from moorline.client.topic import Subscription, TopicMessage

TOPIC = "tables/things"
PATIENCE_S = 60


class Replayed:
    """The state that messages in their order give, and all messages that came."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, ...], tuple[int, dict[str, Any] | None]] = {}
        self.snapshot = 0
        self.kinds: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []

    def hear(self, message: TopicMessage) -> None:
        body = json.loads(message.body)
        headers = dict(message.headers)
        assert headers["kind"].decode() == body["kind"]
        assert int(headers["snapshot"]) == body["snapshot"]
        self.bodies.append(body)
        self.kinds[body["kind"]] += 1
        if body["snapshot"] < self.snapshot:
            return
        if body["snapshot"] > self.snapshot:
            self.snapshot = body["snapshot"]
            self.rows.clear()
        if body["kind"] == "snapshot":
            assert message.key is None
            return
        key = tuple(body["key"])
        assert message.key == json.dumps(body["key"], separators=(",", ":")).encode()
        assert int(headers["seq"]) == body["seq"]
        if body["kind"] == "record":
            assert self.rows.get(key, (-1,))[0] < body["seq"], "a key goes on"
            self.rows[key] = (body["seq"], body["row"])
        else:
            assert body["kind"] == "deletion"
            assert self.rows.pop(key)[0] == body["seq"], "what is gone is what was there"

    def check_once(self) -> None:
        """No message came twice, and no seq of a row within what one snapshot begins."""
        said = Counter(json.dumps(body, sort_keys=True) for body in self.bodies)
        assert [text for text, count in said.items() if count > 1] == []
        for kind in ("record", "deletion"):
            seqs = Counter(
                (body["snapshot"], body["seq"])
                for body in self.bodies
                # Rows that are older than the registration have all the same.
                if body["kind"] == kind and body["seq"]
            )
            assert [one for one, count in seqs.items() if count > 1] == []

    async def hear_until(self, subscription: Subscription, count: int) -> None:
        """Exactly so many messages."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.bodies) < count:
                self.hear(await anext(subscription))


@asynccontextmanager
async def subscribed(address: str) -> AsyncIterator[Subscription]:
    async with moorline.connect(address) as moor:
        yield await moor.subscribe(TOPIC, start="beginning", qos=0)


async def replay(address: str, count: int) -> Replayed:
    found = Replayed()
    async with subscribed(address) as subscription:
        await found.hear_until(subscription, count)
        # One more would be one twice.
        assert await subscription.get(0.3) is None
    return found
