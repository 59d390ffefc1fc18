"""Room: node. The end of a topic: at this node, and then at all others.

    moor topic delete T ─► right, audit ─► are all there? ─► here: room, retained message, cut, list, synced
                                                            └─► each other node the same ─► answer

A message that was answered before the call is hidden; one that is published meanwhile may be or not. Where
the list has no room nothing has happened yet. What is done at a node stays done, whatever becomes of the
others: the answer names those, and to ask again is harmless. The design is in docs/design/streams.md.
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
from moorline.errors import (
    CallFailed,
    CannotCut,
    DiskFull,
    HomeAway,
    MoorlineError,
    NodeDiskFull,
    OutcomeUnknown,
)
from moorline.groups.rights import Judge, originator_of, rights_of_originator
from moorline.journal.reserved_whole import ReservedWhole
from moorline.journal.streams.deleted import encoded
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

NO_ROOM = "the disk has no room for the list of deleted topics: nothing was deleted"


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
        store = self._broker.streams.store
        async with self._alone:
            if self._broker.streams.is_disk_full:
                raise NodeDiskFull("the disk of the node is nearly full: nothing was deleted")
            messages = await self._broker.listed.messages_of(topic, principal)
            # What can be refused is refused here, before anything has happened.
            size = store.deleted_size(topic)
            try:
                reserved = await asyncio.to_thread(store.reserve_deleted, size)
            except DiskFull as error:
                raise NodeDiskFull(NO_ROOM) from error
            try:
                await self._hide(topic, reserved)
            finally:
                await asyncio.to_thread(reserved.drop)
        return messages

    async def _hide(self, topic: str, reserved: ReservedWhole) -> None:
        streams = self._broker.streams
        store = streams.store
        is_taken_back = await self._take_back(topic)
        try:
            async with streams.commits.stopped():
                reaches = store.reaches_of(topic)
            deleted = store.with_deleted(topic, reaches)
            await asyncio.to_thread(reserved.write, encoded(deleted))
        except (CannotCut, DiskFull) as error:
            if is_taken_back:
                raise OutcomeUnknown(
                    f"{error}; the retained message of the topic is taken back and nothing else is done: "
                    "delete the topic again"
                ) from error
            if isinstance(error, DiskFull):
                raise NodeDiskFull(NO_ROOM) from error
            raise
        store.deleted.written(deleted)

    async def _take_back(self, topic: str) -> bool:
        """As MQTT does it: who listens hears of it, and so do other nodes' subscribers."""
        streams = self._broker.streams
        found = streams.store.retained(topic)
        if all(one is None or is_tombstone(one.frame) for one in found):
            return False
        streams.store.append(topic, b"", None, b"", 0, RETAIN)
        await streams.commits.durable()
        return True


def _paths(call: DeleteTopic) -> tuple[str, ...]:
    return (path_of_topic(call.topic),)
