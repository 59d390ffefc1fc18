"""Room: node. The end of a topic: at this node, and then at all others.

    moor topic delete T ─► right, audit ─► are all there? ─► here: retained message, cut, list, synced
                                                            └─► each other node the same ─► answer

A message that was answered before the call is hidden; one that is published meanwhile may be or not. What
is done at a node stays done, whatever becomes of the others: the answer names those, and to ask again is
harmless. The design is in docs/design/streams.md.
"""

import asyncio
import logging

from moorline.access.demands import Demands
from moorline.access.guard import Declarations, demand, heavy, needs
from moorline.catalog import Catalog
from moorline.cluster.links import Links
from moorline.core.access.right import ADMINISTER
from moorline.core.frames.frame import RETAIN
from moorline.core.topic import check_topic
from moorline.errors import CallFailed, DiskFull, HomeAway, MoorlineError, NodeDiskFull
from moorline.groups.rights import Judge, originator_of, rights_of_originator
from moorline.journal.streams.retained import is_tombstone
from moorline.limits import TOPIC_DELETION_MS
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.topics.commands import TopicBroker
from moorline.topics.paths import check_reserved, path_of_topic
from moorline.topics.stream_files import BROKER
from moorline.wire.message import Answer
from moorline.wire.topic_deletion import DeleteTopic, TopicDeleted

log = logging.getLogger("moorline.node")


class TopicDeletion:
    """Answers `DeleteTopic`."""

    def __init__(
        self, broker: TopicBroker, links: Links, catalog: Catalog, judge: Judge, demands: Demands
    ) -> None:
        self._broker = broker
        self._links = links
        self._catalog = catalog
        self._judge = judge
        self._demands = demands
        self._turns = Turns()
        self._alone = asyncio.Lock()
        """The list is written whole: one deletion after the other."""

    def declared(self) -> Declarations:
        delete = self._turns.later(self._demands.telling(self._delete))
        return {DeleteTopic: heavy(needs(ADMINISTER, _paths, delete))}

    def close(self) -> None:
        self._turns.close()

    async def _delete(self, session: Session, call: DeleteTopic) -> Answer:
        check_topic(call.topic)
        check_reserved(call.topic, ADMINISTER)
        rights, path = session.rights, path_of_topic(call.topic)
        if rights.is_node:
            # By our own table: what the other one believes is no proof of a right.
            demand(rights_of_originator(self._judge, call.originator, path), ADMINISTER, path)
        others = [] if call.is_here else await self._others(is_forced=call.force)
        messages = await self._delete_here(call.topic, rights.principal)
        log.warning("a topic was deleted", extra={"topic": call.topic, "by": rights.principal})
        left: list[tuple[str, str]] = []
        passed = (call.topic, call.force, True, originator_of(rights))
        for home in others:
            try:
                told = await self._links.ask(
                    home,
                    lambda number: DeleteTopic(number, *passed),
                    TopicDeleted,
                    within_ms=TOPIC_DELETION_MS,
                )
                messages += told.messages
            except MoorlineError as error:
                left.append((home, error.code if isinstance(error, CallFailed) else HomeAway.code))
        return TopicDeleted(call.call, messages, left)

    async def _others(self, *, is_forced: bool) -> list[str]:
        """The homes to ask; refused while one is away, as it would have the topic still when it is back."""
        homes = [row.home for row in await self._catalog.nodes() if BROKER in row.roles]
        others = [home for home in homes if home != self._links.node]
        away = sorted(set(others) - set(self._links.others()))
        if away and not is_forced:
            raise HomeAway(
                f"{', '.join(away)} cannot be reached, and may have messages of the topic: nothing was "
                "deleted; start them, remove them from the cluster, or give --force and delete again later"
            )
        return others

    async def _delete_here(self, topic: str, principal: str) -> int:
        """What readers here do not see any more: so many messages."""
        streams = self._broker.streams
        store = streams.store
        async with self._alone:
            if streams.is_disk_full:
                raise NodeDiskFull("the disk of the node is nearly full: the topic was not deleted")
            messages = await self._broker.listed.messages_of(topic, principal)
            if any(
                one is not None and not is_tombstone(one.frame) for one in store.retained(topic)
            ):
                # As MQTT takes one back: who listens hears of it, and so do other nodes' subscribers.
                store.append(topic, b"", None, b"", 0, RETAIN)
                await streams.commits.durable()
            async with streams.commits.stopped():
                reaches = store.reaches_of(topic)
            deleted = store.with_deleted(topic, reaches)
            try:
                await asyncio.to_thread(store.write_deleted, deleted)
            except DiskFull as error:
                raise NodeDiskFull(f"{error}: the topic was not deleted") from error
            store.deleted.written(deleted)
        return messages


def _paths(call: DeleteTopic) -> tuple[str, ...]:
    return (path_of_topic(call.topic),)
