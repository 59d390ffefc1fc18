"""Room: records. The tables that this node publishes to topics: begun, stopped, and taken up at a start."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from moorline.access.demands import Demands
from moorline.access.guard import Declarations, demand, demand_everything, demanded, heavy
from moorline.catalog.publications import Publication, Publications
from moorline.config.records import Records
from moorline.core.access.principal import ANONYMOUS, NODE_PREFIX, Proof
from moorline.core.access.right import SUBSCRIBE, WRITE
from moorline.core.records.permit import ROOT
from moorline.core.topic import check_topic
from moorline.errors import (
    AlreadyThere,
    DatabaseUnreachable,
    LimitReached,
    NotFound,
    NotReady,
    TableRefused,
    Unsupported,
)
from moorline.limits import RECORDS_PUBLISHED_TABLES_MAX
from moorline.net.session import Session
from moorline.net.session_rights import SessionAllowance, SessionRights
from moorline.net.tls import Identity
from moorline.net.turns import Turns
from moorline.records.publication import OpenCapture, Sink, TablePublisher
from moorline.wire.message import Answer
from moorline.wire.publication import PublishTable, StopTable, TablePublished, TableStopped

log = logging.getLogger("moorline.records")

TOPICS = "/topics"
ACT = PublishTable.__name__

RightsOf = Callable[[str, Proof, bool], SessionRights]


class Owner(msgspec.Struct, frozen=True):
    """Whoever made a publication, which goes on when that one has gone: as the audit and the rows see it."""

    rights: SessionRights
    identity: Identity
    peer_address: str = ""
    allowance: SessionAllowance | None = None

    @classmethod
    def of(cls, publication: Publication, rights_of: RightsOf) -> "Owner":
        name = publication.owner
        proof = Proof.PASSWORD  # any that is somebody's
        if name == ANONYMOUS:
            proof = Proof.NOTHING
        elif name.startswith(NODE_PREFIX):
            proof = Proof.NODE
        return cls(rights_of(name, proof, publication.is_local), Identity(name, proof))


class PublicationBroker:
    """`sink` is None on a node that has no topics: it stops publications, and makes none."""

    def __init__(
        self,
        publications: Publications,
        open_capture: OpenCapture,
        sink: Sink | None,
        settings: Records,
        demands: Demands,
        rights_of: RightsOf,
    ) -> None:
        self.running: dict[int, TablePublisher] = {}
        self._publications = publications
        self._open_capture = open_capture
        self._sink = sink
        self._settings = settings
        self._demands = demands
        self._rights_of = rights_of
        self._turns = Turns()
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def declared(self) -> Declarations:
        telling, later = self._demands.telling, self._turns.later
        return {
            PublishTable: heavy(demanded(later(telling(self._publish)))),
            StopTable: heavy(demanded(later(telling(self._stop)))),
        }

    async def start(self) -> None:
        """Takes up what this home publishes."""
        if self._sink is not None:
            for publication in await self._publications.of_home(self._sink.home):
                self._run(publication)

    async def close(self) -> None:
        self._turns.close()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- what operators say -----------------------------------------------------------------------

    async def _publish(self, session: Session, call: PublishTable) -> Answer:
        # Before anything is looked at: whoever may not hears nothing of what there is.
        _demand(session.rights, call.table, call.topic)
        sink = self._sink
        if sink is None:
            raise Unsupported("this node has no topics: ask one with the roles broker and records")
        check_topic(call.topic)
        sink.check(call.topic)
        if len(self._tasks) >= RECORDS_PUBLISHED_TABLES_MAX:
            raise LimitReached(f"this node publishes {RECORDS_PUBLISHED_TABLES_MAX} tables")
        await self._look_at(call.table)
        # While Postgres was asked a right may have been taken away.
        _demand(session.rights, call.table, call.topic)
        rights = session.rights
        found = await self._publications.add(
            call.table, call.topic, sink.home, rights.principal, is_local=rights.is_local
        )
        if (found.topic, found.home) != (call.topic, sink.home):
            raise AlreadyThere(
                f"{call.table} is published to {found.topic} by {found.home}: stop that first"
            )
        self._run(found)
        return TablePublished(call.call, found.home)

    async def _stop(self, session: Session, call: StopTable) -> Answer:
        demand_everything(session.rights, SUBSCRIBE, f"{ROOT}/{call.table}")
        found = await self._publications.find(call.table)
        if found is None:
            raise NotFound(f"{call.table} is not published")
        _demand(session.rights, call.table, found.topic)
        await self._publications.remove(found.number)
        task = self._tasks.get(found.number)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        return TableStopped(call.call, found.topic)

    async def _look_at(self, table: str) -> None:
        """Refused if it is not registered, or cannot be read."""
        try:
            async with self._open_capture(table):
                pass
        except TableRefused as error:
            raise NotFound(str(error)) from error
        except DatabaseUnreachable as error:
            raise NotReady(str(error)) from error

    # --- what runs --------------------------------------------------------------------------------

    def _run(self, publication: Publication) -> None:
        number = publication.number
        if number in self._tasks:
            return
        assert self._sink is not None
        owner = Owner.of(publication, self._rights_of)

        def check() -> None:
            _demand(owner.rights, publication.name, publication.topic)

        publisher = TablePublisher(
            publication,
            self._publications,
            self._open_capture,
            self._sink,
            check,
            lambda error: self._demands.tell(owner, ACT, error),
            poll_ms=self._settings.poll_ms,
            poll_ms_max=self._settings.poll_ms_max,
        )
        task = asyncio.create_task(publisher.run())
        self.running[number], self._tasks[number] = publisher, task
        task.add_done_callback(lambda done: self._ended(number, done))

    def _ended(self, number: int, task: "asyncio.Task[Any]") -> None:
        publisher = self.running.pop(number)
        del self._tasks[number]
        if not task.cancelled() and task.exception() is not None:
            log.error(
                "a publication failed",
                exc_info=task.exception(),
                extra={"table": publisher.name},
            )


def _demand(rights: SessionRights, table: str, topic: str) -> None:
    """All of the table goes to whoever reads the topic."""
    demand_everything(rights, SUBSCRIBE, f"{ROOT}/{table}")
    demand(rights, WRITE, f"{TOPICS}/{topic}")
