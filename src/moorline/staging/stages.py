"""Room: staging. Staged writes at a node: the stages of tasks, which wait for their commit.

A stage belongs to the session that opened it, until it is closed; then it is durable, and its principal's: a
query is a name within the principal that writes by it. What a task sends is checked before it is stored: a
row that can never be published ends its stage.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from moorline.access.demands import Demands
from moorline.access.guard import Declarations, demand, demand_somewhere, demanded, needs, own
from moorline.config.settings import Streams as Settings
from moorline.core.access.quota import Quota
from moorline.core.access.right import WRITE
from moorline.errors import (
    ConnectionLost,
    LimitReached,
    MoorlineError,
    NotFound,
    OverQuota,
)
from moorline.journal.disk import Disk
from moorline.journal.staging.store import StagingStore
from moorline.limits import (
    COMMIT_BYTES_MAX,
    STAGED_LEFTOVERS_MS,
    STAGES_OPEN_PER_CONNECTION_MAX,
)
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.staging.commits import StagedCommits
from moorline.staging.queue_commits import NodeQueues
from moorline.staging.rows import RowChecker
from moorline.topics.commands import TopicBroker
from moorline.topics.paths import TOPICS, path_of_topic
from moorline.topics.stored_bytes import check_stored
from moorline.wire.message import Answer
from moorline.wire.staging import (
    QUEUES,
    AbortStaged,
    CloseStage,
    CommitStaged,
    OpenStage,
    RowsStaged,
    StageClosed,
    StageOpened,
    StageRows,
    StagesAborted,
    check_query,
    query_key,
)

log = logging.getLogger("moorline.groups")

STAGE = (Quota.STAGES, 1)
"""Each that is open; one that is closed waits on the disk, until its commit or a day."""

HOLD = "staging"
"""Why sessions are held: their rows wait for the disk."""


class Staging:
    """Answers the calls of staged writes. All disk work is in one thread, which owns the store."""

    def __init__(
        self,
        store: StagingStore,
        disk: Disk,
        broker: TopicBroker,
        settings: Settings,
        demands: Demands,
    ) -> None:
        self._demands = demands
        self._store = store
        self._streams = broker.streams
        self._checker = RowChecker(settings.message_bytes_max)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="moorline-staging")
        self._commits = StagedCommits(store, disk, broker, self._thread, settings.message_bytes_max)
        self._turns = Turns()
        self._open: dict[Session, dict[bytes, int]] = {}
        """What rows of each stage are for."""
        self._waiting_bytes = 0
        self._held: set[Session] = set()
        self._is_closed = False

    @property
    def committed_rows(self) -> int:
        return self._commits.committed_rows

    @property
    def aside_rows(self) -> int:
        return self._commits.aside_rows

    def declared(self) -> Declarations:
        later, telling = self._turns.later, self._demands.telling
        take_rows = later(telling(self._take_rows), self._rows_over)

        def rows(session: Session, calls: list[StageRows]) -> Any:
            self._waiting_bytes += sum(len(call.rows) for call in calls)
            if self._waiting_bytes > COMMIT_BYTES_MAX:
                self._held.add(session)
                session.hold_reading(HOLD)
            return take_rows(session, calls)

        return {
            # What it needs depends on what its rows are for.
            OpenStage: demanded(later(telling(self._open_stage))),
            # Its topics are found in the thread that unpacks them.
            StageRows: demanded(rows),
            CloseStage: own(later(self._close_stage)),
            CommitStaged: needs(WRITE, _topic_aside, later(telling(self._commit)), below=TOPICS),
            AbortStaged: own(later(self._abort)),
        }

    async def start(self) -> None:
        """What was decided before the start is published, beside the node's other work."""
        await self._commits.in_thread(self._store.open)
        for decided, _ in list(self._store.pending.values()):
            if decided.target != QUEUES:
                self._turns.spawn(self._commits.go_on(decided.query))

    def serve_queues(self, queues: NodeQueues) -> None:
        """From now on rows can go to queues too; what was decided before is sent."""
        self._commits.queues = queues
        for decided, _ in list(self._store.pending.values()):
            if decided.target == QUEUES:
                self._turns.spawn(self._commits.go_on(decided.query))

    async def remove_leftovers_forever(self) -> None:
        while True:
            await asyncio.sleep(STAGED_LEFTOVERS_MS / 1_000)
            try:
                removed = await self._commits.in_thread(self._store.remove_leftovers)
            except (OSError, MoorlineError):
                log.exception("leftovers of staged writes were not removed")
            else:
                if removed:
                    log.info("removed stages that nobody committed", extra={"stages": removed})

    def close(self) -> None:
        """A commit that is cut short here goes on with the next start."""
        self._is_closed = True
        self._turns.close()
        self._thread.shutdown()
        self._store.close()

    # --- stages -----------------------------------------------------------------------------------

    async def _open_stage(self, session: Session, call: OpenStage) -> Answer:
        # Who may write nowhere has nothing to stage. Each chunk is judged by its own paths.
        if call.target == QUEUES:
            self._commits.need_queues().owners.demand_send_somewhere(session.rights)
        else:
            demand_somewhere(session.rights, WRITE, TOPICS)
        self._commits.check_room()
        if not session.is_open:
            raise ConnectionLost("the client went before its call had its turn")
        if session not in self._open:
            self._open[session] = {}
            session.at_end(lambda: self._left(session))
        if len(self._open[session]) >= STAGES_OPEN_PER_CONNECTION_MAX:
            raise LimitReached(
                f"a connection has at most {STAGES_OPEN_PER_CONNECTION_MAX} stages open: close some of them, "
                "or use another connection"
            )
        check_query(call.query)
        key = query_key(session.rights.principal, call.query)
        if session.allowance is not None:
            session.allowance.take(STAGE)
        try:
            stage = await self._commits.in_thread(
                self._store.begin, key, call.batch, call.partition, call.attempt, call.target
            )
        except BaseException:
            _give_back(session, 1)
            raise
        if session not in self._open:  # it left meanwhile
            _give_back(session, 1)
            await self._commits.in_thread(self._store.discard, stage)
            raise NotFound("the session of this stage is over")
        self._open[session][stage] = call.target
        return StageOpened(call.call, stage, self._streams.store.shards)

    async def _take_rows(self, session: Session, call: StageRows) -> Answer:
        target = self._check_owner(session, call.stage)
        self._commits.check_room()
        try:
            count = await self._add(session, call, target)
        except OverQuota:
            raise  # nothing of it is staged: the same rows may come again later
        except (OSError, MoorlineError):
            await self._give_up(session, call.stage)
            raise
        return RowsStaged(call.call, count)

    def _rows_over(self, session: Session, call: StageRows) -> None:  # noqa: ARG002
        self._waiting_bytes -= len(call.rows)
        if self._held and self._waiting_bytes < COMMIT_BYTES_MAX // 2:
            for held in self._held:
                held.release_reading(HOLD)
            self._held.clear()

    async def _add(self, session: Session, call: StageRows, target: int) -> int:
        # Rights and quotas are looked at on the loop, to which they belong; and before anything is stored.
        rights, allowance = session.rights, session.allowance
        is_bounded = allowance is not None and allowance.is_publishing_bounded
        topics: list[str] = []
        if target == QUEUES:
            queues = self._commits.need_queues()
            count, ids = await self._commits.in_thread(
                self._checker.check_queue_rows, call.rows, queues.settings.message_bytes_max
            )
            queues.owners.demand_send(rights, ids)
        elif rights.everywhere(TOPICS) & WRITE and not is_bounded:
            return await self._commits.in_thread(self._add_rows, call)
        else:
            count, topics = await self._commits.in_thread(self._checker.check_rows, call.rows)
            for topic in topics:
                demand(rights, WRITE, path_of_topic(topic))
        if allowance is not None and is_bounded:
            # Here and not at the commit, which is decided as a whole and goes on to its end.
            if target != QUEUES:
                check_stored(self._streams.store.stored_bytes, allowance, rights.principal)
            allowance.take_topics(topics)
            allowance.take_published(count, len(call.rows))
        return await self._commits.in_thread(self._store.append, call.stage, call.rows, count)

    def _add_rows(self, call: StageRows) -> int:
        count, _ = self._checker.check_rows(call.rows)
        return self._store.append(call.stage, call.rows, count)

    async def _close_stage(self, session: Session, call: CloseStage) -> Answer:
        self._check_owner(session, call.stage)
        try:
            await self._commits.in_thread(self._store.finish, call.stage, call.count, call.hash)
        except (OSError, MoorlineError):
            await self._give_up(session, call.stage)
            raise
        self._release(session, call.stage)
        return StageClosed(call.call, call.count)

    async def _abort(self, session: Session, call: AbortStaged) -> Answer:
        check_query(call.query)
        key = query_key(session.rights.principal, call.query)
        # Not while a commit of the query is on its way: it may decide on these.
        async with self._commits.turn_of(key):
            removed = await self._commits.in_thread(self._store.abort, key, call.batch, call.stages)
        return StagesAborted(call.call, removed)

    async def _commit(self, session: Session, call: CommitStaged) -> Answer:
        check_query(call.query)
        key = query_key(session.rights.principal, call.query)
        return await self._commits.commit(msgspec.structs.replace(call, query=key), session.rights)

    async def _give_up(self, session: Session, stage: bytes) -> None:
        self._release(session, stage)
        await self._commits.in_thread(self._store.discard, stage)

    def _release(self, session: Session, stage: bytes) -> None:
        """It is not open any more."""
        of_session = self._open.get(session, {})
        if stage in of_session:
            del of_session[stage]
            _give_back(session, 1)

    def _left(self, session: Session) -> None:
        stages = self._open.pop(session, ())
        _give_back(session, len(stages))
        for stage in stages:
            if not self._is_closed:
                self._thread.submit(self._store.discard, stage)

    def _check_owner(self, session: Session, stage: bytes) -> int:
        """What its rows are for."""
        target = self._open.get(session, {}).get(stage)
        if target is None:
            raise NotFound("this session has no such stage open")
        return target


def _give_back(session: Session, stages: int) -> None:
    if session.allowance is not None:
        session.allowance.give_back((Quota.STAGES, stages))


def _topic_aside(call: CommitStaged) -> Iterable[str]:
    return (path_of_topic(call.aside),) if call.aside else ()


@contextlib.asynccontextmanager
async def open_staging(
    disk: Disk, broker: TopicBroker, settings: Settings, files_max: int, demands: Demands
) -> AsyncIterator[Staging]:
    """The staged writes of a data folder."""
    clock = broker.streams.clock
    store = StagingStore(
        disk,
        clock.stamp_s,
        expiry_s=clock.expiry_s,
        sync=settings.sync == "power",
        files_max=files_max,
    )
    staging = Staging(store, disk, broker, settings, demands)
    leftovers = asyncio.create_task(staging.remove_leftovers_forever())
    try:
        await staging.start()
        yield staging
    finally:
        leftovers.cancel()
        staging.close()
