"""Room: mqtt. Retained messages for a filter that begins: all that match, as fast as the client reads them.

They are found by an index of levels, in slices of the loop. The next ones are looked for when the client has
room for them, so that a hundred thousand matches are never in memory as PUBLISHes.
"""

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final

from moorline.core.delivery.delivery import FAR
from moorline.core.frames.frame import stored_at
from moorline.core.mqtt.effects import MessagePosition
from moorline.core.mqtt.outbound import NO_FEED, Outgoing
from moorline.core.mqtt.packets import Subscription
from moorline.core.stream import Shard
from moorline.journal.streams.retained import is_tombstone
from moorline.mqtt.outlet import outgoing
from moorline.net.slices import in_slices
from moorline.topics.retained import newest_retained

if TYPE_CHECKING:
    from moorline.mqtt.broker import MqttBroker
    from moorline.mqtt.session import ClientSession

BATCH: Final = 256
"""Messages that are given to the outlet together."""

SOURCE: Final = "retained/"
"""What stands before the topic in the place of a retained message: it is in no stream of the client's."""


class RetainedMessages:
    def __init__(self, broker: "MqttBroker") -> None:
        self._broker = broker

    async def send(
        self, session: "ClientSession", subscription: Subscription, identifier: int | None
    ) -> None:
        client, broker = session.client, self._broker
        text, principal = subscription.filter, client.rights.principal
        if text not in session.filters or session.filters.is_withheld(text):
            return
        figures = list(broker.system_topics.now(text))
        if figures:
            await session.outlet.room()
            session.outlet.send(figures)
        ours = await broker.topics.retained(text, principal)
        theirs = await broker.context.directory.retained(text)
        frames = iter(await in_slices(newest_retained(ours, theirs), principal))
        now_us = broker.topics.streams.clock.expiry_us()
        # Whoever subscribes again gets them again, also those that it has not answered yet.
        session.sendings += 1
        sending = Shard("", session.sendings)
        while client.is_open and text in session.filters:
            found: list[Outgoing] = await in_slices(
                _some(frames, subscription, identifier, now_us, sending), principal
            )
            # The right may have gone while they were looked for.
            if not found or session.filters.is_withheld(text):
                return
            session.outlet.send(found)
            client.flush()
            await session.outlet.room()

    async def send_again(self, session: "ClientSession", positions: list[MessagePosition]) -> None:
        """Those that were out when the last connection ended, under the ids that they have."""
        for known in positions:
            topic = known.source.removeprefix(SOURCE)
            ours = await self._broker.topics.retained(topic, session.client.rights.principal)
            for entry in ours:
                stored = stored_at(entry.frame, 0)
                is_granted = session.filters.granted(stored.topic) is not None
                if is_granted and not is_tombstone(entry.frame):
                    position = position_of(stored.topic, known.shard, stored.offset)
                    session.outlet.send([outgoing(stored, position, NO_FEED, 2, (), retain=True)])
            # What is not there any more, or not granted, comes no more.
            session.gone(known.source, known.shard, FAR)


def position_of(topic: str, sending: Shard, offset: int) -> MessagePosition:
    return MessagePosition(SOURCE + topic, sending, offset)


def _some(
    frames: Iterator[bytes],
    subscription: Subscription,
    identifier: int | None,
    now_us: int,
    sending: Shard,
) -> Generator[None, None, list[Outgoing]]:
    found: list[Outgoing] = []
    identifiers = () if identifier is None else (identifier,)
    for frame in frames:
        stored = stored_at(frame, 0)
        if not stored.ttl_s or stored.time_us + stored.ttl_s * 1_000_000 > now_us:
            found.append(
                outgoing(
                    stored,
                    position_of(stored.topic, sending, stored.offset),
                    NO_FEED,
                    subscription.qos,
                    identifiers,
                    retain=True,
                )
            )
        if len(found) >= BATCH:
            break
        yield
    return found
